"""Calling a handler: the job object, the hooks around the attempt, the arguments, and what it did with its own connection."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from typing import Any

from fencerow.app import App
from fencerow.errors import UsageError
from fencerow.job import AsyncJob, Job, entrusted
from fencerow.job.hold import Hold
from fencerow.store.stores import AsyncStore, SyncStore
from fencerow.task import Task

SWALLOWED = "a hook swallowed what another hook raised"


async def on_loop(app: App, task: Task[Any, Any], hold: Hold, store: AsyncStore) -> Any:
    """What an async handler returns."""
    if not app.hooks:
        return await _run_async(task, hold, store, AsyncJob(hold, store, app) if task.takes_job else None)
    job = AsyncJob(hold, store, app)
    raised: BaseException | None = None
    async with AsyncExitStack() as stack:
        for hook in app.hooks:
            entered = hook(job)
            if isinstance(entered, AbstractAsyncContextManager):
                await stack.enter_async_context(entered)
            else:
                stack.enter_context(_sync_only(entered))
        try:
            return await _run_async(task, hold, store, job)
        except BaseException as error:
            raised = error
            raise
    raise raised or RuntimeError(SWALLOWED)  # a hook looks on: it cannot make a failure a success


async def _run_async(task: Task[Any, Any], hold: Hold, store: AsyncStore, job: AsyncJob | None) -> Any:
    args, kwargs = task.load(hold.claim.payload)
    if task.takes_job:
        args = [job, *args]
    try:
        value = await task.function(*args, **kwargs)
    except BaseException:
        await entrusted.alearn(hold, store, returned=False)
        raise
    await entrusted.alearn(hold, store, returned=True)
    return value


def in_thread(app: App, task: Task[Any, Any], hold: Hold, store: SyncStore) -> Any:
    """What a sync handler returns."""
    if not app.hooks:
        return _run(task, hold, store, Job(hold, store, app) if task.takes_job else None)
    job = Job(hold, store, app)
    raised: BaseException | None = None
    with ExitStack() as stack:
        for hook in app.hooks:
            stack.enter_context(_sync_only(hook(job)))
        try:
            return _run(task, hold, store, job)
        except BaseException as error:
            raised = error
            raise
    raise raised or RuntimeError(SWALLOWED)


def _run(task: Task[Any, Any], hold: Hold, store: SyncStore, job: Job | None) -> Any:
    args, kwargs = task.load(hold.claim.payload)
    if task.takes_job:
        args = [job, *args]
    try:
        value = task.function(*args, **kwargs)
    except BaseException:
        entrusted.learn(hold, store, returned=False)
        raise
    entrusted.learn(hold, store, returned=True)
    return value


def _sync_only(entered: object) -> AbstractContextManager[Any]:
    if isinstance(entered, AbstractContextManager):
        return entered
    if isinstance(entered, AbstractAsyncContextManager):
        raise UsageError(
            "a hook gave an async context manager to a sync handler, which runs in a thread",
            hint="Give a sync one where job is a Job.",
        )
    raise UsageError(
        f"a hook returned a {type(entered).__name__}",
        hint="Put @contextmanager on it, or return a context manager.",
    )
