"""The server restarts or is away: no job is lost or charged, the worker goes on by itself; what waiting cannot cure ends it."""

import json
import signal
from collections.abc import Iterator

import psycopg
import pytest

from fencerow.server import Cluster
from fencerow.server.cluster import StopMode
from tests.worker.life import Place, until

GATE = json.dumps({"gate": "open"})


@pytest.fixture
def server(place: Place, fencerow_cluster: Cluster) -> Iterator[Cluster]:
    """The test's server, which the test may stop; it runs again afterwards."""
    yield fencerow_cluster
    fencerow_cluster.start()
    _look_again(place)


def _look_again(place: Place) -> None:
    place.space.connection.close()
    place.space.connection = psycopg.connect(place.space.dsn, autocommit=True, application_name="space")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_a_restart_under_load_loses_and_charges_nothing(
    place: Place, server: Cluster, mode: StopMode
) -> None:
    """Slow: the server recovers."""
    jobs = place.enqueue("quick", 3000)
    worker = place.worker("--lease", "20s", "--concurrency", "20")
    place.seen("done", 300)
    server.restart(mode)
    _look_again(place)
    jobs += place.enqueue("quick", 100)
    place.all_in("done", seconds=40)

    assert place.space.rows("SELECT count(*), count(DISTINCT job_id) FROM fencerow.ended") == [
        (len(jobs),) * 2
    ]
    assert (
        place.space.rows("SELECT kind, count(*) FROM fencerow.attempt WHERE kind <> 'released' GROUP BY 1")
        == []
    )
    assert {effect.attempt for effect in place.effects("done")} == {1}
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0
    assert len(worker.said.splitlines()) <= 20


@pytest.mark.slow
def test_an_outage_is_waited_for_and_said_once(place: Place, server: Cluster) -> None:
    """C083, C029: a handful of lines, however long it lasts. Slow: it lasts."""
    (job,) = place.enqueue("wait", payload=GATE)
    worker = place.worker("--lease", "6s")
    place.seen("begun")
    server.stop("fast")
    until(lambda: "jobs cannot be claimed" in worker.said, "the first complaint")
    until(lambda: "leases cannot be renewed" in worker.said, "that of the renewer", seconds=15)
    server.start()
    _look_again(place)
    place.open("open")
    place.all_in("done")
    (later,) = place.enqueue("quick")
    place.all_in("done")

    assert place.attempts(job) == place.attempts(later) == []
    lines = worker.said.splitlines()
    assert len(lines) <= 20, worker.said
    assert not [line for line in lines if "Traceback" in line]


@pytest.mark.slow
def test_a_worker_that_starts_before_its_database_waits_for_it(place: Place, server: Cluster) -> None:
    """Slow: the server stops and starts."""
    server.stop("fast")
    worker = place.worker(wait=False)
    until(lambda: "the database cannot be reached" in worker.said, "its complaint")
    server.start()
    _look_again(place)
    place.enqueue("quick")
    place.all_in("done")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 0


@pytest.mark.slow
def test_read_only_is_waited_for_on_fresh_connections(place: Place, server: Cluster) -> None:
    """C011: a demoted server answers 25006 on connections that stay open; jobs are not charged. Slow: back-off passes."""
    worker = place.worker("--lease", "30s")
    space = place.space
    space.connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    space.connection.execute("SELECT pg_reload_conf()")
    try:
        until(lambda: "read-only" in worker.said, "its complaint")
    finally:
        space.connection.execute("SET default_transaction_read_only = off")
        space.connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
        space.connection.execute("SELECT pg_reload_conf()")
        space.connection.execute("RESET default_transaction_read_only")
    # A session takes a reloaded setting in when the signal has reached it.
    until(lambda: space.value("SHOW default_transaction_read_only") == "off", "the setting to arrive")
    place.enqueue("quick", 3)
    place.all_in("done")
    assert space.rows("SELECT * FROM fencerow.attempt") == []


@pytest.mark.parametrize(
    ("change", "undo", "told"),
    [
        (
            "UPDATE fencerow.space SET contract = 0",
            "UPDATE fencerow.space SET contract = 1",
            "fencerow migrate",
        ),
        (
            "UPDATE fencerow.space SET oldest = 99, contract = 99",
            "UPDATE fencerow.space SET oldest = 1, contract = 1",
            "Upgrade the fencerow package",
        ),
        (
            "ALTER SCHEMA fencerow RENAME TO elsewhere",
            "ALTER SCHEMA elsewhere RENAME TO fencerow",
            "fencerow migrate",
        ),
    ],
    ids=["behind", "ahead", "missing"],
)
def test_a_schema_that_does_not_fit_ends_it_before_claiming(
    place: Place, change: str, undo: str, told: str
) -> None:
    """Bad input 23."""
    place.enqueue("quick")
    kept = place.space.value("SELECT contract FROM fencerow.space")
    place.space.connection.execute(change.encode())
    try:
        worker = place.worker(wait=False)
        code = worker.ended()
    finally:
        place.space.connection.execute(undo.encode())
        place.space.connection.execute("UPDATE fencerow.space SET contract = %s", (kept,))

    assert code == 3, worker.said
    assert told in worker.said
    assert "Traceback" not in worker.said
    assert place.space.value("SELECT count(*) FROM fencerow.ready") == 1


@pytest.mark.parametrize(
    ("dsn", "told"),
    [
        ("postgresql://fencerow@/nowhere?host={host}", 'database "nowhere" does not exist'),
        ("postgresql://nobody@/fencerow?host={host}", 'role "nobody" does not exist'),
    ],
    ids=["database", "role"],
)
def test_a_database_that_is_not_there_ends_it_with_one_line(
    place: Place, fencerow_cluster: Cluster, dsn: str, told: str
) -> None:
    """C029, bad input 22."""
    worker = place.worker(wait=False, dsn=dsn.format(host=fencerow_cluster.sockets))

    assert worker.ended() == 3
    lines = [line for line in worker.said.splitlines() if not line.startswith("database:")]
    assert len(lines) == 1, worker.said
    assert told in lines[0]


@pytest.mark.slow
def test_a_password_that_became_wrong_ends_a_running_worker(place: Place, server: Cluster) -> None:
    """C029: what waiting cannot cure is met while it works, three times in a row. Slow: back-off passes."""
    place.space.connection.execute("CREATE ROLE passing LOGIN SUPERUSER")
    try:
        worker = place.worker(dsn=f"postgresql://passing@/fencerow?host={server.sockets}")
        place.space.connection.execute("ALTER ROLE passing NOLOGIN")
        place.space.connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'passing'"
        )
        assert worker.ended() == 3
        assert "is not permitted to log in" in worker.said
    finally:
        place.space.connection.execute("DROP ROLE passing")
