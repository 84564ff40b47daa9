"""Claim, cancel, complete, promote, redrive, purge and unique keys on one ticket at once: one gets it, the other is told."""

import pytest
from psycopg.errors import LockNotAvailable

from fencerow.errors import Duplicate, ResourceBusy
from fencerow.ops import jobs
from fencerow.testing.clock import Clock
from fencerow.testing.sessions import SessionThread
from fencerow.testing.space import Space
from fencerow.types import Unique
from tests.sql.steps import A, B, claim, enqueue, job, lease, running, settle, settlement, state


@pytest.fixture
def two(patient: Space) -> tuple[SessionThread, SessionThread]:
    """The one who acts first, in a transaction that is open, and the one who comes second."""
    first, second = SessionThread(patient, name="first"), SessionThread(patient, name="second")
    first.begin()
    return first, second


Two = tuple[SessionThread, SessionThread]


@pytest.mark.parametrize(("commits", "answer"), [(True, "requested"), (False, "cancelled")])
def test_cancel_waits_for_a_claim_and_looks_again(
    patient: Space, two: Two, commits: bool, answer: str
) -> None:
    first, second = two
    (job_id,) = enqueue(patient)
    lease(patient)
    assert len(first.run(jobs.claim(A, "default", limit=1))) == 1
    asking = second.start(jobs.cancel(job_id))
    asking.wait_until_blocked(first)
    first.commit() if commits else first.rollback()

    assert asking.answer() == answer
    assert state(patient, job_id)[0] == ("running" if commits else "cancelled")


@pytest.mark.parametrize("commits", [True, False])
def test_claim_passes_over_a_job_that_is_being_cancelled(patient: Space, two: Two, commits: bool) -> None:
    first, _ = two
    (job_id,) = enqueue(patient)
    lease(patient)
    assert first.run(jobs.cancel(job_id)) == "cancelled"

    assert claim(patient) == []
    first.commit() if commits else first.rollback()
    assert len(claim(patient)) == (0 if commits else 1)


@pytest.mark.parametrize(("commits", "answer"), [(True, "done"), (False, "requested")])
def test_cancel_waits_for_a_completion(patient: Space, two: Two, commits: bool, answer: str) -> None:
    first, second = two
    held = running(patient)
    first.run(jobs.settle([settlement(held, "complete")]))
    asking = second.start(jobs.cancel(held.job_id))
    asking.wait_until_blocked(first)
    first.commit() if commits else first.rollback()

    assert asking.answer() == answer


def test_completion_beside_a_cancel_request_ends_done_and_says_so(patient: Space, two: Two) -> None:
    """C015."""
    first, second = two
    held = running(patient)
    assert first.run(jobs.cancel(held.job_id)) == "requested"
    asking = second.start(jobs.settle([settlement(held, "complete")]))
    asking.wait_until_blocked(first)
    first.commit()

    assert asking.answer()[0].verdict == "accepted"
    assert patient.rows("SELECT outcome, cancel_requested FROM fencerow.ended") == [("done", True)]


def test_cancel_follows_a_ticket_that_is_promoted_under_it(patient: Space, two: Two, clock: Clock) -> None:
    first, second = two
    (job_id,) = enqueue(patient, run_in=5.0)
    clock.advance(10)
    assert first.run(jobs.promote()) == 1
    asking = second.start(jobs.cancel(job_id))
    asking.wait_until_blocked(first)
    first.commit()

    assert asking.answer() == "cancelled"
    assert patient.rows("SELECT FROM fencerow.ready") == []


def test_cancel_does_not_wait_past_its_timeout(space: Space) -> None:
    held = running(space)
    handler, operator = SessionThread(space), SessionThread(space)
    handler.begin()
    handler.run(jobs.enter(held))

    with pytest.raises(ResourceBusy):
        operator.run(jobs.cancel(held.job_id))
    handler.rollback()
    assert operator.run(jobs.cancel(held.job_id)) == "requested"


def test_promote_passes_over_a_ticket_that_is_being_cancelled(patient: Space, two: Two, clock: Clock) -> None:
    first, _ = two
    job_id, other = enqueue(patient, 2, run_in=5.0)
    clock.advance(10)
    first.run(jobs.cancel(job_id))

    assert patient.run(jobs.promote()) == 1
    first.rollback()
    assert patient.run(jobs.promote()) == 1
    assert (state(patient, job_id)[0], state(patient, other)[0]) == ("ready", "ready")


