"""Claim, renew and sweep beside each other: the lease row orders them, and no ticket is ever without its lease."""

import pytest

from fencerow.errors import ResourceBusy
from fencerow.ops import jobs, workers
from fencerow.testing.clock import Clock
from fencerow.testing.sessions import SessionThread
from fencerow.testing.space import Space
from tests.sql.steps import A, B, claim, enqueue, expire, lease, running, settle, state


def orphans(space: Space) -> int:
    """Running tickets that no sweep can ever find."""
    count: int = space.value(
        "SELECT count(*) FROM fencerow.running AS r WHERE NOT EXISTS (SELECT FROM fencerow.lease AS l WHERE l.id = r.lease_id)"
    )
    return count


def test_claim_that_commits_after_the_end_of_its_lease_leaves_no_orphan(space: Space, clock: Clock) -> None:
    (job_id,) = enqueue(space)
    lease(space)
    claimer = SessionThread(space)
    claimer.begin()
    assert len(claimer.run(jobs.claim(A, "default", limit=1))) == 1
    clock.advance(31)

    assert expire(space) == {}
    assert space.value("SELECT count(*) FROM fencerow.lease") == 1
    claimer.commit()
    assert orphans(space) == 0
    assert expire(space) == {job_id: "ready"}
    assert space.value("SELECT count(*) FROM fencerow.lease") == 0


@pytest.mark.parametrize("commits", [True, False])
def test_claim_beside_the_sweep_of_its_lease_takes_nothing_and_does_not_wait(
    space: Space, clock: Clock, commits: bool
) -> None:
    held = running(space)
    enqueue(space)
    clock.advance(31)
    sweeper = SessionThread(space)
    sweeper.begin()
    assert len(sweeper.run(jobs.expire())) == 1

    # The claim's snapshot still shows a lease; a clock set back shows it alive. Its row is locked, and that decides.
    clock.advance(-20)
    assert claim(space, A) == []
    sweeper.commit() if commits else sweeper.rollback()

    assert orphans(space) == 0
    assert len(claim(space, A)) == (0 if commits else 1)
    assert state(space, held.job_id)[0] == ("ready" if commits else "running")


def test_sweep_beside_an_uncommitted_renewal_leaves_the_jobs_alone(space: Space, clock: Clock) -> None:
    held = running(space)
    renewer = SessionThread(space)
    renewer.begin()
    clock.advance(20)
    assert renewer.run(workers.renew(A)) is not None
    clock.advance(20)

    assert expire(space) == {}
    renewer.commit()
    assert expire(space) == {}
    assert settle(space, held) == ["accepted"]


def test_sweep_after_a_renewal_that_was_rolled_back_takes_the_jobs(space: Space, clock: Clock) -> None:
    held = running(space)
    renewer = SessionThread(space)
    renewer.begin()
    clock.advance(20)
    assert renewer.run(workers.renew(A)) is not None
    clock.advance(20)
    renewer.rollback()

    assert expire(space) == {held.job_id: "ready"}


@pytest.mark.parametrize(("commits", "alive"), [(True, False), (False, True)])
def test_renewal_waits_for_whoever_holds_its_lease_and_reads_the_clock_afterwards(
    patient: Space, clock: Clock, commits: bool, alive: bool
) -> None:
    """C013: what is answered is counted from after the wait."""
    running(patient)
    holder, renewer = SessionThread(patient), SessionThread(patient)
    clock.stop()
    holder.begin()
    holder.sql("DELETE FROM fencerow.lease") if commits else holder.sql(
        "SELECT FROM fencerow.lease FOR UPDATE"
    )
    asking = renewer.start(workers.renew(A))
    asking.wait_until_blocked(holder)
    clock.advance(29)
    holder.commit() if commits else holder.rollback()

    renewal = asking.answer()
    assert (renewal is not None) is alive
    if renewal is not None:
        assert renewal.seconds == 30
        assert patient.value("SELECT extract(epoch FROM until - fencerow.now()) FROM fencerow.lease") == 30


def test_renewal_does_not_wait_past_its_timeout(space: Space) -> None:
    running(space)
    holder, renewer = SessionThread(space), SessionThread(space)
    holder.begin()
    holder.sql("SELECT FROM fencerow.lease FOR UPDATE")

    with pytest.raises(ResourceBusy):
        renewer.run(workers.renew(A))
    holder.rollback()
    assert renewer.run(workers.renew(A)) is not None


def test_renewal_does_not_wait_for_an_open_claim_or_commit(space: Space) -> None:
    held = running(space)
    enqueue(space)
    claimer, handler, renewer = (SessionThread(space) for _ in range(3))
    claimer.begin()
    assert len(claimer.run(jobs.claim(A, "default", limit=1))) == 1
    handler.begin()
    handler.run(jobs.enter(held))

    assert renewer.run(workers.renew(A)) is not None
    assert claim(space, A) == []


def test_sweep_passes_over_the_ticket_of_an_open_commit(space: Space, clock: Clock) -> None:
    held = running(space)
    enqueue(space)
    other = claim(space)[0]
    handler = SessionThread(space)
    handler.begin()
    handler.run(jobs.enter(held))
    clock.advance(31)

    assert expire(space) == {other.job_id: "ready"}
    assert space.value("SELECT count(*) FROM fencerow.lease") == 1
    handler.rollback()
    assert expire(space) == {held.job_id: "ready"}


