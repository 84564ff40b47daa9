"""A private server over a folder: it starts wherever it may, opens no port, and loses nothing when killed."""

import os
import signal
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from fencerow.server import Binaries, Cluster, ServerError
from fencerow.server.postmaster import working_in
from tests.server.processes import OWNER, Program, alive, keep, kept, until

Make = Callable[..., Cluster]


def ask(cluster: Cluster, query: str) -> object:
    with psycopg.connect(cluster.dsn("fencerow"), autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def modes_above(folder: Path) -> dict[Path, tuple[int, int, int]]:
    found = {place: place.stat() for place in folder.parents}
    return {place: (row.st_mode, row.st_uid, row.st_gid) for place, row in found.items()}


def test_a_fresh_server_is_ready_to_use(shared: Cluster) -> None:
    shared.start()

    assert ask(shared, "SELECT current_user || ' ' || current_setting('is_superuser')") == "fencerow on"
    assert ask(shared, "SHOW server_encoding") == "UTF8"
    assert ask(shared, "SELECT lower('ÅB') || upper('straße')") is not None
    major, minor = shared.binaries.version
    assert ask(shared, "SHOW server_version_num") == f"{major * 10000 + minor}"


def test_settings_are_the_callers_and_ours(make: Make) -> None:
    cluster = make(settings={"work_mem": "7MB", "application_name": "it's a \\ name", "fsync": "off"})
    cluster.start()

    assert ask(cluster, "SHOW work_mem") == "7MB"
    assert ask(cluster, "SHOW jit") == "off"
    assert (
        ask(cluster, "SELECT reset_val FROM pg_settings WHERE name = 'application_name'") == "it's a \\ name"
    )


def test_a_wrong_setting_is_reported_with_the_log(make: Make) -> None:
    with pytest.raises(ServerError, match="no_such_setting"):
        make(settings={"no_such_setting": "1"}).start()
    with pytest.raises(ServerError, match="configuration file"):
        make(settings={"work mem": "1"}).start()


def test_no_port_is_open(shared: Cluster) -> None:
    shared.start()
    links = [str(path.readlink()) for path in Path(f"/proc/{shared.pid}/fd").iterdir()]
    sockets = {link[8:-1] for link in links if link.startswith("socket:")}
    ports = {
        line.split()[9]
        for kind in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
    }

    assert sockets
    assert not sockets & ports


def test_only_the_account_may_enter(shared: Cluster) -> None:
    shared.start()

    for folder in (shared.folder, shared.data, shared.sockets):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_long_path_with_spaces_and_foreign_letters(make: Make, binaries: Binaries, tmp_path: Path) -> None:
    odd = tmp_path / "Größe, 'x' \"y\" データ"
    folder = odd / ("n" * (150 - len(os.fsencode(odd)) - 1) if len(os.fsencode(odd)) < 149 else "n")
    assert len(os.fsencode(folder)) >= 150
    folder.parent.mkdir()
    before = modes_above(folder)
    cluster = make(folder, binaries=binaries)
    cluster.start()

    assert ask(cluster, "SELECT 1") == 1
    assert len(os.fsencode(cluster.sockets / ".s.PGSQL.5432")) <= 107
    assert not cluster.sockets.is_relative_to(folder)
    cluster.stop()
    assert not cluster.sockets.exists()
    assert modes_above(folder) == before


def test_the_callers_locale_and_postgres_variables_do_not_matter(
    make: Make, binaries: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "LC_ALL": "xx",
        "LANG": "yy_YY",
        "PGPORT": "1",
        "PGDATA": "/nowhere",
        "TZ": "No/Where",
    }.items():
        monkeypatch.setenv(name, value)
    cluster = make(binaries=binaries)
    cluster.start()

    assert cluster.answers() == "00000"


def test_a_killed_server_starts_again_with_all_commits(shared: Cluster) -> None:
    shared.start()
    address = shared.dsn("fencerow")
    table = keep(address)
    shared.kill()
    shared.start()

    assert kept(address, table)
    assert "not properly shut down" in shared.log_tail(40)


def test_a_pid_file_that_names_a_stranger_is_stale(shared: Cluster) -> None:
    shared.start()
    pid_file, lock_file = shared.data / "postmaster.pid", shared.sockets / ".s.PGSQL.5432.lock"
    found = {path: path.read_text().split("\n", 1)[1] for path in (pid_file, lock_file)}
    shared.kill()
    until(lambda: not working_in(shared.data), "the backends are gone")
    with Program("import sys; print(1, flush=True); sys.stdin.read()") as stranger:
        stranger.answer()
        for path, rest in found.items():
            path.write_text(f"{stranger.pid}\n{rest}")
        shared.start()

        assert shared.answers() == "00000"
        assert alive(stranger.pid)


def test_backends_of_a_killed_server_are_waited_for(shared: Cluster) -> None:
    shared.start()
    with psycopg.connect(shared.dsn("fencerow")) as connection:
        backend = connection.info.backend_pid
        os.kill(backend, signal.SIGSTOP)
        try:
            shared.kill()
            with pytest.raises(ServerError, match=str(backend)):
                shared.start(timeout=0.5)
        finally:
            os.kill(backend, signal.SIGCONT)
        shared.start()

    assert shared.answers() == "00000"


def test_one_folder_has_one_server(shared: Cluster) -> None:
    shared.start()
    with pytest.raises(ServerError, match=f"pid {shared.pid}"):
        Cluster(shared.folder, binaries=shared.binaries).start()

    assert shared.answers() == "00000"


def test_data_of_another_version_is_refused(make: Make) -> None:
    cluster = make()
    cluster.init()
    (cluster.data / "PG_VERSION").write_text("14\n")

    with pytest.raises(ServerError, match="made by PostgreSQL 14"):
        cluster.start()


def test_an_interrupted_creation_is_started_over(make: Make) -> None:
    cluster = make()
    left = cluster.folder / "data.new"
    left.mkdir(parents=True)
    (left / "PG_VERSION").write_text("18\n")
    cluster.start()

    assert cluster.answers() == "00000"
    assert not left.exists()


def test_restart_and_stop_are_clean(shared: Cluster) -> None:
    shared.start()
    first = shared.pid
    shared.restart("smart")

    assert shared.pid != first
    assert shared.answers() == "00000"
    shared.stop()
    assert not shared.running()
    assert shared.pid is None
    assert working_in(shared.data) == []
    assert "database system is shut down" in shared.log_tail(2)


def test_the_server_outlives_the_thread_that_started_it(shared: Cluster) -> None:
    shared.stop()
    before = shared.log.stat().st_size
    starter = threading.Thread(target=shared.start)
    starter.start()
    starter.join()
    # A signal sent by the thread's end would be handled before the connection of a moment later.
    assert kept(shared.dsn(), keep(shared.dsn()))
    assert b"shutdown request" not in shared.log.read_bytes()[before:]


def test_the_server_ends_cleanly_with_a_killed_owner(tmp_path: Path) -> None:
    with Program(OWNER, str(tmp_path / "pg")) as owner:
        found = owner.answer()
    until(lambda: not working_in(Path(found["data"])), "the server's processes are gone")

    assert not alive(found["pid"])
    assert "database system is shut down" in (tmp_path / "pg" / "server.log").read_text()


def test_a_fork_of_the_owner_cannot_stop_the_server(tmp_path: Path) -> None:
    forking = OWNER.replace(
        "print(",
        """
import os
child = os.fork()
if child == 0:
    with cluster:
        pass
    sys.exit()
os.waitpid(child, 0)
print(""",
    )
    with Program(forking, str(tmp_path / "pg")) as owner:
        found = owner.answer()

        with psycopg.connect(found["dsn"]) as connection:
            assert connection.info.backend_pid
        assert alive(found["pid"])
    until(lambda: not working_in(Path(found["data"])), "the server's processes are gone")


def test_a_folder_of_programs_that_is_asked_for_is_not_replaced(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEROW_PG_BIN", str(tmp_path))

    with pytest.raises(ServerError, match=r"fencerow\[embedded\]"):
        make().init()
    monkeypatch.undo()


def test_remove_leaves_nothing(make: Make, tmp_path: Path) -> None:
    cluster = make()
    cluster.start()
    sockets = cluster.sockets
    cluster.remove()

    assert not sockets.exists()
    assert list(tmp_path.iterdir()) == []
