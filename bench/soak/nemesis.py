"""
The faults: a schedule that depends on the seed alone, and what each family does to the processes and the server.

Every family appears equally often: the schedule is rounds, each with all families in an order of its own. Which process
or connection is hit follows from the fault's own random numbers and from what is there at that moment.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import psycopg

from bench.soak.processes import marked
from fencerow.server import Cluster
from fencerow.testing.proxy import Proxy

AT_ONCE = 3
TRIES_SECONDS = 8.0
HOLD_SECONDS = 2.0
RESTART_SECONDS = 30.0
SLOW_DISK_SECONDS = 1.5
SLOW_DISK_DELAY = "150ms"
LOSS_SECONDS = 4.0
LOST_STATEMENTS = (
    r"\bclaim\(",
    r"\bcomplete\(",
    r"\brenew\(",
    r"\benqueue_many\(",
    r"^COMMIT",
    r"\bretry\(",
    r"\bprogress\(",
)
LOCKED_TABLES = ("ready", "running", "lease", "ended", "scheduled", "job")
HELD_ROWS = ("lease", "running", "ready")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: ``at`` seconds after the start; ``seed`` of its own choices."""

    number: int
    at: float
    family: str
    seed: str


def schedule(seed: int, families: list[str], *, seconds: float, spacing: float) -> list[Fault]:
    """Faults *spacing* seconds apart, each family once a round."""
    chance = random.Random(f"schedule:{seed}")
    faults: list[Fault] = []
    while True:
        for family in chance.sample(families, len(families)):
            at = (len(faults) + 1) * spacing
            if at > seconds:
                return faults
            faults.append(Fault(len(faults), at, family, f"{seed}:{len(faults)}"))


