"""Under which account the server runs, and that no other account or folder is touched for it."""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencerow.server import Cluster, ServerError, find_binaries
from fencerow.server.account import SHELTER, Account, choose_account
from fencerow.server.locks import is_held
from fencerow.server.postmaster import working_in
from tests.server.processes import OWNER, SOURCES, USER, Program, keep, kept, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become other accounts")

Make = Callable[..., Cluster]
SYSTEM_PYTHON = "/usr/bin/python3"

# Owns a cluster as the account `nobody` until its standard input ends.
DROPPING_OWNER = OWNER.replace(
    "Cluster(sys.argv[1])", 'Cluster(sys.argv[1], account=Account("drop", *map(int, sys.argv[2:])))'
).replace("import json", "import json; from fencerow.server.account import Account")


@pytest.fixture
def lower() -> Account:
    found = pwd.getpwnam("nobody")
    return Account("drop", found.pw_uid, found.pw_gid)


@pytest.fixture
def shelter() -> Iterator[Path]:
    """The folder for what a dropped-to account owns, left as it was."""
    before = set(SHELTER.rglob("*"))
    existed = SHELTER.exists()
    yield SHELTER
    for place in sorted(set(SHELTER.rglob("*")) - before, reverse=True):
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
    if not existed:
        shutil.rmtree(SHELTER, ignore_errors=True)


@pytest.fixture
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that another account may enter, unlike pytest's own."""
    folder = Path("/var/tmp") / f"fencerow-test-{os.getpid()}"
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