@pytest.mark.parametrize("commits", [True, False])
def test_replace_waits_for_a_claim_of_the_holder(patient: Space, two: Two, commits: bool) -> None:
    first, second = two
    (old,) = enqueue(patient, unique=Unique("k"))
    lease(patient)
    first.run(jobs.claim(A, "default", limit=1))
    asking = second.start(jobs.enqueue([job(unique=Unique("k", on_conflict="replace"))]))
    asking.wait_until_blocked(first)
    first.commit() if commits else first.rollback()

    (got,) = asking.answer()
    assert got.created is not commits
    assert state(patient, old)[0] == ("running" if commits else "cancelled")
    assert patient.rows("SELECT job_id FROM fencerow.unique_key") == [(got.id,)]


@pytest.mark.parametrize("commits", [True, False])
def test_extend_waits_for_a_claim_of_the_holder(patient: Space, two: Two, commits: bool) -> None:
    first, second = two
    (old,) = enqueue(patient, unique=Unique("k"))
    lease(patient)
    first.run(jobs.claim(A, "default", limit=1))
    asking = second.start(jobs.enqueue([job(unique=Unique("k", on_conflict="extend"), run_in=60.0)]))
    asking.wait_until_blocked(first)
    first.commit() if commits else first.rollback()

    assert asking.answer() == [(old, False)]
    assert state(patient, old)[0] == ("running" if commits else "scheduled")


@pytest.mark.parametrize("commits", [True, False])
def test_claim_takes_the_new_job_after_a_replacement(patient: Space, two: Two, commits: bool) -> None:
    first, _ = two
    (old,) = enqueue(patient, unique=Unique("k"))
    lease(patient)
    (new,) = first.run(jobs.enqueue([job(unique=Unique("k", on_conflict="replace"))]))

    assert claim(patient) == []
    first.commit() if commits else first.rollback()
    assert [c.job_id for c in claim(patient)] == [new.id if commits else old]


def test_second_replacement_waits_and_replaces_the_first_one(patient: Space, two: Two) -> None:
    first, second = two
    (old,) = enqueue(patient, unique=Unique("k"))
    again = jobs.enqueue([job(unique=Unique("k", on_conflict="replace"))])
    (middle,) = first.run(again)
    asking = second.start(again)
    asking.wait_until_blocked(first)
    first.commit()

    (last,) = asking.answer()
    assert [state(patient, n)[0] for n in (old, middle.id, last.id)] == ["cancelled", "cancelled", "ready"]


@pytest.mark.parametrize("until", ["finished", "started"])
@pytest.mark.parametrize("commits", [True, False])
def test_enqueue_waits_for_whoever_frees_the_key(patient: Space, two: Two, until: str, commits: bool) -> None:
    first, second = two
    (old,) = enqueue(patient, unique=Unique("k", until))  # type: ignore[arg-type]
    lease(patient)
    if until == "started":
        first.run(jobs.claim(A, "default", limit=1))
    else:
        first.run(jobs.settle([settlement(claim(patient)[0], "complete")]))
    asking = second.start(jobs.enqueue([job(unique=Unique("k", until))]))  # type: ignore[arg-type]
    asking.wait_until_blocked(first)
    first.commit() if commits else first.rollback()

    (got,) = asking.answer()
    assert got.created is commits
    assert (got.id == old) is not commits


def test_job_is_redriven_once_by_two(patient: Space, two: Two) -> None:
    first, second = two
    held = running(patient)
    settle(patient, held, "fail")
    assert first.run(jobs.redrive(held.job_id)) == "ready"
    asking = second.start(jobs.redrive(held.job_id))
    asking.wait_until_blocked(first)
    first.commit()

    assert asking.answer() == "ready"
    assert patient.rows("SELECT count(*) FROM fencerow.ready") == [(1,)]
    assert patient.rows("SELECT count(*) FROM fencerow.intervention") == [(1,)]


def test_purge_passes_over_a_job_that_is_being_redriven(patient: Space, two: Two) -> None:
    first, _ = two
    held = running(patient)
    settle(patient, held, "fail")
    patient.rows("UPDATE fencerow.ended SET ended_at = ended_at - interval '100 days'")
    first.run(jobs.redrive(held.job_id))

    assert patient.run(jobs.purge()) == (0, None)
    first.commit()
    assert patient.run(jobs.purge()) == (0, None)
    assert state(patient, held.job_id) == ("ready", 1, 0)


def test_redrive_waits_for_a_purge_and_finds_nothing(patient: Space, two: Two) -> None:
    first, second = two
    held = running(patient)
    settle(patient, held, "fail")
    patient.rows("UPDATE fencerow.ended SET ended_at = ended_at - interval '100 days'")
    assert first.run(jobs.purge()) == (1, held.job_id)
    asking = second.start(jobs.redrive(held.job_id))
    asking.wait_until_blocked(first)
    first.commit()

    assert asking.answer() == "unknown"


