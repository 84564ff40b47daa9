"""Roles hold EXECUTE and no table right, and no session can lend the functions its own names (C033)."""

import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from fencerow.ops.base import Row
from fencerow.server import Cluster
from fencerow.store.migrate import migrate_dsn
from fencerow.testing.space import Space
from tests.sql.steps import A, claim, enqueue, lease, running, settle, state

Producer = psycopg.Connection[Row]


def test_producer_can_enqueue_with_every_option(space: Space, producer: Producer) -> None:
    (job_id,) = producer.execute(
        "SELECT fencerow.enqueue('t', '{\"x\": 1}', queue => 'mail', priority => 10, run_in => '1 s', unique_key => 'k', "
        "idempotency_key => 'i', tags => ARRAY['a'], headers => '{\"h\": \"1\"}', max_attempts => 2)"
    ).fetchone() or (0,)
    assert space.rows("SELECT id, task, queue, priority, tags FROM fencerow.jobs") == [
        (job_id, "t", "mail", 10, ["a"])
    ]


def test_producer_can_read_and_change_no_table_and_call_nothing_else(
    space: Space, producer: Producer
) -> None:
    held = running(space)
    relations = space.rows(
        "SELECT relname, relkind::text FROM pg_class WHERE relnamespace = 'fencerow'::regnamespace AND relkind IN ('r', 'v', 'S')"
    )
    assert {kind for _, kind in relations} == {"r", "v", "S"}
    for name, kind in relations:
        statements = [f"SELECT * FROM fencerow.{name}"]
        if kind == "S":
            statements = [f"SELECT nextval('fencerow.{name}')", f"SELECT setval('fencerow.{name}', 1)"]
        elif kind == "r":
            statements += [
                f"DELETE FROM fencerow.{name}",
                f"TRUNCATE fencerow.{name}",
                f"INSERT INTO fencerow.{name} DEFAULT VALUES",
            ]
        for statement in statements:
            with pytest.raises(InsufficientPrivilege):
                producer.execute(statement.encode())
    callable_ = space.rows(
        "SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'fencerow'::regnamespace "
        "AND has_function_privilege('producer', p.oid, 'EXECUTE')"
    )
    assert callable_ == [("enqueue",)]
    for call in (
        f"claim({A}, 'default', 1)",
        f"complete({A}, ARRAY[1::bigint], ARRAY[1::bigint])",
        "cancel(1)",
        "now()",
        "expire()",
    ):
        with pytest.raises(InsufficientPrivilege):
            producer.execute(f"SELECT fencerow.{call}".encode())
    assert settle(space, held) == ["accepted"]


def test_nothing_of_the_space_is_open_to_everybody(space: Space) -> None:
    everybody = space.rows(
        "SELECT p.proname FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a "
        "WHERE p.pronamespace = 'fencerow'::regnamespace AND a.grantee = 0"
    )
    assert everybody == []


def test_every_function_that_outsiders_call_pins_its_search_path(space: Space) -> None:
    loose = space.rows(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'fencerow'::regnamespace AND prosecdef "
        "AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)"
    )
    assert loose == []


