"""Several installers at once, and one that is killed: real processes (C098)."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psycopg
import pytest

from fencerow.store.migrate import migrate_dsn, plan
from fencerow.testing.sessions import PATIENCE_SECONDS
from tests.sql.catalog import catalog

PROGRAM = """
import sys, psycopg
from fencerow.store.migrate import migrate_dsn
print("ready", flush=True)
sys.stdin.readline()
print(len(migrate_dsn(sys.argv[1]).steps), flush=True)
"""


def installer(dsn: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, dsn],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def go(*processes: subprocess.Popen[str]) -> None:
    """Let all of them start at once, when each has said that it is ready."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def until(state: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not state():
        assert time.monotonic() < deadline


@pytest.mark.parametrize(("count", "isolation"), [(8, "read committed"), (4, "repeatable read")])
def test_one_of_many_installers_does_the_work(
    database: Callable[[], str], count: int, isolation: str
) -> None:
    dsn, other = database(), database()
    with psycopg.connect(dsn, autocommit=True) as owner:
        name = owner.info.dbname
        owner.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'".encode())
    processes = [installer(dsn) for _ in range(count)]
    go(*processes)
    said = [process.communicate(timeout=PATIENCE_SECONDS * 2) for process in processes]

    assert [error for _, error in said] == [""] * count
    steps = sorted(int(out) for out, _ in said)
    assert steps[:-1] == [0] * (count - 1)
    assert steps[-1] > 0
    migrate_dsn(other)
    assert catalog(dsn) == catalog(other)
    with psycopg.connect(dsn, autocommit=True) as owner:
        assert owner.execute("SELECT version FROM fencerow.migration").fetchall() == [(1,)]


def test_killed_installer_leaves_nothing(database: Callable[[], str]) -> None:
    """kill -9 in mid-transaction: a blocker that creates a table of ours, uncommitted, holds it there."""
    dsn = database()
    with psycopg.connect(dsn, autocommit=True) as owner, psycopg.connect(dsn, autocommit=True) as blocker:
        owner.execute("CREATE SCHEMA fencerow")
        blocker.execute("BEGIN; CREATE TABLE fencerow.past_lease (id int)")
        process = installer(dsn)
        go(process)
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencerow migrate' "
            "AND cardinality(pg_blocking_pids(pid)) > 0"
        )
        there = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencerow migrate'"
        until(lambda: owner.execute(waiting.encode()).fetchone() == (1,))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_SECONDS)
        blocker.execute("ROLLBACK")
        until(lambda: owner.execute(there.encode()).fetchone() == (0,))

        assert catalog(dsn) == []
        assert plan(owner).steps[0].kind == "schema"
        migrate_dsn(dsn)
        assert plan(owner).idle


def test_killed_upgrade_leaves_the_old_functions(database: Callable[[], str]) -> None:
    dsn = database()
    migrate_dsn(dsn)
    before = catalog(dsn)
    with psycopg.connect(dsn, autocommit=True) as owner, psycopg.connect(dsn, autocommit=True) as blocker:
        owner.execute("UPDATE fencerow.routine SET checksum = 'older'")
        blocker.execute("BEGIN; SELECT FROM fencerow.space FOR UPDATE")
        process = installer(dsn)
        go(process)
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND cardinality(pg_blocking_pids(pid)) > 0"
        )
        until(lambda: owner.execute(waiting.encode()).fetchone() == (1,))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_SECONDS)
        until(lambda: owner.execute(waiting.encode()).fetchone() == (0,))
        blocker.execute("ROLLBACK")

        assert owner.execute("SELECT DISTINCT checksum FROM fencerow.routine").fetchall() == [("older",)]
        migrate_dsn(dsn)
        assert plan(owner).idle
    assert catalog(dsn) == before
