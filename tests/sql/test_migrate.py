"""Installing and upgrading a space: all of it or nothing, by one of many, under any name, behind no long reader."""

from collections.abc import Callable

import psycopg
import pytest

from fencerow.errors import InvalidName, MigrationFailed, NotInstalled, SchemaAhead, SchemaBehind
from fencerow.ops import jobs, workers
from fencerow.ops.base import Row
from fencerow.server import Cluster
from fencerow.store.migrate import check_contract, contract, migrate, migrate_dsn, plan, script
from fencerow.store.session import SyncSession, Target, run_on
from fencerow.testing.sessions import SessionThread
from fencerow.testing.space import Space
from tests.sql.catalog import catalog
from tests.sql.steps import A, job, settlement
from tests.sql.test_rights import run_psql

NAMES = [
    "a-b",
    "A b",
    "select",
    'x"; drop table job; --',
    "É",
    "日本",
    "..",
    "100%",
    "_",
    "a'b",
    "\\",
    "n" * 63,
]
Make = Callable[[], str]


def connect(dsn: str) -> psycopg.Connection[Row]:
    return psycopg.connect(dsn, autocommit=True)


def test_migrate_is_idempotent_and_takes_no_lock_when_there_is_nothing_to_do(database: Make) -> None:
    dsn = database()
    with connect(dsn) as connection:
        assert plan(connection).steps[0].kind == "schema"
        first = migrate(connection)
        before = catalog(dsn)
        assert not first.idle
        with connect(dsn) as reader:
            reader.execute(
                "BEGIN; LOCK TABLE fencerow.job, fencerow.ready, fencerow.space IN ROW EXCLUSIVE MODE"
            )
            assert migrate(connection).idle
        assert script(plan(connection)) == "-- nothing to do\n"
    assert catalog(dsn) == before


@pytest.mark.parametrize("schema", ["fencerow", 'my "own" 100% 日本'])
def test_script_run_by_psql_gives_the_same_catalog(
    database: Make, fencerow_cluster: Cluster, schema: str
) -> None:
    by_psql, by_migrate = database(), database()
    with connect(by_psql) as connection:
        text = script(plan(connection, schema))
    run_psql(fencerow_cluster, by_psql, text)
    migrate_dsn(by_migrate, schema)

    assert catalog(by_psql, schema) == catalog(by_migrate, schema)
    with connect(by_psql) as connection:
        assert plan(connection, schema).idle


def test_space_lives_under_any_name(database: Make) -> None:
    """C099: the whole life of a job in schemas with every kind of name."""
    dsn = database()
    for schema in NAMES:
        migrate_dsn(dsn, schema)
        session = SyncSession(Target(dsn, schema=schema))
        session.run(workers.open_lease(A, "w", seconds=30))
        (entry,) = session.run(jobs.enqueue([job(idempotency_key="i")]))
        held = session.run(jobs.claim(A, "default", limit=5))
        assert [c.job_id for c in held] == [entry.id]
        session.run(jobs.progress(held[0], 0.5, "%"))
        assert session.run(workers.renew(A, "other")) is not None
        assert session.run(jobs.settle([settlement(held[0], "complete")]))[0].verdict == "accepted"
        assert session.run(jobs.settle([settlement(held[0], "fail")]))[0].verdict == "settled"
        assert session.run(workers.channel()).startswith("fencerow_")
        assert session.run(contract()) == (1, 1)
        session.run(jobs.expire())
        session.run(jobs.purge())
        session.close()
    with connect(dsn) as connection:
        for schema in NAMES:
            assert plan(connection, schema).idle


@pytest.mark.parametrize(
    "name", ["", "n" * 64, "日" * 22, "a$b", "a\0b", "pg_mine", "a\nDROP TABLE x; --", "\ud800"]
)
def test_name_that_cannot_be_one_is_refused_before_anything_is_sent(database: Make, name: str) -> None:
    dsn = database()
    with connect(dsn) as connection:
        for act in (plan, migrate):
            with pytest.raises(InvalidName, match="not possible"):
                act(connection, name)
    assert catalog(dsn, name.replace("\0", "").encode("utf-8", "replace").decode()) == []


def test_schema_of_somebody_else_is_left_alone(database: Make) -> None:
    """Bad input 23: somebody's table named jobs."""
    dsn = database()
    with connect(dsn) as connection:
        connection.execute("CREATE SCHEMA fencerow; CREATE TABLE fencerow.jobs (id int)")
        with pytest.raises(MigrationFailed, match="not Fencerow's"):
            migrate(connection)
        names = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'fencerow'::regnamespace"
        ).fetchall()
    assert names == [("jobs",)]


