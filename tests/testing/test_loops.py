"""Connections of event loops: closed with the app, also when their loop ended without a word."""

import asyncio
import gc
import time
import warnings

import pytest

from fencerow import App, Task
from fencerow.testing.sessions import PATIENCE_SECONDS
from fencerow.testing.space import Space

OURS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencerow'"


@pytest.mark.parametrize("how", ["close", "forgotten"])
def test_a_loop_that_ended_leaves_no_connection(space: Space, how: str) -> None:
    app = App(space.dsn, schema=space.schema)

    @app.task(name="note")
    async def note() -> None: ...

    asyncio.run(_enqueue(note))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if how == "close":
            app.close()
        else:
            del app, note
            gc.collect()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while space.value(OURS):
        assert time.monotonic() < deadline, "a connection is left"


async def _enqueue(task: Task[[], None]) -> None:
    await task.aenqueue()
