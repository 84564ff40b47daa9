"""
The scenario, the same for all: A claims the job and is frozen in its handler; the peer's own recovery gives the job to
B; A is thawed, its handler returns, and A stops in good order. Did A's success get in while B was at work?

Workers are real processes in groups of their own. They meet us in a folder: ``A.started``, ``A.go``, ``A.returning``.
B's handler then fails, to show what is left of the outcome of the one who held the job. The server logs every statement:
what A sent while B was at work is read there.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.peers.catalogue import Peer
from fencerow.server import Cluster

LOOK_SECONDS = 0.02
WAIT_SECONDS = 60.0
STOP_SECONDS = 30.0


class Unplayable(Exception):
    """The scenario did not come to its point; the text says where it stopped."""


@dataclass(frozen=True, slots=True)
class Played:
    """
    What was seen. The three records are the peer's own tables in words: when both workers hold the job in hand, when
    A has reported, when B has failed.
    """

    name: str
    version: str
    result: str
    both_at_work: str
    after_a: str
    after_b: str
    recovery: str
    source: str


@dataclass(frozen=True, slots=True)
class _Record:
    held: bool
    done: bool
    words: str


class _Play:
    """One peer on a database of its own."""

    def __init__(self, peer: Peer, command: list[str], environment: dict[str, str], *, folder: Path) -> None:
        self.peer = peer
        self.command = command
        self.environment = environment
        self.folder = folder
        self.log = folder / "workers.log"

    def ask(self, *words: str) -> dict[str, object]:
        """Run the adapter for one answer, a line of JSON."""
        with self.log.open("ab") as log:
            try:
                done = subprocess.run(
                    [*self.command, *words],
                    env=self.environment,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    timeout=WAIT_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise Unplayable(f"{words[0]} did not end in {WAIT_SECONDS:.0f} s") from error
        if done.returncode != 0:
            raise Unplayable(f"{words[0]} ended with {done.returncode}: {self.tail()}")
        answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return answer

    @contextmanager
    def worker(self, who: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start worker *who*; whatever is left of its group is killed at the end."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*self.command, "work", who],
                env={**self.environment, "PEER_WHO": who},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            for number in (signal.SIGCONT, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    break
            process.wait()

    def said(self, name: str) -> bool:
        """Whether a worker wrote this file."""
        return (self.folder / name).exists()

    def tell(self, name: str) -> None:
        """Write a file that a handler waits for."""
        (self.folder / name).touch()

    def record(self) -> _Record:
        """The peer's own tables."""
        with psycopg.connect(self.environment["PEER_DSN"], autocommit=True) as connection:
            row = connection.execute(self.peer.state.encode()).fetchone()
        if row is None:
            raise Unplayable("the peer keeps no row of the job")
        return _Record(bool(row[0]), bool(row[1]), str(row[2]))

    def age(self) -> None:
        """Date the lock back, where nothing else shortens the wait."""
        if self.peer.age:
            with psycopg.connect(self.environment["PEER_DSN"], autocommit=True) as connection:
                connection.execute(self.peer.age.encode())

    def tail(self) -> str:
        """The last line of the workers' log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"


def play(
    peer: Peer, command: list[str], environment: dict[str, str], *, cluster: Cluster, folder: Path
) -> Played:
    """
    Play one peer on a fresh database of *cluster*; *folder* is where the workers meet.

    Raises:
        Unplayable: the scenario did not come to its point.
    """
    database = "peer_" + peer.name.replace("-", "_")
    with psycopg.connect(cluster.dsn("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}".encode())
    place = {
        "PEER_DSN": cluster.dsn(database),
        "PEER_FOLDER": str(folder),
        "PGHOST": str(cluster.sockets),
        "PGPORT": "5432",
        "PGUSER": "fencerow",
        "PGDATABASE": database,
    }
    theirs = _Play(peer, command, {**os.environ, **environment, **place}, folder=folder)
    version = str(theirs.ask("install")["version"])
    if peer.version and version != peer.version:
        raise Unplayable(f"version {version} was installed, {peer.version} was wanted")
    theirs.ask("enqueue")
    with theirs.worker("A") as first:
        _await(lambda: theirs.said("A.started"), "worker A did not claim the job", theirs)
        _freeze(first)
        theirs.age()
        with theirs.worker("B") as second:
            if peer.calls_recovery:
                _await(lambda: theirs.ask("recover")["recovered"] == 1, "nothing was recovered", theirs)
            _await(lambda: theirs.said("B.started"), "worker B was not given the job", theirs)
            both = theirs.record()
            if both.done or not both.held:
                raise Unplayable(f"B runs the job, and the record says: {both.words}")
            after_a, sent = _thaw(theirs, first, log=cluster.log)
            if theirs.said("B.returning") or second.poll() is not None:
                raise Unplayable("B did not stay at work")
            theirs.tell("B.go")
            _await(lambda: theirs.said("B.returning"), "B's handler did not go on", theirs)
            _stop(second)
        after_b = theirs.record()
    result = _result(after_a, sent=sent)
    records = (both.words, after_a.words, after_b.words)
    return Played(peer.name, version, result, *records, peer.recovery, peer.source)


def _thaw(theirs: _Play, first: subprocess.Popen[bytes], *, log: Path) -> tuple[_Record, bool]:
    """Let A's handler return and A stop; the record then, and whether the server's log shows A's report."""
    logged = log.stat().st_size
    theirs.tell("A.go")
    os.killpg(first.pid, signal.SIGCONT)
    _await(lambda: theirs.said("A.returning") or first.poll() is not None, "A did not wake up", theirs)
    _stop(first)
    with log.open("rb") as lines:
        lines.seek(logged)
        sent = re.search(theirs.peer.sent, lines.read().decode(errors="replace")) is not None
    return theirs.record(), sent


def _result(record: _Record, *, sent: bool) -> str:
    """ "not sent" is a worker that noticed by itself; "disturbed" a run of B that was ended, and not by a success."""
    if record.done:
        return "accepted"
    if not record.held:
        return "disturbed"
    return "refused" if sent else "not sent"


def _await(holds: Callable[[], bool], otherwise: str, theirs: _Play) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise Unplayable(f"{otherwise}: {theirs.tail()}")
        time.sleep(LOOK_SECONDS)


def _freeze(process: subprocess.Popen[bytes]) -> None:
    """SIGSTOP the whole group, as a stalled machine would stop it, and see that it stands."""
    os.killpg(process.pid, signal.SIGSTOP)
    deadline = time.monotonic() + STOP_SECONDS
    while Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        if time.monotonic() > deadline:
            raise Unplayable("worker A could not be stopped")
        time.sleep(LOOK_SECONDS)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, on which every peer lets its running job end and sends what it has to send."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