@pytest.mark.parametrize("commits", [True, False])
def test_redrive_waits_for_an_enqueue_that_takes_its_key(patient: Space, two: Two, commits: bool) -> None:
    first, second = two
    held = running(patient, unique=Unique("k"))
    settle(patient, held, "fail")
    (new,) = first.run(jobs.enqueue([job(unique=Unique("k"))]))
    asking = second.start(jobs.redrive(held.job_id))
    asking.wait_until_blocked(first)
    first.commit() if commits else first.rollback()

    if commits:
        error = asking.error()
        assert isinstance(error, Duplicate)
        assert error.job_id == new.id
        assert state(patient, held.job_id)[0] == "failed"
    else:
        assert asking.answer() == "ready"


def test_purge_does_not_wait_for_a_key_that_changes_hands(patient: Space, two: Two, clock: Clock) -> None:
    """Purge and enqueue_many over the same expired keys, in opposite order, would wait for each other for ever."""
    first, _ = two
    for key in ("b", "a"):
        enqueue(patient, unique=Unique(key, 10))
    lease(patient)
    settle(patient, claim(patient, limit=2))
    clock.advance(86400 * 10)
    (new,) = first.run(jobs.enqueue([job(unique=Unique("a", 10))]))
    assert new.created

    assert patient.run(jobs.purge())[0] == 2
    assert [e.created for e in first.run(jobs.enqueue([job(unique=Unique("b", 10))]))] == [True]
    first.commit()
    assert patient.rows("SELECT key FROM fencerow.unique_key ORDER BY 1") == [("a",), ("b",)]


def test_claim_passes_over_locked_tickets_and_a_report_counts_the_rest(space: Space) -> None:
    """Lab skip-locked; C087: one ticket locked by anybody stalls nobody."""
    ids = enqueue(space, 2)
    lease(space)
    other = SessionThread(space)
    other.begin()
    other.sql("SELECT FROM fencerow.ready WHERE job_id = %s FOR UPDATE", (ids[0],))
    counted = "SELECT count(*) FROM (SELECT FROM fencerow.ready FOR UPDATE SKIP LOCKED) AS free"

    assert space.value(counted) == 1
    assert [c.job_id for c in claim(space, limit=2)] == [ids[1]]
    other.rollback()
    assert [c.job_id for c in claim(space, limit=2)] == [ids[0]]


@pytest.mark.parametrize("table", ["ready", "lease", "running"])
def test_claim_behind_a_table_lock_ends_in_time(space: Space, table: str) -> None:
    """C087, C088: SKIP LOCKED does not pass over a lock of the whole table; lock_timeout does."""
    enqueue(space)
    lease(space)
    other, claimer = SessionThread(space), SessionThread(space)
    other.begin()
    other.sql(f"LOCK TABLE fencerow.{table} IN ACCESS EXCLUSIVE MODE")

    error = claimer.start_sql("SELECT * FROM fencerow.claim(%s, 'default', 1)", (A,)).error()
    assert isinstance(error, LockNotAvailable)
    other.rollback()
    assert len(claim(space)) == 1


def test_pause_is_seen_by_every_claim_after_its_commit(patient: Space, two: Two) -> None:
    first, _ = two
    enqueue(patient, 2)
    lease(patient)
    lease(patient, B)
    first.sql("SELECT fencerow.pause('default')")
    assert len(claim(patient)) == 1
    first.commit()

    assert claim(patient, B) == []


def test_claim_does_not_wait_for_an_enqueue_that_lost_a_key(patient: Space, clock: Clock) -> None:
    """
    I5: who came second for a key past its time must not keep the winner's row of that key locked.

    A gate holds the loser between its look at the key and its update of it, while the winner takes the key.
    """
    patient.rows(GATE)
    patient.at_end(lambda: patient.rows("DROP FUNCTION gate() CASCADE"))
    enqueue(patient, unique=Unique("k", 10))
    clock.advance(11)
    keeper, loser, claimer = (
        SessionThread(patient),
        SessionThread(patient, name="gated"),
        SessionThread(patient),
    )
    keeper.sql("SELECT pg_advisory_lock(4711)")
    loser.begin()
    asking = loser.start(jobs.enqueue([job(unique=Unique("k", "started"))]))
    asking.wait_until_blocked(keeper)
    (won,) = patient.run(jobs.enqueue([job(unique=Unique("k", "started"))]))
    assert won.created
    keeper.sql("SELECT pg_advisory_unlock(4711)")
    assert asking.answer() == [(won.id, False)]

    lease(patient)
    claiming = claimer.start(jobs.claim(A, "default", limit=5))
    assert not claiming.blocked()
    assert won.id in [held.job_id for held in claiming.answer()]
    loser.rollback()


GATE = """
CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('application_name') = 'gated' THEN PERFORM pg_advisory_xact_lock(4711); END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER gate BEFORE UPDATE ON fencerow.unique_key EXECUTE FUNCTION gate()
"""
