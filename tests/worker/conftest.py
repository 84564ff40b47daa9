"""A place for workers: the space of the test, a folder, and processes that end with the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fencerow.testing.space import Space
from tests.worker.life import Place


@pytest.fixture
def place(space: Space, tmp_path: Path) -> Iterator[Place]:
    made = Place(space, tmp_path)
    yield made
    made.close()
