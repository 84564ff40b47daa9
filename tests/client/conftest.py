"""An app over the space of the test, closed before the space is emptied."""

from collections.abc import AsyncIterator, Iterator

import pytest

from fencerow import App, Task
from fencerow.testing.space import Space


@pytest.fixture
def app(space: Space) -> Iterator[App]:
    with App(space.dsn, schema=space.schema) as app:
        yield app


@pytest.fixture
async def loop_app(space: Space) -> AsyncIterator[App]:
    async with App(space.dsn, schema=space.schema) as app:
        yield app


def note(text: str, value: object = None) -> None:
    """A handler for tests that only enqueue."""


@pytest.fixture
def task(app: App) -> Task[..., None]:
    return app.task(name="note")(note)


@pytest.fixture
def loop_task(loop_app: App) -> Task[..., None]:
    return loop_app.task(name="note")(note)
