"""
Seven things that can happen to a claim while its settlement waits for the ticket, and the one right verdict for each.

The order is forced: a blocker holds the ticket, the server says that the settlement waits, then the world changes.
"""

from collections.abc import Callable
from typing import Any

import pytest

from fencerow.errors import ClaimLost
from fencerow.ops import jobs, workers
from fencerow.ops.base import Op
from fencerow.store.session import run_on
from fencerow.testing.clock import Clock
from fencerow.testing.sessions import Asking, SessionThread
from fencerow.testing.space import Space
from fencerow.types import Claim
from tests.sql.steps import A, claim, enqueue, lease, refusals, running, settle, settlement, state

World = Callable[[Space, Clock, SessionThread, Claim], None]
LOCK = "SELECT FROM fencerow.running WHERE job_id = %s FOR UPDATE"
TOUCH = "UPDATE fencerow.running SET note = 'touched' WHERE job_id = %s"


def _nothing(space: Space, clock: Clock, blocker: SessionThread, held: Claim) -> None:
    clock.advance(29)


def _lease_ends(space: Space, clock: Clock, blocker: SessionThread, held: Claim) -> None:
    clock.advance(30)


def _lease_is_renewed(space: Space, clock: Clock, blocker: SessionThread, held: Claim) -> None:
    clock.advance(20)
    assert space.run(workers.renew(A)) is not None
    clock.advance(20)


def _lease_is_forced_to_its_end(space: Space, clock: Clock, blocker: SessionThread, held: Claim) -> None:
    space.rows("UPDATE fencerow.lease SET until = fencerow.now()")


def _lease_is_removed(space: Space, clock: Clock, blocker: SessionThread, held: Claim) -> None:
    space.rows("DELETE FROM fencerow.lease")


def _claimed_again(space: Space, clock: Clock, blocker: SessionThread, held: Claim) -> None:
    blocker.sql("UPDATE fencerow.lease SET until = fencerow.now()")
    assert [lost.fate for lost in blocker.run(jobs.expire())] == ["ready"]
    blocker.run(workers.open_lease(8001, "b", seconds=30, alone=True))
    assert len(blocker.run(jobs.claim(8001, "default", limit=1, alone=True))) == 1


def _swept(space: Space, clock: Clock, blocker: SessionThread, held: Claim) -> None:
    blocker.sql("UPDATE fencerow.lease SET until = fencerow.now()")
    assert len(blocker.run(jobs.expire())) == 1


INTERLEAVINGS: dict[str, tuple[str, World, str]] = {
    "it only locks, the lease lives": (LOCK, _nothing, "accepted"),
    "it only locks, the lease ends in the wait": (LOCK, _lease_ends, "expired"),
    "renewed in the wait, the old end passes": (LOCK, _lease_is_renewed, "accepted"),
    "the lease is forced to its end": (LOCK, _lease_is_forced_to_its_end, "expired"),
    "the lease is removed": (LOCK, _lease_is_removed, "expired"),
    "it updates the ticket, the lease lives": (TOUCH, _nothing, "accepted"),
    "the ticket is claimed again": (LOCK, _claimed_again, "superseded"),
    "it updates the ticket, the lease ends in the wait": (TOUCH, _lease_ends, "expired"),
    "it updates the ticket, renewed in the wait": (TOUCH, _lease_is_renewed, "accepted"),
    "the ticket is swept": (LOCK, _swept, "expired"),
}


def _start(session: SessionThread, write: str, held: Claim) -> Asking[str]:
    if write == "progress":
        return session.call(lambda: session_run(session, jobs.progress(held, 0.5, "late")).verdict)
    if write == "enter":
        return session.call(lambda: _entered(session, held))
    return session.call(lambda: session_run(session, jobs.settle([settlement(held, write)]))[0].verdict)


def session_run(session: SessionThread, op: Op[Any]) -> Any:
    return run_on(session.connection, op)


def _entered(session: SessionThread, held: Claim) -> str:
    try:
        session_run(session, jobs.enter(held))
    except ClaimLost as lost:
        return lost.verdict
    return "accepted"


@pytest.mark.parametrize("write", ["complete", "retry", "snooze", "progress", "enter"])
@pytest.mark.parametrize("case", INTERLEAVINGS)
def test_settle_waits_and_then_decides_by_what_is_true_after_the_wait(
    patient: Space, clock: Clock, write: str, case: str
) -> None:
    space = patient
    lock, world, verdict = INTERLEAVINGS[case]
    held = running(space)
    blocker, settler = SessionThread(space, name="blocker"), SessionThread(space, name="settler")
    blocker.begin()
    blocker.sql(lock, (held.job_id,))
    asking = _start(settler, write, held)
    asking.wait_until_blocked(blocker)

    world(space, clock, blocker, held)
    blocker.commit()

    assert asking.answer() == verdict
    assert space.value("SELECT count(*) FROM fencerow.ended") == (
        write == "complete" and verdict == "accepted"
    )
    assert len(refusals(space)) == (verdict != "accepted" and write != "enter")


