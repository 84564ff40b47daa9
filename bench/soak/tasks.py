"""
What the long runs execute. Every call is written to an effect log: one file per process, one line per write, O_APPEND.

A call begins at the moment before ``job.check()`` let it go on: a process that is frozen after that moment has begun in
time, however late its line is written. The effect itself is a file made with O_EXCL, named by the idempotency key: a
destination that tells repeats apart.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
import time
from types import TracebackType
from typing import Any, Self

from bench.soak.places import FOLDER_VARIABLE, QUEUES, ledger_path
from fencerow import App, AsyncJob, Cancel, Fail, Job, Retry, Snooze
from fencerow.clock import boottime
from fencerow.errors import ClaimLost, Unavailable

BACKOFF = (0.1, 1.0)
SPENT_ATTEMPTS = 3

app = App()


class _Log:
    """The effect log of this process, opened at its first call."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._lock = threading.Lock()

    def write(self, line: dict[str, Any]) -> None:
        pid = os.getpid()
        with self._lock:
            if pid not in self._files:
                path = os.path.join(os.environ[FOLDER_VARIABLE], "effects", f"{pid}-{time.time_ns()}.jsonl")
                self._files[pid] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._files[pid], json.dumps(line, separators=(",", ":")).encode() + b"\n")


_log = _Log()


