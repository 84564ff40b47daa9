"""Workers as processes, what they did, and waiting for what has to come."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fencerow.ops import jobs
from fencerow.testing.sessions import PATIENCE_SECONDS
from fencerow.testing.space import Space
from fencerow.types import NewJob

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
_tick = threading.Event()


def until(look: Callable[[], T], what: str, *, seconds: float = PATIENCE_SECONDS) -> T:
    """The first true answer of *look*; fails when it does not come."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"did not come: {what}"
        _tick.wait(0.01)
    return found


class Effect(NamedTuple):
    """One line of what handlers did."""

    job: int
    generation: int
    attempt: int
    pid: int
    what: str


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int, *, running: str = "") -> list[int]:
    """Live children of a process whose command line holds *running*."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and parent_of(int(entry.name)) == pid and alive(int(entry.name)):
            try:
                line = (entry / "cmdline").read_bytes().decode().replace("\0", " ")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if running in line:
                found.append(int(entry.name))
    return found


@dataclass
class Worker:
    """A worker process, or a supervisor with its workers."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def renewer(self) -> int:
        """Pid of its renewer."""
        return until(lambda: children(self.pid, running="fencerow.renewer"), "a renewer")[0]

    @property
    def said(self) -> str:
        return self.log.read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Its exit code, once it ends by itself."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end; it said:\n{self.said}") from None


@dataclass
class Place:
    """A space, a folder for effects and gates, and the workers that run there."""

    space: Space
    folder: Path
    workers: list[Worker] = field(default_factory=list)

    def enqueue(self, task: str, count: int = 1, *, payload: str = "{}", **more: Any) -> list[int]:
        """Ids of new jobs."""
        made = [NewJob(task, payload, **more) for _ in range(count)]
        return [answer.id for answer in self.space.run(jobs.enqueue(made))]

    def worker(
        self, *arguments: str, wait: bool = True, dsn: str | None = None, group: bool = False
    ) -> Worker:
        """Start one; *wait* until it serves; in a process *group* of its own if asked."""
        log = self.folder / f"log-{len(self.workers)}"
        environment = {
            **os.environ,
            "FENCEROW_DSN": dsn or self.space.dsn,
            "PLACE": str(self.folder),
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        }
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "fencerow", "worker", "tests.worker.apps.jobs:app", *arguments],
                stdout=stream,
                stderr=stream,
                env=environment,
                cwd=ROOT,
                process_group=0 if group else None,
            )
        worker = Worker(process, log)
        self.workers.append(worker)
        if wait:
            try:
                until(lambda: " serves " in worker.said or process.poll() is not None, "a worker that serves")
            except AssertionError as error:
                raise AssertionError(f"{error}; it said:\n{worker.said}") from None
            assert process.poll() is None, worker.said
        return worker

    def open(self, gate: str) -> None:
        (self.folder / f"gate-{gate}").touch()

    def effects(self, what: str = "") -> list[Effect]:
        try:
            lines = (self.folder / "effects").read_text().splitlines()
        except FileNotFoundError:
            return []
        rows = [line.split(" ", 4) for line in lines]
        return [
            Effect(int(row[0]), int(row[1]), int(row[2]), int(row[3]), row[4])
            for row in rows
            if what in row[4]
        ]

    def seen(self, what: str, count: int = 1) -> list[Effect]:
        """The effects of a kind, once there are *count* of them."""
        try:
            until(lambda: len(self.effects(what)) >= count, f"{count} times {what}")
        except AssertionError as error:
            said = "\n".join(worker.said for worker in self.workers)
            raise AssertionError(f"{error}; states {self.states()}\n{said}") from None
        return self.effects(what)

    def states(self) -> dict[int, str]:
        return dict(self.space.rows("SELECT id, state FROM fencerow.jobs ORDER BY id"))

    def all_in(self, state: str, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until every job is in a state."""
        try:
            until(lambda: set(self.states().values()) == {state}, f"all {state}", seconds=seconds)
        except AssertionError as error:
            said = "\n".join(worker.said for worker in self.workers)
            raise AssertionError(f"{error}; states {self.states()}\n{said}") from None

    def attempts(self, job: int) -> list[tuple[int, str]]:
        """(generation, kind) of each attempt that did not complete."""
        return [
            (row[0], row[1])
            for row in self.space.rows(
                "SELECT generation, kind FROM fencerow.attempt WHERE job_id = %s ORDER BY 1", (job,)
            )
        ]

    def close(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGCONT)
                worker.process.kill()
            worker.process.wait()
        # Processes of suspects lead their own sessions and end by themselves when their database is gone or idle.
        for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]:
            try:
                place = f"PLACE={self.folder}".encode()
                if place in (Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")) and pid != os.getpid():
                    os.kill(pid, signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