def test_decoys_of_a_session_are_never_looked_at(space: Space, fencerow_cluster: Cluster) -> None:
    """C033: a schema in front of the path and temporary objects with the names of ours change nothing."""
    evil = space.connect(name="evil")
    evil.execute("CREATE SCHEMA evil")
    for name in (
        "job",
        "ready",
        "scheduled",
        "running",
        "ended",
        "lease",
        "task",
        "asleep",
        "unique_key",
        "jobs",
        "space",
    ):
        evil.execute(f"CREATE TABLE evil.{name} (id bigint)".encode())
        evil.execute(f"CREATE TEMP TABLE {name} (id bigint)".encode())
    raising = "LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked'; END $$"
    for signature, returns in (
        ("now()", "timestamptz"), ("clock_timestamp()", "timestamptz"), ("random()", "float8"),
        ("nextval(regclass)", "bigint"), ("array_agg(anyelement)", "anyelement"), ("greatest_(int)", "int"),
        ("make_interval(secs float8)", "interval"), ("pg_notify(text, text)", "void"), ("wake(text[])", "void"),
        ("coalesce_(text)", "text"), ("cardinality(anyarray)", "int"), ("unnest(bigint[])", "bigint"),
    ):  # fmt: skip
        evil.execute(f"CREATE FUNCTION evil.{signature} RETURNS {returns} {raising}".encode())
    evil.execute("CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = int8ne)")
    evil.execute(
        "CREATE OPERATOR evil.<= (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = timestamptz_gt)"
    )
    evil.execute("SET search_path = evil, pg_temp, public, pg_catalog")

    asked = "SELECT fencerow.enqueue('t', unique_key => 'k', idempotency_key => 'i', run_in => pg_catalog.interval '0 s')"
    (job_id,) = evil.execute(asked.encode()).fetchone() or (0,)
    evil.execute("SELECT fencerow.open_lease(7001, 'a', '30 s')")
    row = evil.execute("SELECT job_id, generation FROM fencerow.claim(7001, 'default', 1)").fetchone()
    assert row == (job_id, 1)
    evil.execute("SELECT fencerow.renew(7001)")
    evil.execute("SELECT fencerow.expire(), fencerow.promote(), fencerow.purge()")
    answer = evil.execute(
        "SELECT verdict FROM fencerow.complete(7001, ARRAY[%s::int8], ARRAY[1::int8])", (job_id,)
    ).fetchone()
    assert answer == ("accepted",)
    assert state(space, job_id) == ("done", 1, 1)
    evil.execute("RESET search_path")
    evil.execute("DROP SCHEMA evil CASCADE")


def test_two_spaces_of_one_database_touch_only_themselves(space: Space) -> None:
    migrate_dsn(space.dsn, "other")
    try:
        twin = Space(space.dsn, schema="other")
        enqueue(space, 2)
        enqueue(twin, 1, queue="mail")
        lease(space)
        assert claim(twin, queue="mail") == []
        lease(twin)
        (held,) = claim(twin, queue="mail", limit=5)
        assert settle(twin, held) == ["accepted"]
        assert settle(space, held) == ["expired"]
        assert space.value("SELECT count(*) FROM fencerow.ready") == 2
        assert twin.value("SELECT fencerow.space_id()") != space.value("SELECT fencerow.space_id()")
        twin.close()
    finally:
        space.connection.execute("DROP SCHEMA other CASCADE")


def psql(cluster: Cluster) -> Path:
    """The real program: of the server's own installation, else of the system."""
    own = cluster.binaries.folder / "psql"
    found = str(own) if own.is_file() else shutil.which("psql")
    if found is None:
        packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/psql"))
        found = str(packaged[-1]) if packaged else None
    if found is None:
        pytest.skip("no psql is installed")
    return Path(found)


def run_psql(cluster: Cluster, dsn: str, text: str) -> str:
    done = subprocess.run(
        [psql(cluster), "-XqtA", "-v", "ON_ERROR_STOP=1", "-d", dsn],
        input=text,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_psql_alone_enqueues_with_its_transaction(space: Space, fencerow_cluster: Cluster) -> None:
    call = "SELECT fencerow.enqueue('mail.send', '{\"to\": 1}', queue => 'mail', priority => 10);\n"
    space.rows(
        "SELECT fencerow.declare_task('mail.send', 'post', 5, 3, 'fail', '2 s', '1 h', NULL, '1 day', '1 day')"
    )

    run_psql(fencerow_cluster, space.dsn, f"BEGIN;\n{call}ROLLBACK;\n")
    assert space.rows("SELECT FROM fencerow.job") == []
    out = run_psql(
        fencerow_cluster, space.dsn, f"BEGIN;\n{call}SELECT fencerow.enqueue('mail.send');\nCOMMIT;\n"
    )

    ids = [int(line) for line in out.split()]
    found = space.rows(
        "SELECT id, queue, priority, max_attempts, on_lost, timeout FROM fencerow.jobs ORDER BY id"
    )
    assert found == [(ids[0], "mail", 10, 3, "fail", None), (ids[1], "post", 5, 3, "fail", None)]
