"""An app on the space of the test."""

from collections.abc import Iterator

import pytest

from fencerow import App
from fencerow.testing.space import Space


@pytest.fixture
def app(space: Space) -> Iterator[App]:
    with App(space.dsn, schema=space.schema) as app:
        yield app
        app.abandon_loops(ended=False)