class Nemesis:
    """
    Args:
        dsn: of the server itself, not of the proxy.
        lease: seconds; a stopped worker sleeps longer than this.
        say: called with one line per fault.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        dsn: str,
        proxy: Proxy,
        mark: str,
        lease: float,
        say: Callable[[str], None],
    ) -> None:
        self.done: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.skipped: dict[str, str] = {}
        self._cluster = cluster
        self._dsn = dsn
        self._proxy = proxy
        self._mark = mark
        self._lease = lease
        self._say = say
        # What changes the server itself goes one at a time; so do faults that need its answer for long.
        self._server = threading.Lock()
        self._stopped: set[int] = set()
        self.families: dict[str, Callable[[random.Random], str | None]] = {
            "worker killed": self._worker_killed,
            "worker frozen past its lease": self._worker_frozen,
            "worker told to stop": self._worker_told,
            "supervisor told to stop": self._supervisor_told,
            "supervisor killed": self._supervisor_killed,
            "renewer killed": self._renewer_killed,
            "backend terminated": self._backend_terminated,
            "backend killed": self._backend_killed,
            "server restarted, immediate": lambda _: self._restarted("immediate"),
            "server restarted, fast": lambda _: self._restarted("fast"),
            "server read-only": self._read_only,
            "all connections cut": self._all_cut,
            "request lost": lambda chance: self._lost("request", chance),
            "reply lost": lambda chance: self._lost("reply", chance),
            "network stands still": self._stands_still,
            "table locked": self._table_locked,
            "rows held, idle in transaction": self._rows_held,
            "slow disk": self._slow_disk,
        }
        if shutil.which("strace") is None:
            del self.families["slow disk"]
            self.skipped["slow disk"] = "strace is not installed"

    def run(self, faults: list[Fault]) -> None:
        """Play a schedule; returns when every fault is over."""
        began = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fault") as pool:
            open_: set[Future[None]] = set()
            for fault in faults:
                # A fault that is late waits for its turn: the order of the schedule stays.
                while len(open_ := {one for one in open_ if not one.done()}) >= AT_ONCE:
                    time.sleep(0.02)
                time.sleep(max(0.0, began + fault.at - time.monotonic()))
                open_.add(pool.submit(self._play, fault, began))

    def _play(self, fault: Fault, began: float) -> None:
        chance = random.Random(fault.seed)
        deadline = time.monotonic() + TRIES_SECONDS
        note: str | None = None
        while note is None and time.monotonic() < deadline:
            try:
                note = self.families[fault.family](chance)
            except (psycopg.Error, ProcessLookupError, subprocess.SubprocessError):
                note = None
            if note is None:
                time.sleep(0.05)
        counted = self.missed if note is None else self.done
        counted[fault.family] += 1
        self._say(
            f"{time.monotonic() - began:8.2f} s  fault {fault.number} {fault.family}: {note or 'no victim'}"
        )

    # -- processes

    def _victim(self, role: str, chance: random.Random) -> int | None:
        pids = [
            found.pid for found in marked(self._mark) if found.role == role and found.pid not in self._stopped
        ]
        return pids[int(chance.random() * len(pids))] if pids else None

    def _signal(self, role: str, number: signal.Signals, chance: random.Random) -> str | None:
        pid = self._victim(role, chance)
        if pid is None:
            return None
        os.kill(pid, number)
        return f"{number.name} to {role} {pid}"

    def _worker_killed(self, chance: random.Random) -> str | None:
        return self._signal("worker", signal.SIGKILL, chance)

    def _worker_told(self, chance: random.Random) -> str | None:
        return self._signal("worker", signal.SIGTERM, chance)

    def _supervisor_told(self, chance: random.Random) -> str | None:
        return self._signal("supervisor", signal.SIGTERM, chance)

    def _supervisor_killed(self, chance: random.Random) -> str | None:
        return self._signal("supervisor", signal.SIGKILL, chance)

    def _renewer_killed(self, chance: random.Random) -> str | None:
        return self._signal("renewer", signal.SIGKILL, chance)

    def _worker_frozen(self, chance: random.Random) -> str | None:
        pid = self._victim("worker", chance)
        if pid is None:
            return None
        seconds = self._lease * (1.1 + 0.5 * chance.random())
        self._stopped.add(pid)
        try:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)
        finally:
            self._stopped.discard(pid)
        return f"SIGSTOP to worker {pid} for {seconds:.1f} s"

    # -- connections and backends

    def _all_cut(self, _chance: random.Random) -> str:
        self._proxy.sever()
        return "by the proxy"

    def _lost(self, what: Literal["request", "reply"], chance: random.Random) -> str | None:
        pattern = chance.choice(LOST_STATEMENTS)
        nth = chance.randint(1, 2)
        try:
            self._proxy.lose(pattern, what, nth=nth).wait(LOSS_SECONDS)
        except AssertionError:
            return None  # it stays armed, and is not counted when it comes
        return f"of {pattern}, the {nth}."

    def _stands_still(self, chance: random.Random) -> str:
        seconds = self._lease * (0.3 + 0.6 * chance.random())
        self._proxy.stand_still()
        try:
            time.sleep(seconds)
        finally:
            self._proxy.go_on()
        return f"for {seconds:.1f} s"

    @contextmanager
    def _session(self, name: str = "nemesis") -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        with psycopg.connect(
            self._dsn,
            autocommit=True,
            connect_timeout=2,
            application_name=name,
            options="-c default_transaction_read_only=off -c lock_timeout=2500",
        ) as connection:
            yield connection

    def _backends(self, connection: psycopg.Connection[tuple[Any, ...]]) -> list[int]:
        return [
            row[0]
            for row in connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' "
                "AND (application_name LIKE 'fencerow%' OR application_name LIKE 'soak%') ORDER BY pid"
            ).fetchall()
        ]

    def _backend_terminated(self, chance: random.Random) -> str | None:
        with self._session() as connection:
            pids = self._backends(connection)
            if not pids:
                return None
            pid = pids[int(chance.random() * len(pids))]
            connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        return f"backend {pid}"

    def _backend_killed(self, chance: random.Random) -> str | None:
        with self._server:
            with self._session() as connection:
                pids = self._backends(connection)
            if not pids:
                return None
            pid = pids[int(chance.random() * len(pids))]
            os.kill(pid, signal.SIGKILL)
            self._until_answers()
        return f"SIGKILL to backend {pid}: the server recovered"

    # -- the server

    def _until_answers(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                with self._session():
                    return
            except psycopg.Error:
                time.sleep(0.05)
        raise TimeoutError("the server does not answer")

    def _restarted(self, mode: str) -> str:
        with self._server:
            self._cluster.restart("immediate" if mode == "immediate" else "fast", timeout=RESTART_SECONDS)
            self._until_answers()
        return f"-m {mode}"

    def _read_only(self, chance: random.Random) -> str | None:
        seconds = 1 + 2 * chance.random()
        with self._server, self._session() as connection:
            connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            try:
                connection.execute("SELECT pg_reload_conf()")
                time.sleep(seconds)
            finally:
                connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
                connection.execute("SELECT pg_reload_conf()")
        return f"for {seconds:.1f} s"

    def _table_locked(self, chance: random.Random) -> str | None:
        table = chance.choice(LOCKED_TABLES)
        return self._holding(f"LOCK TABLE fencerow.{table} IN ACCESS EXCLUSIVE MODE", f"{table} for")

    def _rows_held(self, chance: random.Random) -> str | None:
        table = chance.choice(HELD_ROWS)
        return self._holding(f"SELECT FROM fencerow.{table} LIMIT 100 FOR UPDATE", f"100 rows of {table} for")

    def _holding(self, statement: str, what: str) -> str | None:
        with self._server, self._session("soak holder") as connection, connection.transaction():
            connection.execute(statement.encode())
            time.sleep(HOLD_SECONDS)
        return f"{what} {HOLD_SECONDS:.0f} s"

    def _slow_disk(self, _chance: random.Random) -> str | None:
        with self._server:
            with self._session() as connection:
                pids = self._backends(connection)
                rows = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'checkpointer')"
                ).fetchall()
            pids += [row[0] for row in rows]
            inject = f"inject=fdatasync:delay_enter={SLOW_DISK_DELAY}"
            command = ["strace", "-qq", "-f", "-e", "trace=fdatasync", "-e", inject, "-o", os.devnull]
            for pid in pids:
                command += ["-p", str(pid)]
            tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            try:
                tracer.wait(SLOW_DISK_SECONDS)
                return None  # it could not attach
            except subprocess.TimeoutExpired:
                return (
                    f"each fdatasync of {len(pids)} processes {SLOW_DISK_DELAY} later, {SLOW_DISK_SECONDS} s"
                )
            finally:
                tracer.terminate()
                tracer.wait()
