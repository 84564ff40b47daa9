"""Homes and clusters that leave nothing behind."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencerow import server
from fencerow.server import Binaries, Cluster, find_binaries
from fencerow.server.postmaster import working_in
from tests.server.processes import until

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A FENCEROW_HOME whose servers are stopped afterwards."""
    folder = tmp_path / "home"
    monkeypatch.setenv("FENCEROW_HOME", str(folder))
    yield folder
    if folder.is_dir():
        for place in folder.iterdir():
            if (place / "use.lock").exists():
                server.stop(place.name, now=True)
            until(lambda place=place: not working_in(place / "data"), "the server's processes are gone")


@pytest.fixture(params=["default", "15"])
def binaries(request: pytest.FixtureRequest) -> Binaries:
    """The installation that Fencerow finds, and Debian's PostgreSQL 15."""
    if request.param == "default":
        return find_binaries()
    if not DEBIAN_15.is_dir():
        pytest.skip(f"no {DEBIAN_15}")
    if os.environ.get("FENCEROW_PG_BIN") == str(DEBIAN_15):
        pytest.skip("the default is PostgreSQL 15 already")
    return find_binaries(DEBIAN_15)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Build clusters, by default in a folder of the test, that are removed afterwards."""
    made: list[Cluster] = []

    def build(folder: Path | None = None, **options: object) -> Cluster:
        options.setdefault("settings", {"fsync": "off", "shared_buffers": "16MB"})
        cluster = Cluster(folder or tmp_path / "pg", **options)  # type: ignore[arg-type]
        made.append(cluster)
        return cluster

    yield build
    for cluster in made:
        cluster.remove()