class Call:
    """One call of a handler. Raises ClaimLost at its beginning and before its effect when it came too late."""

    def __init__(self, job: Job | AsyncJob, n: int) -> None:
        self.job = job
        self.n = n
        self.outcome = "done"
        self.phase = "handler"
        self._effect: dict[str, Any] = {}

    def __enter__(self) -> Self:
        line = self._line("begin")
        try:
            self.job.check()
        except ClaimLost:
            _log.write({**line, "e": "stopped"})
            raise
        _log.write(line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outcome = self.outcome if kind is None or self.outcome != "done" else f"raised {kind.__name__}"
        _log.write({**self._line("end"), **self._effect, "outcome": outcome, "phase": self.phase})

    def _line(self, event: str) -> dict[str, Any]:
        # Wall time beside boot time: the database on this machine writes wall time.
        job = self.job
        return {
            "e": event,
            "t": boottime(),
            "w": time.time(),
            "n": self.n,
            "job": job.id,
            "gen": job.generation,
            "attempt": job.attempt,
            "key": job.idempotency_key,
            "pid": os.getpid(),
        }

    def effect(self) -> None:
        """Act outside, as the owner; the destination applies it once per key."""
        at = time.time()
        self.job.check()
        folder = os.path.join(os.environ[FOLDER_VARIABLE], "ledger")
        path = os.path.join(folder, ledger_path(self.job.idempotency_key))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            applied = True
        except FileExistsError:
            applied = False
        self._effect = {"effect": at, "applied": applied}


@app.task(name="plain", queue=QUEUES[0], backoff=BACKOFF)
async def plain(job: AsyncJob, n: int) -> int:
    """An effect and nothing else."""
    with Call(job, n) as call:
        call.effect()
        return n


@app.task(name="nap", queue=QUEUES[0], backoff=BACKOFF)
async def nap(job: AsyncJob, n: int, ms: int) -> int:
    """Waits on the loop before its effect."""
    with Call(job, n) as call:
        await asyncio.sleep(ms / 1000)
        call.effect()
        return n


@app.task(name="thread", queue=QUEUES[1], backoff=BACKOFF)
def thread(job: Job, n: int, ms: int) -> int:
    """Waits in a thread before its effect."""
    with Call(job, n) as call:
        time.sleep(ms / 1000)
        call.effect()
        return n


@app.task(name="progress", queue=QUEUES[0], backoff=BACKOFF)
async def progress(job: AsyncJob, n: int, ms: int) -> int:
    """Stores its progress under the fence, twice."""
    with Call(job, n) as call:
        call.phase = "progress"
        await job.progress(0.3, "begun")
        await asyncio.sleep(ms / 1000)
        await job.progress(0.9)
        call.phase = "handler"
        call.effect()
        return n


_BUSINESS = "INSERT INTO public.soak_business (job_id, n, generation) VALUES (%s, %s, %s)"


@app.task(name="commit", queue=QUEUES[0], backoff=BACKOFF)
async def commit(job: AsyncJob, n: int, ms: int) -> None:
    """A business row and the completion in one transaction."""
    with Call(job, n) as call:
        await asyncio.sleep(ms / 1000)
        call.phase = "entry"
        async with job.commit() as tx:
            call.phase = "body"
            await tx.execute(_BUSINESS, (job.id, n, job.generation))
            tx.result = n
            call.phase = "commit"


@app.task(name="commit_thread", queue=QUEUES[1], backoff=BACKOFF)
def commit_thread(job: Job, n: int, ms: int) -> None:
    """The same in a thread."""
    with Call(job, n) as call:
        time.sleep(ms / 1000)
        call.phase = "entry"
        with job.commit() as tx:
            call.phase = "body"
            tx.execute(_BUSINESS, (job.id, n, job.generation))
            tx.result = n
            call.phase = "commit"


@app.task(name="unavailable", queue=QUEUES[0], backoff=BACKOFF)
async def unavailable(job: AsyncJob, n: int) -> int:
    """Something it needs is away at its first attempt."""
    with Call(job, n) as call:
        if job.attempt == 1:
            call.outcome = "unavailable"
            raise Unavailable("the shop does not answer")
        call.effect()
        return n


@app.task(name="again", queue=QUEUES[1], backoff=BACKOFF)
def again(job: Job, n: int, ms: int) -> Retry | int:
    """Asks for another attempt twice."""
    with Call(job, n) as call:
        time.sleep(ms / 1000)
        if job.attempt < 3:
            call.outcome = "retry"
            return Retry(0.05, reason="not yet")
        call.effect()
        return n


@app.task(name="snoozed", queue=QUEUES[0], backoff=BACKOFF)
async def snoozed(job: AsyncJob, n: int) -> Snooze | int:
    """Not now, at its first claim."""
    with Call(job, n) as call:
        if job.generation == 1:
            call.outcome = "snooze"
            return Snooze(0.1, reason="shop closed")
        call.effect()
        return n


@app.task(name="refused", queue=QUEUES[0], backoff=BACKOFF)
async def refused(job: AsyncJob, n: int) -> Fail:
    """Ends failed by its own decision."""
    with Call(job, n) as call:
        call.outcome = "fail"
        return Fail("no such customer")


@app.task(name="withdrawn", queue=QUEUES[0], backoff=BACKOFF)
async def withdrawn(job: AsyncJob, n: int) -> Cancel:
    """Ends cancelled by its own decision."""
    with Call(job, n) as call:
        call.outcome = "cancel"
        return Cancel("order withdrawn")


@app.task(name="spent", queue=QUEUES[1], backoff=BACKOFF, max_attempts=SPENT_ATTEMPTS)
def spent(job: Job, n: int) -> None:
    """Raises at every attempt, until none is left."""
    with Call(job, n) as call:
        call.outcome = "error"
        raise LookupError("always")


@app.task(name="once", queue=QUEUES[1], backoff=BACKOFF, on_lost="fail")
def once(job: Job, n: int, ms: int) -> int:
    """Must not be repeated blindly: a loss ends it for a person to decide."""
    with Call(job, n) as call:
        time.sleep(ms / 1000)
        call.effect()
        return n


# For memory, cycles and latency: no effect log.


@app.task(name="noop", queue="bench")
async def noop(filler: str) -> None:
    """Nothing."""


@app.task(name="small", queue="bench")
async def small(words: list[str]) -> dict[str, int]:
    """A little work and a result."""
    return {word: len(word) for word in words}


@app.task(name="small_thread", queue="bench")
def small_thread(words: list[str]) -> dict[str, int]:
    """The same in a thread."""
    return {word: len(word) for word in words}


@app.task(name="wait", queue="bench")
async def wait(seconds: float) -> float:
    """Waits; its result is the wall time at which it started."""
    began = time.time()
    await asyncio.sleep(seconds)
    return began


@app.task(name="census", queue="bench")
async def census() -> dict[str, int]:
    """What the worker's own process holds, told by itself."""
    gc.collect()
    return {
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "objects": len(gc.get_objects()),
    }
