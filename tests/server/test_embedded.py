"""The shared server: one for all processes of an account, there while anybody uses it, gone after the last."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from fencerow import server
from fencerow.server import ServerError, embedded
from fencerow.server.embedded import _start_keeper
from fencerow.server.keeper import Places
from fencerow.server.postmaster import working_in
from tests.server.processes import USER, Program, alive, keep, kept, until

# Forks, says the fork's pid; the fork lives until it is killed, the parent until its input ends.
FORKING_USER = USER.replace(
    "print(",
    """
child = os.fork()
if child == 0:
    import signal
    signal.pause()
print(json.dumps({"fork": child}), flush=True)
print(""",
)

# Prepares by making a table, which fails if it is done twice.
PREPARING_USER = USER.replace(
    "used = embedded()",
    """
def prepare(dsn):
    import psycopg
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE prepared AS SELECT 1 AS value")
used = embedded(prepare=prepare)
""",
)


def log_of(home: Path) -> str:
    return (home / "default" / "server.log").read_text()


def until_gone(home: Path) -> None:
    until(lambda: server.status().keeper_pid is None, "the keeper is gone")
    assert working_in(home / "default" / "data") == []


def running() -> server.Status:
    found = server.status()
    assert found.running
    return found


def test_the_first_user_starts_and_the_second_joins(new_home: Path) -> None:
    with embedded() as first:
        pid = running().server_pid
        with embedded() as second:
            assert (first.created, second.created) == (True, False)
            assert second.dsn == first.dsn
            assert running().server_pid == pid
    assert first.folder == new_home / "default"


def test_two_names_are_two_servers(new_home: Path) -> None:
    with embedded("one") as one, embedded("two") as two:
        with psycopg.connect(one.dsn) as connection:
            connection.execute("CREATE TABLE here AS SELECT 1 AS value")
        with psycopg.connect(two.dsn) as connection, pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT value FROM here")


def test_starters_at_once_get_one_server(new_home: Path) -> None:
    with ExitStack() as stack:
        users = [stack.enter_context(Program(USER)) for _ in range(4)]
        answers = [user.answer() for user in users]

        assert sorted(answer["created"] for answer in answers) == [False, False, False, True]
        assert len({answer["dsn"] for answer in answers}) == 1
        assert log_of(new_home).count("starting PostgreSQL") == 1


def test_nobody_meets_an_unprepared_server(new_home: Path) -> None:
    with ExitStack() as stack:
        users = [stack.enter_context(Program(PREPARING_USER)) for _ in range(3)]
        dsns = [user.answer()["dsn"] for user in users]

        with psycopg.connect(dsns[0]) as connection:
            assert connection.execute("SELECT count(*) FROM prepared").fetchone() == (1,)


def test_a_failed_preparation_is_tried_again_by_the_next(home: Path) -> None:
    asked: list[str] = []

    def fail(dsn: str) -> None:
        asked.append(dsn)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        embedded(prepare=fail)
    for _ in range(2):
        with embedded(prepare=asked.append) as used:
            assert asked == [used.dsn, used.dsn]


@pytest.mark.slow
def test_a_user_killed_takes_the_server_along_and_no_data(home: Path) -> None:
    """Waits out the grace after the last user."""
    with Program(USER) as user:
        table = keep(user.answer()["dsn"])
    until_gone(home)

    assert "database system is shut down" in log_of(home)
    assert not (home / "default" / "run").exists()
    with embedded() as again:
        assert again.created is False
        assert kept(again.dsn, table)


def test_a_new_user_within_the_grace_keeps_the_server(home: Path) -> None:
    with embedded():
        pid = running().server_pid
    with embedded():
        assert running().server_pid == pid


def test_a_killed_keeper_takes_the_server_down_cleanly(home: Path) -> None:
    with embedded():
        before = running()
        assert before.keeper_pid
        os.kill(before.keeper_pid, signal.SIGKILL)
        until(lambda: not alive(before.keeper_pid or 0), "the keeper is gone")
        with embedded() as again:
            assert running().server_pid != before.server_pid
            assert again.created is False
    assert log_of(home).count("starting PostgreSQL") == 2
    assert "not properly shut down" not in log_of(home)


def test_a_second_keeper_gives_way(home: Path) -> None:
    """As when a starter was killed between starting its keeper and the keeper's taking of the lock."""
    with embedded():
        before = running()
        assert _start_keeper(Places(home / "default"), time.monotonic() + 20) is False
        assert running() == before


def test_a_terminated_keeper_stops_the_server(home: Path) -> None:
    with embedded():
        found = running()
        assert found.keeper_pid
        os.kill(found.keeper_pid, signal.SIGTERM)
        until_gone(home)
    assert "database system is shut down" in log_of(home)


def test_a_killed_server_comes_back_at_its_address(home: Path) -> None:
    with embedded() as used:
        table = keep(used.dsn)
        before = running().server_pid
        assert before
        os.kill(before, signal.SIGKILL)
        until(lambda: server.status().server_pid not in (None, before), "another server answers")

        assert kept(used.dsn, table)


def test_all_killed_at_once_is_recovered(home: Path) -> None:
    with Program(USER) as user:
        table = keep(user.answer()["dsn"])
        found = running()
        assert found.keeper_pid
        assert found.server_pid
        os.kill(found.keeper_pid, signal.SIGSTOP)  # else it would bring the server back first
        for pid in (found.server_pid, found.keeper_pid):
            os.kill(pid, signal.SIGKILL)
    with embedded() as again:
        assert kept(again.dsn, table)


def test_a_fork_that_ends_takes_nothing_away(home: Path) -> None:
    with Program(FORKING_USER) as user:
        fork = user.answer()["fork"]
        user.answer()
        os.kill(fork, signal.SIGKILL)
        until(lambda: not alive(fork), "the fork is gone")

        assert server.status().used


@pytest.mark.slow
def test_a_fork_that_lives_on_is_a_user(home: Path) -> None:
    """Waits out the grace after the fork."""
    with Program(FORKING_USER) as user:
        fork = user.answer()["fork"]
        user.answer()
    try:
        assert not alive(user.pid)
        assert server.status().used
        assert running().server_pid
    finally:
        os.kill(fork, signal.SIGKILL)
    until_gone(home)


@pytest.mark.slow
def test_started_it_stands_until_it_is_stopped(home: Path) -> None:
    """Waits out the grace after the start."""
    found = server.start()
    until(lambda: "standing" in (home / "default" / "keeper.log").read_text(), "the keeper lets it stand")

    assert found.standing
    assert not found.used
    assert running().server_pid == found.server_pid
    assert server.url() == found.dsn
    assert server.stop() is True
    assert not server.status().running
    assert not server.status().standing
    assert working_in(home / "default" / "data") == []
    with pytest.raises(ServerError, match="db start"):
        server.url()


@pytest.mark.slow
def test_a_used_server_is_stopped_later_or_now(home: Path) -> None:
    """Waits out the grace after the user."""
    server.start()
    with Program(USER) as user:
        user.answer()
        assert server.stop() is False
        assert running().standing is False
        user.end()
        until_gone(home)
    with embedded():
        assert server.stop(now=True) is True
        assert not server.status().running


def test_stopping_what_does_not_run_is_no_fault(new_home: Path) -> None:
    assert server.stop() is True
    assert not new_home.exists()


def test_the_terminal_of_a_user_does_not_reach_the_server(home: Path) -> None:
    with embedded():
        found = running()
        assert found.keeper_pid
        sessions = {os.getsid(pid) for pid in (found.keeper_pid, found.server_pid) if pid}

        assert os.getsid(0) not in sessions


def test_the_working_folder_stays_as_it_was(home: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    program = f"import os; os.chdir({str(place)!r})\n{USER}"
    with Program(program) as user:
        user.answer()

        assert list(place.iterdir()) == []


def test_an_odd_home_in_a_locale_that_does_not_exist(new_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = new_home / f"Größe, データ {'n' * 100}"
    monkeypatch.setenv("FENCEROW_HOME", str(odd))
    with Program(USER, LC_ALL="xx") as user:
        table = keep(user.answer()["dsn"])
        assert kept(server.url(), table)
        assert server.stop(now=True) is True
    assert working_in(odd / "default" / "data") == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "ä", "x" * 64])
def test_a_name_is_a_name(new_home: Path, name: str) -> None:
    with pytest.raises(ServerError, match="cannot name"):
        embedded(name)


def test_a_home_that_is_no_folder_is_explained(new_home: Path) -> None:
    new_home.write_text("")
    with pytest.raises(ServerError, match="FENCEROW_HOME"):
        embedded()
    new_home.unlink()


def test_a_fault_of_the_start_reaches_the_user(home: Path) -> None:
    with embedded():
        pass
    server.stop()
    version = home / "default" / "data" / "PG_VERSION"
    right = version.read_text()
    version.write_text("14\n")
    try:
        with pytest.raises(ServerError, match="made by PostgreSQL 14"):
            embedded()
    finally:
        version.write_text(right)


def test_the_package_loads_no_driver() -> None:
    program = "import fencerow.server, sys; sys.exit('psycopg' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
