"""Waiting for a job to end: by looking again with growing pauses, so that there is no listener to lose."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar
from typing import Protocol as Structure

from fencerow import codec, limits
from fencerow.clock import boottime
from fencerow.errors import (
    JobCancelled,
    JobFailed,
    JobGone,
    ResultTimeout,
    StoreError,
    UsageError,
)
from fencerow.handle import Handle, Owner
from fencerow.ops import jobs
from fencerow.store.classify import is_configuration
from fencerow.store.protocols import MAY_PASS, Pause, Protocol
from fencerow.store.stores import AsyncStore, SyncStore
from fencerow.task import options
from fencerow.task.task import Task
from fencerow.types import Duration, End

R = TypeVar("R")
Tasks = Mapping[str, Task[Any, Any]]

FIRST_PAUSE_SECONDS = 0.02
PAUSE_SECONDS_MAX = 0.5
PAUSE_GROWS = 1.5
AWAY_SECONDS = 60.0
"""How long a database may be away before a wait without a timeout gives up."""


class Place(Owner, Structure):
    """A space, and the tasks that are known there; an App."""

    tasks: dict[str, Task[Any, Any]]

    def store(self) -> SyncStore: ...

    async def ready(self) -> AsyncStore: ...


class Waiting:
    """The part of App that waits for jobs to end."""

    def handle(self: Place, job_id: int, task: Task[..., R] | None = None) -> Handle[R]:
        """The handle of a job that was enqueued before, of *task* if given; nothing is looked up."""
        name = None if task is None else task.name
        return Handle(options.check_job_id(job_id), created=False, _app=self, _task=name)

    def result(self: Place, job_id: int, *, timeout: Duration | None = None, task: str | None = None) -> Any:
        """Wait for a job to end; what it returned. See Handle.result."""
        refuse_in_loop("result", "aresult")
        return self.store().follow(_wait(self, job_id, timeout, task))

    async def aresult(
        self: Place,
        job_id: int,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109 - how patient to be, as in result()
        task: str | None = None,
    ) -> Any:
        """As result, in an event loop."""
        return await (await self.ready()).follow(_wait(self, job_id, timeout, task))


def _wait(place: Place, job_id: int, timeout: Duration | None, task: str | None) -> Protocol[Any]:
    within = None
    if timeout is not None:
        within = options.seconds(timeout, "timeout", least=0, most=limits.DELAY_SECONDS_MAX)
    return wait(options.check_job_id(job_id), seconds=within, tasks=place.tasks, task=task)


def wait(job_id: int, *, seconds: float | None, tasks: Tasks, task: str | None) -> Protocol[Any]:
    """
    Wait until a job has ended; what it returned. A database that is away for a while is waited for.

    Args:
        seconds: how long; None: for as long as it takes.
        tasks: by name, for the return annotations.
        task: whose job it is said to be.

    Raises:
        JobFailed, JobCancelled, JobGone, ResultTimeout: see Handle.result.
        StoreError: the database was still away at the end.
    """
    began, pause = boottime(), FIRST_PAUSE_SECONDS
    until = None if seconds is None else began + seconds
    away: StoreError | None = None
    away_at = 0.0
    while True:
        try:
            end: End | None = yield jobs.how_ended(job_id)
            away = None
        except MAY_PASS as error:
            if is_configuration(error):
                raise
            away_at = boottime() if away is None else away_at
            away = error
        else:
            if end is None:
                raise JobGone(job_id)
            if end.outcome is not None:
                return _value(job_id, end, tasks, task)
        now = boottime()
        if until is not None and now >= until and seconds is not None:
            raise away or ResultTimeout(job_id, seconds)
        if until is None and away is not None and now >= away_at + AWAY_SECONDS:
            raise away
        yield Pause(pause if until is None else min(pause, until - now))
        pause = min(PAUSE_SECONDS_MAX, pause * PAUSE_GROWS)


def _value(job_id: int, end: End, tasks: Tasks, task: str | None) -> Any:
    if task is not None and end.task != task:
        raise UsageError(
            f"job {job_id} is of task {end.task!r}, not of {task!r}", hint="Name its own task, or none."
        )
    match end.outcome:
        case "failed":
            raise JobFailed(job_id, kind=end.kind or "failed", error=end.error or "")
        case "cancelled":
            raise JobCancelled(job_id, reason=end.error)
    if end.result is None:
        return None
    known = tasks.get(end.task)
    return codec.decode(end.result, what="result") if known is None else known.load_result(end.result)


def refuse_in_loop(name: str, instead: str) -> None:
    """Raise UsageError in a thread that runs an event loop."""
    # Even with a sync connection of the caller's: the wait for its answer would stop every other coroutine of the loop.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        f"{name}() would block the event loop that runs in this thread", hint=f"Await {instead}()."
    )
