"""
The pytest plugin: fixtures ``fencerow_app``, ``fencerow_cluster``, ``space`` and ``clock``.

One throwaway PostgreSQL per test process (FENCEROW_PG_BIN chooses its programs), started at the first use and removed
at the end.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Every run of pytest where Fencerow is installed imports this module, so the driver waits until a fixture is used.
if TYPE_CHECKING:
    from fencerow.app import App
    from fencerow.server import Cluster
    from fencerow.testing.clock import Clock
    from fencerow.testing.space import Space

SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "120",
    "max_wal_size": "256MB",
}
"""For a server whose data need not outlive it. Everything that decides visibility and locks is as in production."""


@pytest.fixture(scope="session")
def fencerow_cluster() -> Iterator[Cluster]:
    """A running server of this test process alone, with the databases ``postgres`` and ``fencerow``."""
    from fencerow.server import Cluster

    # A short path, because a socket's path is short.
    folder = Path(tempfile.mkdtemp(prefix="fencerow-test-"))
    cluster = Cluster(folder / "pg", settings=SETTINGS)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.remove()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def _fencerow_space(fencerow_cluster: Cluster) -> Iterator[Space]:
    from fencerow.testing.space import Space

    space = Space(fencerow_cluster.dsn("fencerow"))
    yield space
    space.close()


@pytest.fixture
def space(_fencerow_space: Space) -> Iterator[Space]:
    """An empty migrated space (database and schema ``fencerow``); what the test opens is closed after it."""
    _fencerow_space.empty()
    yield _fencerow_space
    _fencerow_space.release()


@pytest.fixture
def clock(space: Space) -> Iterator[Clock]:
    """The clock of ``space``, which the test moves."""
    from fencerow.testing.clock import Clock

    moved = Clock(space)
    moved.install()
    yield moved
    moved.restore()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``fencerow_app = "shop.jobs:app"`` in the configuration of pytest."""
    parser.addini("fencerow_app", "the App that the fixture fencerow_app gives, as module:name", default="")


@pytest.fixture
def fencerow_app(space: Space, pytestconfig: pytest.Config) -> Iterator[App]:
    """
    Your App (ini option ``fencerow_app``, else a new one) on the empty space of the test instead of its own database.
    After the test its connections are closed and it means its own database again.
    """
    from fencerow.app import App
    from fencerow.loading import load_app

    ref = str(pytestconfig.getini("fencerow_app"))
    app = load_app(ref) if ref else App(space.dsn, schema=space.schema)
    own = app.dsn, app.schema
    app.close()
    app.move(space.dsn, schema=space.schema)
    try:
        yield app
    finally:
        app.abandon_loops(ended=False)
        app.close()
        app.move(own[0], schema=own[1])
