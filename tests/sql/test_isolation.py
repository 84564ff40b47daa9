"""Ownership is decided under READ COMMITTED or not at all; only a keyless enqueue runs at any level (I15, C065)."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fencerow.errors import NotReadCommitted
from fencerow.ops import jobs, queues, workers
from fencerow.ops.base import Op
from fencerow.store.session import SyncSession, run_on
from fencerow.store.stores import SyncStore
from fencerow.testing.space import Space
from fencerow.types import Claim, Unique
from tests.sql.steps import A, B, enqueue, job, lease, running, settle, settlement

LEVELS = ("repeatable read", "serializable")


def operations(held: Claim) -> dict[str, Op[Any]]:
    """Every operation that reads a ticket, a lease or a key."""
    found: dict[str, Op[Any]] = {
        "claim": jobs.claim(A, "default", limit=1),
        "adopt": jobs.adopt(A, [held.job_id]),
        "progress": jobs.progress(held, 0.5, None),
        "enter": jobs.enter(held),
        "outcome": jobs.outcome(held),
        "expire": jobs.expire(),
        "promote": jobs.promote(),
        "cancel": jobs.cancel(held.job_id),
        "redrive": jobs.redrive(held.job_id),
        "purge": jobs.purge(),
        "pause": queues.pause("default"),
        "resume": queues.resume("default"),
        "open_lease": workers.open_lease(B, "b", seconds=30),
        "close_lease": workers.close_lease(A),
        "renew": workers.renew(A),
        "enqueue with idempotency key": jobs.enqueue([job(idempotency_key="x")]),
        "enqueue with unique key": jobs.enqueue([job(unique=Unique("k"))]),
    }
    for verb in ("complete", "fail", "retry", "snooze", "release", "lost", "cancelled"):
        found[verb] = jobs.settle([settlement(held, verb)])
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_every_decision_is_refused_under_a_stricter_level(space: Space, level: str) -> None:
    held = running(space)
    connection = space.connect(
        options=f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"
    )
    before = space.rows("SELECT (SELECT count(*) FROM fencerow.job), (SELECT count(*) FROM fencerow.lease)")
    for name, op in operations(held).items():
        with pytest.raises(NotReadCommitted, match="READ COMMITTED") as caught:
            run_on(connection, op)
        assert "BEGIN ISOLATION LEVEL READ COMMITTED" in caught.value.hint, name
    assert (
        space.rows("SELECT (SELECT count(*) FROM fencerow.job), (SELECT count(*) FROM fencerow.lease)")
        == before
    )
    assert settle(space, held) == ["accepted"]


@pytest.mark.parametrize("level", LEVELS)
def test_plain_enqueue_runs_at_any_level_beside_claims(space: Space, level: str) -> None:
    lease(space)
    connection = space.connect(autocommit=False)
    connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
    connection.execute("SELECT count(*) FROM fencerow.job")
    enqueue(space)
    space.run(jobs.claim(A, "default", limit=1))
    (got,) = run_on(connection, jobs.enqueue([job(queue="mail", run_in=5.0)]))
    run_on(connection, jobs.enqueue([job(queue="mail"), job()]))
    connection.commit()

    assert space.value("SELECT count(*) FROM fencerow.job") == 4
    assert got.created


def test_two_serializable_producers_do_not_disturb_each_other(space: Space) -> None:
    first, second = space.connect(autocommit=False), space.connect(autocommit=False)
    for connection in (first, second):
        connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    for connection in (first, second):
        run_on(connection, jobs.enqueue([job(), job(task="other")]))
    first.commit()
    second.commit()

    assert space.value("SELECT count(*) FROM fencerow.ready") == 4


@pytest.fixture(params=LEVELS)
def strict(space: Space, request: pytest.FixtureRequest) -> Iterator[Space]:
    """The space in a database whose default isolation a DBA has raised."""
    space.rows(f"ALTER DATABASE fencerow SET default_transaction_isolation = '{request.param}'")
    yield space
    space.rows("ALTER DATABASE fencerow RESET default_transaction_isolation")


def test_own_sessions_go_on_working_under_a_strict_default(strict: Space) -> None:
    session = SyncSession(strict.target)
    strict.at_end(session.close)
    session.run(workers.open_lease(A, "a", seconds=30))
    (entry,) = session.run(jobs.enqueue([job(unique=Unique("k"), idempotency_key="x")]))
    (held,) = session.run(jobs.claim(A, "default", limit=1))
    assert session.run(workers.renew(A)) is not None
    (answer,) = session.run(jobs.settle([settlement(held, "complete")]))

    assert (held.job_id, answer.verdict) == (entry.id, "accepted")
    assert session.connection is not None
    shown = session.connection.execute("SHOW default_transaction_isolation").fetchone()
    assert shown is not None
    assert shown[0] in LEVELS


def test_stores_remember_the_strict_default_and_rivals_get_every_job_once(strict: Space) -> None:
    """C065: no attempt is burnt and no 40001 surfaces."""
    enqueue(strict, 60)
    stores = [SyncStore(strict.target) for _ in range(3)]
    taken: list[int] = []
    for number, store in enumerate(stores):
        strict.at_end(store.close)
        store.run(workers.open_lease(100 + number, "w", seconds=30))
    while True:
        batch = [
            c for n, store in enumerate(stores) for c in store.run(jobs.claim(100 + n, "default", limit=7))
        ]
        if not batch:
            break
        taken += [c.job_id for c in batch]
        assert {c.attempt for c in batch} == {1}
    assert sorted(taken) == list(range(1, 61))


def test_refusal_under_a_strict_level_leaves_the_callers_transaction_to_the_caller(space: Space) -> None:
    connection = space.connect(autocommit=False)
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    with pytest.raises(NotReadCommitted):
        run_on(connection, jobs.enqueue([job(idempotency_key="x")]))
    assert connection.info.transaction_status is psycopg.pq.TransactionStatus.INERROR
    connection.rollback()
    assert run_on(connection, jobs.enqueue([job(idempotency_key="x")]))[0].created
