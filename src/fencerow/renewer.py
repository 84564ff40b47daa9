"""
The renewer: a small process beside each worker that keeps its leases alive, whatever the worker's loop, threads or C
code do. It imports the driver and the standard library only, and is started by exec.

It renews while the worker process exists and is not stopped (state T): a frozen worker must lose its lease. It ends with
its worker: end of file on its input, or another parent.

Input, one JSON object a line: ``{"dsn", "schema", "pooler", "name", "parent", "memory"}`` first; then ``{"keep": lease,
"slot": n, "seconds": s, "margin": m}`` and ``{"drop": lease}``. Output: ``{"cancelling": [job, …]}`` (some of them),
``{"lost": lease}``, ``{"trouble": text}``, ``{"well": true}``.

Shared memory, 16 bytes a slot: the time until which the lease may be trusted (CLOCK_BOOTTIME, seconds), written twice; a
reader takes the smaller one. After the slots, written by the worker: the time by which its loop will have looked at its
jobs again. While that is past the process is hung, and is not renewed either.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import signal
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

SLOT = struct.Struct("dd")
SLOTS = 64
PROMISE = struct.Struct("d")
MEMORY_BYTES = SLOT.size * SLOTS + PROMISE.size
CANCELLING_MAX = 100
"""Ids in one line: a line stays below PIPE_BUF, so that it is written whole or not at all. The worker asks for all itself."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime() -> float:
    """Seconds since boot, suspends included."""
    return time.clock_gettime(_CLOCK)


class Overdue(Exception):
    """The watchdog: no answer within a quarter of the lease."""


@dataclass(slots=True)
class Kept:
    """One lease to keep. ``due`` on CLOCK_BOOTTIME."""

    lease: int
    slot: int
    seconds: float
    margin: float
    due: float

    @property
    def watchdog(self) -> float:
        return min(8.0, self.seconds / 4)


class Renewer:
    """The whole life of the process: read orders, renew what is due, write until when each lease may be trusted."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.dsn: str = setup["dsn"]
        self.schema: str = setup["schema"]
        self.pooler: bool = setup["pooler"]
        self.name: str = setup["name"]
        self.parent: int = setup["parent"]
        self.memory = mmap.mmap(setup["memory"], MEMORY_BYTES)
        self.kept: dict[int, Kept] = {}
        self.connection: psycopg.Connection[Any] | None = None
        self.troubled = False
        schema = self.schema.replace('"', '""').replace("%", "%%")
        self.statement = f'SELECT cancelling FROM "{schema}".renew(%s)'.encode()

    def run(self) -> None:
        """Serve until the worker is gone."""
        buffer = b""
        while True:
            ready, _, _ = select.select([0], [], [], self._wait())
            if os.getppid() != self.parent:
                return
            if ready:
                chunk = os.read(0, 65536)
                if not chunk:
                    return
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    self._order(json.loads(line))
            for kept in list(self.kept.values()):
                if kept.due <= boottime():
                    self._renew(kept)

    def _wait(self) -> float:
        if not self.kept:
            return 1.0
        return min(1.0, max(0.0, min(kept.due for kept in self.kept.values()) - boottime()))

    def _order(self, order: dict[str, Any]) -> None:
        if "keep" in order:
            # As old as the trust that is in memory: a renewer that replaces a dead one may be late already.
            trusted = min(SLOT.unpack_from(self.memory, order["slot"] * SLOT.size))
            due = trusted + order["margin"] - order["seconds"] * 2 / 3
            self.kept[order["keep"]] = Kept(
                order["keep"], order["slot"], order["seconds"], order["margin"], due
            )
            self._connect(min(8.0, order["seconds"] / 4))
        else:
            self.kept.pop(order["drop"], None)

    def _renew(self, kept: Kept) -> None:
        if worker_stopped(self.parent) or self._hung():
            kept.due = boottime() + min(0.05, kept.seconds / 30)
            return
        sent = boottime()
        try:
            row = self._ask(kept)
        except (psycopg.Error, Overdue) as error:
            self._close()
            self._trouble(str(error).split("\n")[0] or type(error).__name__)
            kept.due = boottime() + min(0.5, kept.seconds / 20)
            return
        if self.troubled:
            self.troubled = False
            say({"well": True})
        if row is None:
            self.kept.pop(kept.lease, None)
            self.memory[kept.slot * SLOT.size : (kept.slot + 1) * SLOT.size] = SLOT.pack(0.0, 0.0)
            say({"lost": kept.lease})
            return
        trusted = sent + kept.seconds - kept.margin
        self.memory[kept.slot * SLOT.size : (kept.slot + 1) * SLOT.size] = SLOT.pack(trusted, trusted)
        kept.due = sent + kept.seconds / 3
        if row[0]:
            say({"cancelling": row[0][:CANCELLING_MAX]})

    def _hung(self) -> bool:
        promised: float = PROMISE.unpack_from(self.memory, SLOT.size * SLOTS)[0]
        return 0 < promised < boottime()

    def _ask(self, kept: Kept) -> tuple[Any, ...] | None:
        signal.setitimer(signal.ITIMER_REAL, kept.watchdog)
        try:
            connection = self.connection or self._open(kept.watchdog)
            if connection.autocommit and not self._strict:
                try:
                    return connection.execute(self.statement, (kept.lease,)).fetchone()
                except psycopg.Error as error:
                    if error.sqlstate != "QF001":
                        raise
                    self._strict = True
            # No transaction block: its rollback would wait for a server that does not answer.
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            row = connection.execute(self.statement, (kept.lease,)).fetchone()
            connection.execute("COMMIT")
            return row
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    _strict = False

    def _connect(self, watchdog: float) -> None:
        """Connect ahead of the first renewal; a failure shows again, and counts, when it is due."""
        if self.connection is not None:
            return
        signal.setitimer(signal.ITIMER_REAL, watchdog)
        try:
            self._open(watchdog)
        except (psycopg.Error, Overdue):
            self._close()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _open(self, watchdog: float) -> psycopg.Connection[Any]:
        given = conninfo_to_dict(self.dsn)
        arguments: dict[str, Any] = {"application_name": f"{self.name} renew"[:63], "connect_timeout": 2}
        if not self.pooler:
            timeout = f"-c statement_timeout={max(50, int(watchdog * 625))}"
            arguments["options"] = f"{given.get('options') or ''} {timeout}".strip()
        threshold = None if self.pooler else 5
        self.connection = psycopg.connect(self.dsn, autocommit=True, prepare_threshold=threshold, **arguments)
        return self.connection

    def _close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def _trouble(self, text: str) -> None:
        if not self.troubled:
            self.troubled = True
            say({"trouble": text[:300]})


def worker_stopped(pid: int) -> bool:
    """True when the process is in state T (SIGSTOP, SIGTSTP) or traced to a stop."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rsplit(b")", 1)[1].split()[0] in (b"T", b"t")
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return False
        return os.popen(f"ps -o state= -p {pid}").read().strip()[:1] == "T"  # noqa: S605 - no /proc here


def say(line: dict[str, Any]) -> None:
    """Tell the worker; it reads when it can, and what does not fit in the pipe is dropped: the memory holds the truth."""
    try:
        os.write(1, json.dumps(line).encode() + b"\n")
    except OSError:
        pass


def _overdue(_signal: int, _frame: object) -> None:
    raise Overdue("no answer within a quarter of the lease")


def main() -> None:
    """Entry point of ``python -m fencerow.renewer``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _overdue)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    os.set_blocking(1, False)
    first = b""
    while not first.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return
        first += byte
    Renewer(json.loads(first)).run()


if __name__ == "__main__":
    main()