def test_migration_with_another_text_is_refused(database: Make) -> None:
    dsn = database()
    migrate_dsn(dsn)
    with connect(dsn) as connection:
        connection.execute("UPDATE fencerow.migration SET checksum = 'edited'")
        with pytest.raises(MigrationFailed, match="another text"):
            migrate(connection)


def test_changed_routine_is_brought_back_and_granted_rights_stay(database: Make) -> None:
    dsn = database()
    migrate_dsn(dsn)
    before = catalog(dsn)
    with connect(dsn) as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION fencerow.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT timestamptz ''epoch'''"
        )
        connection.execute("UPDATE fencerow.routine SET checksum = 'older' WHERE name = 'rules/now'")
        report = migrate(connection)
    assert [step.name for step in report.steps] == ["rules/now", "1"]
    assert catalog(dsn) == before


def test_pair_of_client_and_schema_that_does_not_fit_is_one_line(database: Make) -> None:
    """C009, bad input 23: nothing is altered, the line says what to do."""
    dsn = database()
    session = SyncSession(Target(dsn))
    with pytest.raises(NotInstalled) as missing:
        session.run(contract())
    migrate_dsn(dsn)
    with connect(dsn) as connection:
        connection.execute("UPDATE fencerow.space SET contract = 99, oldest = 98")
        with pytest.raises(SchemaAhead) as ahead:
            migrate(connection)
        installed, oldest = session.run(contract())
    with pytest.raises(SchemaAhead):
        check_contract(installed, oldest)
    with pytest.raises(SchemaBehind) as behind:
        check_contract(0, 0)
    session.close()
    for caught in (missing, ahead, behind):
        assert "\n" not in str(caught.value)
        assert caught.value.hint


def test_invalid_index_is_seen_and_cured(database: Make) -> None:
    """C010: an interrupted concurrent build leaves an index that costs every write and serves no read."""
    dsn = database()
    migrate_dsn(dsn)
    before = catalog(dsn)
    with connect(dsn) as connection, connect(dsn) as writer:
        connection.execute("DROP INDEX fencerow.scheduled_run_at")
        writer.execute("BEGIN; LOCK TABLE fencerow.scheduled IN ROW EXCLUSIVE MODE")
        connection.execute("SET lock_timeout = '50ms'")
        for build in (
            "CREATE INDEX CONCURRENTLY scheduled_run_at ON fencerow.scheduled (run_at, job_id)",
            "REINDEX INDEX CONCURRENTLY fencerow.scheduled_run_at",
        ):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                connection.execute(build.encode())
        writer.execute("ROLLBACK")
        connection.execute("RESET lock_timeout")
        wanted = [("index", "scheduled_run_at"), ("index", "scheduled_run_at_ccnew")]
        assert [(step.kind, step.name) for step in plan(connection).steps] == wanted
        migrate(connection)
        assert plan(connection).idle
    assert catalog(dsn) == before


def test_migration_behind_a_long_reader_lets_the_traffic_pass(database: Make) -> None:
    """C032: it gives its place in the lock queue up again and again, until the reader has ended."""
    space = Space(database())
    reader, migrator = SessionThread(space), SessionThread(space)
    space.rows(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'fencerow.scheduled_run_at'::regclass"
    )
    reader.begin()
    reader.sql("SELECT count(*) FROM fencerow.scheduled WHERE run_at < now()")
    migrating = migrator.call(lambda: migrate(migrator.connection))
    for _ in range(2):
        migrating.wait_until_blocked(reader)
        assert run_on(space.connection, jobs.enqueue([job(run_in=60.0)]))[0].created
    reader.commit()

    assert [step.kind for step in migrating.answer().steps] == ["index"]
    space.close()


def test_sessions_go_on_after_the_schema_was_dropped_and_installed_again(database: Make) -> None:
    """C124: prepared statements and cached plans of the old one are no hindrance."""
    dsn = database()
    migrate_dsn(dsn)
    session = SyncSession(Target(dsn))
    for _ in range(8):
        session.run(jobs.enqueue([job()]))
        session.run(jobs.promote())
    with connect(dsn) as connection:
        connection.execute("DROP SCHEMA fencerow CASCADE")
        with pytest.raises(NotInstalled):
            session.run(jobs.enqueue([job()]))
        migrate(connection)
    assert session.run(jobs.enqueue([job()]))[0].id == 1
    assert session.run(jobs.promote()) == 0
    session.close()
