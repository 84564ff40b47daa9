"""A worker inside another asyncio program."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencerow import App, AsyncJob, Job
from fencerow.errors import ConfigError, FencerowError, NotInstalled
from fencerow.testing.space import Space
from fencerow.worker.inside import reference


def leases(space: Space) -> list[tuple[str]]:
    return space.rows("SELECT worker FROM fencerow.lease")


def renewers() -> set[str]:
    """Processes that this one started and that live."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return {pid for pid in children if b"renewer" in Path(f"/proc/{pid}/cmdline").read_bytes()}


async def test_a_worker_serves_inside_the_block_and_drains_at_its_end(app: App, space: Space) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    running, gate = asyncio.Event(), asyncio.Event()

    @app.task
    async def quick(job: AsyncJob) -> int:
        return job.id

    @app.task
    async def slow() -> str:
        running.set()
        await gate.wait()
        return "finished in the grace"

    async with app.worker(concurrency=2) as worker:
        handle = await quick.aenqueue()
        assert await handle.aresult(timeout=20) == handle.id
        late = await slow.aenqueue()
        await running.wait()
        states = [worker.running]
        assert leases(space) == [(worker.name,)]
        assert {n: signal.getsignal(n) for n in before} == before
        gate.set()

    states.append(worker.running)
    assert states == [True, False]
    assert await late.aresult(timeout=0) == "finished in the grace"
    assert leases(space) == []
    assert renewers() == set()


async def test_what_does_not_end_within_the_grace_goes_to_others_uncharged(app: App, space: Space) -> None:
    running = asyncio.Event()

    @app.task
    async def endless() -> None:
        running.set()
        await asyncio.Event().wait()

    handle = await endless.aenqueue()
    async with app.worker(grace=0):
        await running.wait()

    assert space.rows("SELECT state, attempt FROM fencerow.jobs WHERE id = %s", (handle.id,)) == [
        ("ready", 0)
    ]


async def test_a_cancelled_program_gives_its_jobs_back(app: App, space: Space) -> None:
    running = asyncio.Event()

    @app.task
    async def endless() -> None:
        running.set()
        await asyncio.Event().wait()

    async def program() -> None:
        async with app.worker(grace=0):
            await asyncio.Event().wait()

    await endless.aenqueue()
    task = asyncio.create_task(program())
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert space.rows("SELECT state FROM fencerow.jobs") == [("ready",)]
    assert leases(space) == []


async def test_a_worker_that_cannot_start_raises_where_it_is_asked_for(space: Space) -> None:
    async with App(space.dsn, schema="nowhere") as app:
        with pytest.raises(NotInstalled):
            async with app.worker():
                pytest.fail("it began")
        assert renewers() == set()
    wrong = space.dsn.replace("/fencerow?", "/no_such_database?")
    assert wrong != space.dsn
    async with App(wrong) as app:
        with pytest.raises(FencerowError, match="does not exist"):
            async with app.worker():
                pytest.fail("it began")
        with pytest.raises(ConfigError, match="one string"):
            app.worker(queues="mail")


async def test_an_error_of_the_body_passes_and_the_worker_is_gone(app: App, space: Space) -> None:
    with pytest.raises(ZeroDivisionError):
        async with app.worker():
            raise ZeroDivisionError
    assert leases(space) == []


async def test_a_lifespan_runs_while_the_server_does(app: App) -> None:
    """What Starlette and FastAPI do with a lifespan: call it with the application, and enter the result."""

    @app.task(queue="web")
    def where(job: Job) -> str:
        return threading.current_thread().name

    lifespan = app.lifespan(queues={"web": 3})
    handle = await where.aenqueue()
    async with lifespan(object()):
        assert (await handle.aresult(timeout=20)).startswith("fencerow")


found_by_name = App("postgresql:///nowhere")


@pytest.fixture
def gone() -> Iterator[None]:
    yield
    found_by_name.close()


def test_an_app_finds_the_name_under_which_it_can_be_imported(gone: None) -> None:
    assert reference(found_by_name) == f"{__name__}:found_by_name"
    assert reference(App("postgresql:///nowhere")) == ""
