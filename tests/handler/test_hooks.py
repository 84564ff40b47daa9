"""app.around: what every attempt is wrapped in."""

import contextvars
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest

from fencerow import App, AsyncJob, Job, UsageError
from fencerow.testing import adrain, drain

bound: contextvars.ContextVar[int] = contextvars.ContextVar("bound")


async def test_hooks_surround_async_and_sync_attempts_in_their_order(app: App) -> None:
    told: list[str] = []

    @app.around
    @contextmanager
    def outer(job: AsyncJob | Job) -> Iterator[None]:
        token = bound.set(job.id)
        told.append(f"outer in {job.task}")
        yield
        told.append(f"outer out {job.task}")
        bound.reset(token)

    @app.around
    @contextmanager
    def inner(job: AsyncJob | Job) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            told.append(f"inner saw {error}")
            raise

    @app.task(name="a")
    async def on_loop() -> None:
        told.append(f"a runs bound {bound.get()}")

    @app.task(name="t")
    def in_thread(job: Job) -> None:
        assert bound.get() == job.id
        told.append("t runs")

    @app.task(name="x", max_attempts=1)
    def breaks() -> None:
        raise ValueError("oops")

    first = await on_loop.aenqueue()
    await in_thread.aenqueue()
    broken = await breaks.aenqueue()
    drained = await adrain(app, concurrency=1)

    assert drained.failed == (broken.id,)
    assert told == [
        *("outer in a", f"a runs bound {first.id}", "outer out a"),
        *("outer in t", "t runs", "outer out t"),
        *("outer in x", "inner saw oops"),
    ]


async def test_an_async_hook_surrounds_async_handlers_and_is_refused_in_threads(app: App) -> None:
    told: list[str] = []

    @app.around
    @asynccontextmanager
    async def span(job: AsyncJob | Job) -> AsyncIterator[None]:
        told.append("in")
        yield
        told.append("out")

    @app.task
    async def on_loop() -> str:
        return "fine"

    @app.task(max_attempts=1)
    def in_thread() -> None:
        told.append("must not run")

    fine, refused = await on_loop.aenqueue(), await in_thread.aenqueue()
    drained = await adrain(app)

    assert (drained.done, drained.failed) == ((fine.id,), (refused.id,))
    assert "async context manager to a sync handler" in drained.errors[refused.id]
    assert told == ["in", "out"]


def test_what_a_hook_raises_is_the_attempts_error(app: App) -> None:
    @app.around
    def broken(job: AsyncJob | Job) -> Any:
        raise LookupError("no tracer")

    ran: list[int] = []

    @app.task(max_attempts=1)
    def task() -> None:
        ran.append(1)

    handle = task.enqueue()
    drained = drain(app)

    assert drained.failed == (handle.id,)
    assert "LookupError: no tracer" in drained.errors[handle.id]
    assert ran == []


async def test_a_hook_cannot_swallow_what_a_handler_raises(app: App) -> None:
    @app.around
    def quiet(job: AsyncJob | Job) -> suppress:
        return suppress(ValueError)

    @app.task(max_attempts=1)
    def sync_one() -> None:
        raise ValueError("sync")

    @app.task(max_attempts=1)
    async def async_one() -> None:
        raise ValueError("async")

    ids = {(await task.aenqueue()).id for task in (sync_one, async_one)}
    drained = await adrain(app)

    assert set(drained.failed) == ids


async def test_a_payload_that_does_not_fit_is_seen_by_hooks(app: App) -> None:
    seen: list[str] = []

    @app.around
    @contextmanager
    def look(job: AsyncJob | Job) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            seen.append(type(error).__name__)
            raise

    @app.task(name="strict")
    async def strict(n: int) -> None: ...

    with App(app.dsn, schema=app.schema) as old:

        @old.task(name="strict")
        async def lax(n: str) -> None: ...

        handle = await lax.aenqueue("x")
        await old.leave_loop()
    drained = await adrain(app)

    assert drained.failed == (handle.id,)
    assert seen == ["InvalidPayload"]


def test_a_hook_that_is_none_is_refused(app: App) -> None:
    with pytest.raises(UsageError, match="hook of type int"):
        app.around(5)  # type: ignore[type-var]
