"""Waiting for a result: whatever became of the job, and however late one asks (C076)."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from fencerow import App, Cancel, Fail, Handle, Job
from fencerow.errors import (
    ConfigError,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    JobGone,
    ResultTimeout,
    UsageError,
)
from fencerow.testing import adrain, drain
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space


@dataclass
class Line:
    day: date
    tags: tuple[str, ...] = ()


def test_a_result_comes_back_as_the_return_annotation_says(app: App) -> None:
    @app.task
    def lines() -> list[Line] | Fail:
        return [Line(date(2026, 5, 1), ("a", "b"))]

    @app.task
    def plain():  # type: ignore[no-untyped-def]
        return {"pair": (1, 2)}

    @app.task
    def nothing() -> None: ...

    handles: list[Handle[Any]] = [lines.enqueue(), plain.enqueue(), nothing.enqueue()]
    drain(app)

    assert [handle.result(timeout=0) for handle in handles] == [
        [Line(date(2026, 5, 1), ("a", "b"))],
        {"pair": [1, 2]},
        None,
    ]
    # Another program that knows the id alone, and one that does not know the task.
    assert app.handle(handles[0].id, lines).result(timeout=0) == [Line(date(2026, 5, 1), ("a", "b"))]
    with App(app.dsn, schema=app.schema) as stranger:
        assert stranger.handle(handles[0].id).result(timeout=0) == [{"day": "2026-05-01", "tags": ["a", "b"]}]
    with pytest.raises(UsageError, match="is of task"):
        app.handle(handles[0].id, plain).result(timeout=0)


def test_failed_cancelled_and_late_have_errors_of_their_own(app: App) -> None:
    @app.task(max_attempts=1)
    def breaks() -> int:
        raise ValueError("bad luck\nsecond line")

    @app.task
    def gives_up() -> int | Fail:
        return Fail("no such customer")

    @app.task
    def stops() -> int | Cancel:
        return Cancel("not wanted")

    @app.task(queue="nobody")
    def waits() -> int:
        return 1

    broken, given_up, stopped, waiting = (task.enqueue() for task in (breaks, gives_up, stops, waits))
    drain(app, queues=["default"])

    with pytest.raises(JobFailed, match=r"bad luck$") as failure:
        broken.result(timeout=1)
    assert (failure.value.kind, failure.value.job_id) == ("failed", broken.id)
    assert "second line" in failure.value.error
    with pytest.raises(JobFailed, match="no such customer"):
        given_up.result()
    with pytest.raises(JobCancelled, match="not wanted"):
        stopped.result()
    with pytest.raises(TimeoutError) as late:
        waiting.result(timeout=0.05)
    assert type(late.value) is ResultTimeout
    assert waiting.cancel(reason="changed my mind") == "cancelled"
    with pytest.raises(JobCancelled, match="changed my mind"):
        waiting.result(timeout=0)


def test_after_a_redrive_the_newest_run_counts_and_after_a_purge_the_job_is_gone(
    app: App, space: Space, clock: Clock
) -> None:
    works = False

    @app.task(max_attempts=1, keep=60)
    def sometimes() -> str:
        if not works:
            raise ValueError("not yet")
        return "second run"

    handle = sometimes.enqueue()
    drain(app)
    with pytest.raises(JobFailed):
        handle.result(timeout=0)
    app.redrive(handle.id)
    with pytest.raises(ResultTimeout):
        handle.result(timeout=0)
    works = True
    drain(app)
    assert handle.result(timeout=0) == "second run"

    clock.advance(3600)
    space.rows("SELECT * FROM fencerow.purge()")
    with pytest.raises(JobGone, match=f"no job {handle.id}"):
        handle.result(timeout=5)
    with pytest.raises(JobGone):
        app.handle(12_345).result()


def test_an_enqueue_that_is_not_committed_is_no_job_yet(app: App, space: Space) -> None:
    @app.task
    def later() -> int:
        return 1

    connection = space.connect(autocommit=False)
    handle = later.using(connection=connection).enqueue()

    with pytest.raises(JobGone, match="after your own commit"):
        handle.result(timeout=1)
    connection.commit()
    with pytest.raises(ResultTimeout):
        handle.result(timeout=0)


async def test_a_wait_begun_before_the_job_ends_gets_its_value(app: App) -> None:
    gate = threading.Event()

    @app.task
    def gated(job: Job) -> int:
        assert gate.wait(20)
        return job.id

    handle = await gated.aenqueue()
    async with app.worker():
        waiting = asyncio.ensure_future(handle.aresult(timeout=20))
        with pytest.raises(UsageError, match="aresult"):
            handle.result(timeout=0)
        assert not waiting.done()
        gate.set()
        assert await waiting == handle.id


async def test_a_wait_outlives_every_connection_it_had(app: App, space: Space) -> None:
    """There is no listener to lose, and a connection that is lost is opened again."""

    @app.task(queue="slow")
    def slow() -> str:
        return "here"

    handle = await slow.aenqueue()
    waiting = asyncio.ensure_future(handle.aresult(timeout=30))
    ended = 0
    ending = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'fencerow'"
    )
    while ended < 3:
        ended += len(await asyncio.to_thread(space.rows, ending))
    assert not waiting.done()
    await adrain(app)

    assert await waiting == "here"


def test_an_annotation_that_json_cannot_fill_says_so(app: App) -> None:
    class Opaque:
        pass

    def made() -> Opaque:
        return 5  # type: ignore[return-value]

    strange = app.task(made)

    @app.task
    def changed() -> int:
        return "no number"  # type: ignore[return-value]

    handles: list[Handle[Any]] = [strange.enqueue(), changed.enqueue()]
    drain(app)

    with pytest.raises(ConfigError, match="Opaque, which has no JSON form"):
        handles[0].result(timeout=0)
    with pytest.raises(InvalidPayload, match="does not fit its annotation"):
        handles[1].result(timeout=0)
