"""A worker inside the test's own event loop, where a test looks at its parts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fencerow import App
from fencerow.ops import jobs
from fencerow.testing.space import Space
from fencerow.types import NewJob
from fencerow.worker.service import Service
from fencerow.worker.settings import WorkerSettings
from tests.worker import life

T = TypeVar("T")


@asynccontextmanager
async def serving(
    app: App, *, grace: float = 0.2, lease: float = 10.0, **more: Any
) -> AsyncIterator[Service]:
    """A Service that claims, stopped at the end."""
    service = Service(app, WorkerSettings(app_ref="none:app", lease=lease, grace=grace, **more))
    running = asyncio.create_task(service.run())
    try:
        await soon(lambda: service.runner is not None or running.done(), "its start")
        yield service
    finally:
        service.stopping.set()
        code = await asyncio.wait_for(running, 30)
        app.close()
    assert code == 0, service.error


async def soon(look: Callable[[], T], what: str, *, seconds: float = 20.0) -> T:
    """As until(), without standing in the loop's way."""
    return await asyncio.to_thread(life.until, look, what, seconds=seconds)


def put(space: Space, task: str, count: int = 1, *, payload: str = "{}", **more: Any) -> list[int]:
    """Ids of new jobs."""
    made = [NewJob(task, payload, **more) for _ in range(count)]
    return [answer.id for answer in space.run(jobs.enqueue(made))]


def states(space: Space) -> dict[int, str]:
    return dict(space.rows("SELECT id, state FROM fencerow.jobs ORDER BY id"))


def settled(space: Space) -> bool:
    """Whether nothing is ready or runs."""
    return not set(states(space).values()) & {"ready", "running"}


def attempts(space: Space, job: int) -> list[tuple[int, int, str]]:
    """(generation, attempt, kind) of each attempt that did not complete."""
    rows = space.rows(
        "SELECT generation, attempt, kind FROM fencerow.attempt WHERE job_id = %s ORDER BY 1", (job,)
    )
    return [(row[0], row[1], row[2]) for row in rows]


def error_of(space: Space, job: int) -> str:
    """The last error text of a job."""
    return str(
        space.value(
            "SELECT error FROM fencerow.attempt WHERE job_id = %s ORDER BY generation DESC LIMIT 1", (job,)
        )
    )