def uids_of(pid: int | None) -> set[str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {uid for line in lines if line.startswith("Uid:") for uid in line.split()[1:]}


def accounts() -> str:
    return Path("/etc/passwd").read_text()


def test_root_runs_it_in_a_user_namespace(make: Make) -> None:
    if choose_account(find_binaries()).kind != "namespace":
        pytest.skip("the kernel refuses a user namespace")
    before = accounts()
    cluster = make()
    cluster.start()

    assert uids_of(cluster.pid) == {"0"}
    assert Path(f"/proc/{cluster.pid}/ns/user").readlink() != Path("/proc/self/ns/user").readlink()
    assert (cluster.data / "PG_VERSION").stat().st_uid == 0
    assert accounts() == before


def test_root_drops_to_an_account_that_exists(
    make: Make, lower: Account, shelter: Path, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    before = {place: place.stat().st_mode for place in tmp_path.parents}
    cluster = make(account=lower)
    cluster.start()
    table = keep(cluster.dsn())
    cluster.kill()
    cluster.start()

    assert kept(cluster.dsn(), table)
    assert uids_of(cluster.pid) == {str(lower.uid)}
    assert cluster.data.is_relative_to(shelter)
    assert cluster.data.stat().st_uid == lower.uid
    assert {place: place.stat().st_mode for place in tmp_path.parents} == before
    left = (cluster.data, cluster.sockets)
    cluster.remove()
    assert [place for place in left if place.exists()] == []


def test_programs_out_of_reach_are_copied_once(
    make: Make, lower: Account, shelter: Path, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    found = find_binaries()
    if found.folder.parent.name != "pginstall":
        pytest.skip(f"{found.folder} is in reach of all accounts and need not work elsewhere")
    package = tmp_path / "site" / found.folder.parents[1].name
    shutil.copytree(found.folder.parent, package / found.folder.parent.name)
    libraries = found.folder.parents[2] / f"{found.folder.parents[1].name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, package.with_name(libraries.name))
    closed = find_binaries(package / found.folder.parent.name / "bin")
    cluster = make(tmp_path / "pg", account=lower, binaries=closed)
    for _ in range(2):
        cluster.start()
        assert cluster.binaries.folder.is_relative_to(shelter / "programs")
        cluster.stop()

    assert len(list((shelter / "programs").iterdir())) == 1
    answer = subprocess.run(
        [cluster.binaries.tool("psql"), "--version"], capture_output=True, text=True, check=False
    )
    assert answer.stdout.startswith("psql (PostgreSQL)")


def test_a_dropped_server_ends_cleanly_with_its_owner(lower: Account, shelter: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pg"
    with Program(DROPPING_OWNER, str(folder), str(lower.uid), str(lower.gid)) as owner:
        found = owner.answer()
    until(lambda: not working_in(Path(found["data"])), "the server's processes are gone")

    assert "database system is shut down" in (folder / "server.log").read_text()


def as_nobody(**extra: str) -> dict[str, str]:
    packages = find_binaries().folder.parents[2]
    return {
        "PYTHONPATH": f"{SOURCES}:{packages}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/nonexistent",
        **extra,
    }


def until_gone(home: Path) -> None:
    until(lambda: not is_held(home / "default" / "keeper.lock"), "the keeper is gone")
    assert working_in(home / "default" / "data") == []


RUN_AS_NOBODY = ["runuser", "-u", "nobody", "--", SYSTEM_PYTHON]


@pytest.mark.slow
@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason=f"no {SYSTEM_PYTHON} for the account nobody")
def test_an_ordinary_account_runs_it_as_itself(public: Path, lower: Account) -> None:
    """Waits out the grace after the user."""
    os.chown(public, lower.uid, lower.gid)
    with Program(USER, command=RUN_AS_NOBODY, **as_nobody(FENCEROW_HOME=str(public))) as user:
        answer = user.answer()
        data = public / "default" / "data"

        assert answer["created"] is True
        assert {uid for pid in working_in(data) for uid in uids_of(pid)} == {str(lower.uid)}
    until_gone(public)


@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason=f"no {SYSTEM_PYTHON} for the account nobody")
def test_an_account_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FENCEROW_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    with Program(USER, command=RUN_AS_NOBODY, **as_nobody()) as user:
        _, errors = user.process.communicate(timeout=20)

    assert "ServerError: /nonexistent/.local/share/fencerow/default cannot be used" in errors
    assert "Set FENCEROW_HOME" in errors


@pytest.mark.slow
@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason=f"no {SYSTEM_PYTHON} for another account")
def test_an_account_without_a_name_runs_it_in_a_user_namespace(public: Path) -> None:
    """Waits out the grace after the user. Containers are often started with a bare uid."""
    os.chown(public, 54321, 54321)
    bare = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", SYSTEM_PYTHON]
    with Program(USER, command=bare, **as_nobody(FENCEROW_HOME=str(public))) as user:
        user.answer()
        data = public / "default" / "data"

        assert {uid for pid in working_in(data) for uid in uids_of(pid)} == {"54321"}
    until_gone(public)


def test_a_folder_of_another_account_is_refused(tmp_path: Path, lower: Account) -> None:
    folder = tmp_path / "pg"
    folder.mkdir()
    os.chown(folder, lower.uid, lower.gid)

    with pytest.raises(ServerError, match="not a folder of this account"):
        Cluster(folder).init()


def odd_folder(place: Path) -> Path:
    return place / ("n" * 120)


def test_a_socket_folder_taken_by_another_account_is_not_used(
    make: Make, lower: Account, public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(public))
    cluster = make(odd_folder(tmp_path))
    cluster.start()
    wanted = cluster.sockets
    cluster.stop()
    assert wanted.parent == public
    wanted.mkdir(mode=0o700)
    os.chown(wanted, lower.uid, lower.gid)
    cluster.start()

    assert cluster.sockets != wanted
    assert cluster.answers() == "00000"
    assert wanted.stat().st_uid == lower.uid


def test_a_full_temporary_folder_is_passed_over(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    fill = f'mount -t tmpfs -o size=4k none {full} && head -c 4096 /dev/zero > {full}/all && exec "$@"'
    inside = ["unshare", "--mount", "sh", "-c", fill, "sh", sys.executable]
    with Program(OWNER, str(odd_folder(tmp_path)), command=inside, TMPDIR=str(full)) as owner:
        found = owner.answer()
        assert str(full) not in found["dsn"]
        owner.end()
    assert working_in(Path(found["data"])) == []
