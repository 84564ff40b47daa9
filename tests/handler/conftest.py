"""An app on the space of the test, for handlers that a worker in the test's own process runs."""

from collections.abc import Iterator

import pytest

from fencerow import App
from fencerow.testing.space import Space


@pytest.fixture
def app(space: Space) -> Iterator[App]:
    with App(space.dsn, schema=space.schema) as app:
        yield app
        app.abandon_loops(ended=False)