@pytest.mark.parametrize(("commits", "verdict"), [(True, "already"), (False, "accepted")])
def test_settle_sent_again_waits_for_the_first_one(patient: Space, commits: bool, verdict: str) -> None:
    """I11: after a lost reply the repeated write is told what became of the first."""
    held = running(patient)
    first, second = SessionThread(patient), SessionThread(patient)
    first.begin()
    assert first.run(jobs.settle([settlement(held, "complete", result="1")]))[0].verdict == "accepted"
    asking = second.start(jobs.settle([settlement(held, "complete", result="1")]))
    asking.wait_until_blocked(first)

    first.commit() if commits else first.rollback()

    assert asking.answer()[0].verdict == verdict
    assert state(patient, held.job_id) == ("done", 1, 1)


@pytest.mark.parametrize(("commits", "found"), [(True, "accepted"), (False, "open")])
def test_outcome_waits_for_the_undecided_settlement(patient: Space, commits: bool, found: str) -> None:
    held = running(patient)
    first, second = SessionThread(patient), SessionThread(patient)
    first.begin()
    first.run(jobs.enter(held))
    first.run(jobs.settle([settlement(held, "complete")]))
    asking = second.start(jobs.outcome(held))
    asking.wait_until_blocked(first)

    first.commit() if commits else first.rollback()

    assert asking.answer() == found


def test_outcome_of_a_lost_claim_is_lost(patient: Space, clock: Clock) -> None:
    held = running(patient)
    clock.advance(31)
    patient.run(jobs.expire())

    assert patient.run(jobs.outcome(held)) == "lost"


def test_batches_in_opposite_order_wait_for_each_other_and_do_not_deadlock(patient: Space) -> None:
    enqueue(patient, 4)
    lease(patient)
    held = claim(patient, limit=4)
    first, second, blocker = (SessionThread(patient) for _ in range(3))
    blocker.begin()
    blocker.sql(LOCK, (held[1].job_id,))
    up = first.start(jobs.settle([settlement(c, "complete") for c in held]))
    up.wait_until_blocked(blocker)
    down = second.start(jobs.settle([settlement(c, "complete") for c in reversed(held)]))
    down.wait_until_blocked(first)
    blocker.rollback()

    assert [a.verdict for a in up.answer()] == ["accepted"] * 4
    assert [a.verdict for a in down.answer()] == ["already"] * 4


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_business_change_commits_with_the_completion_or_not_at_all(
    patient: Space, clock: Clock, moment: str
) -> None:
    """I10, lab commit-together: the lease is lost before, between and after the statements of job.commit()."""
    space = patient
    space.rows("CREATE TABLE IF NOT EXISTS orders (id bigint); TRUNCATE orders")
    held = running(space)
    other = SessionThread(space, name="handler")
    other.begin()
    lost: BaseException | str | None = None
    if moment == "before":
        clock.advance(31)
    entering = other.start(jobs.enter(held))
    if moment == "before":
        lost = entering.error()
        assert isinstance(lost, ClaimLost)
    else:
        entering.answer()
        other.sql("INSERT INTO orders VALUES (1)")
        if moment == "between":
            clock.advance(31)
        assert [x.fate for x in space.run(jobs.expire())] == []
        verdict = other.run(jobs.settle([settlement(held, "complete")]))[0].verdict
        assert verdict == ("expired" if moment == "between" else "accepted")
        lost = verdict if verdict != "accepted" else None
    if moment == "after":
        clock.advance(31)
        assert space.run(jobs.expire()) == []
    other.rollback() if lost else other.commit()

    done = moment == "after"
    assert space.value("SELECT count(*) FROM orders") == done
    assert [x.fate for x in space.run(jobs.expire())] == ([] if done else ["ready"])
    assert state(space, held.job_id)[0] == ("done" if done else "ready")
    space.rows("DROP TABLE orders")


def test_control_without_one_transaction_the_business_change_stays(space: Space, clock: Clock) -> None:
    """What job.commit() is for: a change committed before a refused completion is not undone."""
    space.rows("CREATE TABLE IF NOT EXISTS orders (id bigint); TRUNCATE orders")
    held = running(space)
    space.rows("INSERT INTO orders VALUES (1)")
    clock.advance(31)

    assert settle(space, held) == ["expired"]
    assert space.value("SELECT count(*) FROM orders") == 1
    space.rows("DROP TABLE orders")