def test_second_entry_of_the_same_commit_waits_for_the_first(patient: Space) -> None:
    held = running(patient)
    first, second = SessionThread(patient), SessionThread(patient)
    first.begin()
    first.run(jobs.enter(held))
    asking = second.start(jobs.enter(held))
    asking.wait_until_blocked(first)
    first.commit()

    asking.answer()


def test_lost_reply_of_a_claim_is_found_by_the_next_renewal(space: Space, clock: Clock) -> None:
    """Lab renewal, lost-reply: nothing else would ever find a claim whose reply was lost while its lease is renewed."""
    enqueue(space, 2)
    lease(space)
    lease(space, B)
    known, surplus = claim(space, limit=1)[0], claim(space, limit=1)[0]
    digest = space.value(
        "SELECT encode(sha256(convert_to(%s, 'UTF8')), 'hex')", (f"{known.job_id}:{known.generation}",)
    )
    clock.advance(20)

    renewal = space.run(workers.renew(A, digest))
    assert renewal is not None
    assert renewal.tickets == {known.job_id: 1, surplus.job_id: 1}
    assert space.run(jobs.adopt(B, [surplus.job_id])) == []
    (adopted,) = space.run(jobs.adopt(A, [surplus.job_id]))
    assert adopted._replace(fence=0, queue="default") == surplus._replace(fence=0)
    assert adopted.fence > surplus.fence
    assert settle(space, adopted) == ["accepted"]
    clock.advance(31)
    assert space.run(jobs.adopt(A, [known.job_id])) == []


def test_two_sweeps_take_each_lost_job_once(space: Space, clock: Clock) -> None:
    """C004 (c)."""
    enqueue(space, 4)
    lease(space)
    lease(space, B)
    ids = [c.job_id for c in claim(space, A, limit=2) + claim(space, B, limit=2)]
    clock.advance(31)
    first, second = SessionThread(space), SessionThread(space)
    first.begin()
    took = [*first.run(jobs.expire(1)), *second.run(jobs.expire())]
    first.commit()
    took += [*second.run(jobs.expire())]

    assert sorted(lost.job_id for lost in took) == ids
    assert space.value("SELECT count(*) FROM fencerow.attempt") == 4


@pytest.mark.parametrize("between", ["complete", "reclaim"])
def test_sweep_beside_a_settlement_changes_nothing(space: Space, clock: Clock, between: str) -> None:
    """C004 (a), (b): the settlement began while the lease lived and commits after its end."""
    held = running(space)
    worker = SessionThread(space)
    worker.begin()
    verb = "complete" if between == "complete" else "release"
    worker.sql(f"SELECT * FROM fencerow.{verb}(%s, ARRAY[%s], ARRAY[1])", (A, held.job_id))
    clock.advance(31)

    assert expire(space) == {}
    worker.commit()
    assert expire(space) == {}
    assert state(space, held.job_id)[0] == ("done" if between == "complete" else "ready")
    assert space.value("SELECT count(*) FROM fencerow.lease") == 0


def test_clock_set_back_cuts_leases_and_leaves_nothing_stuck(space: Space, clock: Clock) -> None:
    """Lab database-clock: a dead worker's job runs again within one lease of the clock being set back."""
    clock.advance(3600)
    held = running(space)
    clock.advance(-3600)
    assert expire(space) == {}
    left = space.value("SELECT extract(epoch FROM until - fencerow.now()) FROM fencerow.lease")
    assert 29 < left <= 30
    clock.advance(31)
    assert expire(space) == {held.job_id: "ready"}


def test_sweep_that_stood_still_does_not_shorten_a_renewed_lease(space: Space, clock: Clock) -> None:
    """
    The sweep reads the clock, is held up, and meets a lease that was renewed since: it is as long as promised.

    A gate on the queue of locks holds it: its first statement on the leases waits for an exclusive table lock.
    """
    lease(space, A, seconds=30)
    clock.stop()
    gate, sweeper = SessionThread(space), SessionThread(space)
    gate.begin()
    gate.sql("LOCK TABLE fencerow.lease IN EXCLUSIVE MODE")
    asking = sweeper.start(jobs.expire())
    asking.wait_until_blocked(gate)
    clock.advance(10)
    assert gate.run(workers.renew(A)) is not None
    promised = gate.sql("SELECT until FROM fencerow.lease")
    gate.commit()
    asking.answer()

    assert space.rows("SELECT until FROM fencerow.lease") == promised


def test_sweep_goes_on_when_a_lease_is_already_among_the_past(space: Space) -> None:
    """A lease opened again while the sweep moved it away must not stop every later sweep at the key of past_lease."""
    running(space)
    space.rows("INSERT INTO fencerow.past_lease (id, worker, ended_at) VALUES (%s, 'a', now())", (A,))
    space.rows("UPDATE fencerow.lease SET until = fencerow.now()")

    assert len(expire(space)) == 1
    assert space.rows("SELECT FROM fencerow.lease") == []
    space.rows("INSERT INTO fencerow.lease (id, until, length, worker) VALUES (%s, now(), '1 s', 'a')", (A,))
    assert space.run(workers.close_lease(A)) is True
