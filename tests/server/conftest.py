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


def until_left(data: Path) -> None:
    until(lambda: not working_in(data), "the server's processes are gone")


def stop_all(folder: Path) -> None:
    for place in folder.iterdir() if folder.is_dir() else ():
        if (place / "use.lock").exists():
            server.stop(place.name, now=True)
        until_left(place / "data")


@pytest.fixture
def new_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A FENCEROW_HOME that does not exist yet; its servers are stopped afterwards."""
    folder = tmp_path / "home"
    monkeypatch.setenv("FENCEROW_HOME", str(folder))
    yield folder
    stop_all(folder)


@pytest.fixture(scope="session")
def made_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that the tests hand on to each other: creating one is most of what such a test costs."""
    cluster = Cluster(tmp_path_factory.mktemp("made"))
    cluster.init()
    return cluster.data


@pytest.fixture
def home(new_home: Path, made_data: Path) -> Iterator[Path]:
    """A FENCEROW_HOME with the data of an embedded server that ran before."""
    place = new_home / "default"
    place.mkdir(parents=True, mode=0o700)
    made_data.rename(place / "data")
    yield new_home
    stop_all(new_home)
    (place / "data").rename(made_data)


def installation(kind: str) -> Binaries:
    if kind == "default":
        return find_binaries()
    if not DEBIAN_15.is_dir():
        pytest.skip(f"no {DEBIAN_15}")
    if os.environ.get("FENCEROW_PG_BIN") == str(DEBIAN_15):
        pytest.skip("the default is PostgreSQL 15 already")
    return find_binaries(DEBIAN_15)


@pytest.fixture(params=["default", "15"])
def binaries(request: pytest.FixtureRequest) -> Binaries:
    """The installation that Fencerow finds, and Debian's PostgreSQL 15."""
    return installation(request.param)


@pytest.fixture(scope="module", params=["default", "15"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for the tests of a module that leave it able to start."""
    cluster = Cluster(tmp_path_factory.mktemp("shared"), binaries=installation(request.param))
    yield cluster
    cluster.remove()


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
