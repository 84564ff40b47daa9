"""The road of a job as the seed tells it: who holds what, printed as id|generation."""

from datetime import timedelta

from fencerow.ops import jobs, workers
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space
from fencerow.types import Settlement
from tests.sql.steps import A, B, C, answers, claim, enqueue, expire, forged, lease, refusals, settle, state


def test_transcript_of_the_stale_worker(space: Space, clock: Clock) -> None:
    """C001: the claim passes over a locked ticket, the lease ends, and only the second generation completes, once."""
    first, second = enqueue(space, 2)
    for worker in (A, B, C):
        lease(space, worker)
    blocker = space.connect(autocommit=False)
    blocker.execute("SELECT FROM fencerow.ready WHERE job_id = %s FOR UPDATE", (first,))

    printed = [held.name for held in claim(space, B)]
    assert printed == [f"{second}|1"]
    blocker.rollback()
    stale = claim(space, A)[0]
    assert stale.name == f"{first}|1"

    clock.advance(31)
    lease(space, C)
    space.run(workers.renew(C))
    assert expire(space) == {first: "ready", second: "ready"}
    alone = space.run(workers.open_lease(8001, "c", seconds=30, alone=True))
    assert alone is not None
    fresh = claim(space, 8001, alone=True)[0]
    assert fresh.name == f"{first}|2"

    late = answers(space, [stale], "complete")[0]
    assert (late.verdict, late.current, late.state, late.owner) == ("superseded", 2, "running", "c")
    assert space.rows("SELECT FROM fencerow.ended") == []
    assert settle(space, fresh) == ["accepted"]
    assert space.rows("SELECT job_id, generation, outcome FROM fencerow.ended") == [(first, 2, "done")]
    assert settle(space, fresh) == ["already"]
    assert refusals(space) == [(first, 1, "a", "complete", "superseded", 2)]


def test_settle_is_expired_when_the_lease_is_over_and_nobody_reclaimed(space: Space, clock: Clock) -> None:
    enqueue(space)
    lease(space)
    held = claim(space)[0]
    clock.advance(30)

    assert settle(space, held) == ["expired"]
    assert state(space, held.job_id) == ("running", 1, 1)
    expire(space)
    assert settle(space, held) == ["expired"]
    assert state(space, held.job_id) == ("ready", 1, 1)


def test_settle_is_unknown_when_there_is_no_such_job(space: Space) -> None:
    enqueue(space)
    lease(space)
    held = claim(space)[0]

    assert settle(space, forged(held, job_id=10**15)) == ["unknown"]
    assert refusals(space) == [(10**15, 1, "a", "complete", "unknown", None)]


def test_settle_is_refused_when_its_proof_is_another_jobs(space: Space) -> None:
    """Bad input 19: a generation of another job, one far ahead, a lease of somebody else."""
    enqueue(space, 2)
    lease(space)
    lease(space, B)
    first, second = claim(space, limit=2)
    settle(space, first, "release")
    again = claim(space)[0]
    assert again.name == f"{first.job_id}|2"

    assert settle(space, forged(second, generation=2)) == ["expired"]
    assert settle(space, forged(second, generation=2**62)) == ["expired"]
    assert settle(space, forged(second, generation=-1)) == ["superseded"]
    assert settle(space, forged(second, lease=B)) == ["expired"]
    assert settle(space, forged(second, lease=-(2**63))) == ["expired"]
    assert state(space, second.job_id) == ("running", 1, 1)


def test_lease_of_the_same_worker_name_gives_no_authority(space: Space, clock: Clock) -> None:
    """C001, C022: a worker's name is no proof; the old lease of the same name is refused, the new one untouched."""
    enqueue(space)
    lease(space)
    old = claim(space)[0]
    clock.advance(31)
    expire(space)
    space.run(workers.open_lease(9001, "a", seconds=30, alone=True))
    new = claim(space, 9001, alone=True)[0]

    for verb in ("release", "fail", "complete", "snooze", "retry", "lost", "cancelled"):
        assert settle(space, old, verb) == ["superseded"]
    assert space.run(jobs.progress(old, 0.5, None)).verdict == "superseded"
    assert space.run(workers.renew(A)) is None
    assert space.value("SELECT count(*) FROM fencerow.refusal") == 8
    assert settle(space, new) == ["accepted"]


def test_answers_come_in_the_order_of_the_inputs(space: Space) -> None:
    enqueue(space, 4)
    lease(space)
    one, two, three, four = claim(space, limit=4)
    settle(space, two)
    asked = [four, forged(one, generation=7), two, three, one, four, forged(three, job_id=999)]

    found = answers(space, asked, "complete")

    assert [(answer.job_id, answer.generation) for answer in found] == [
        (c.job_id, c.generation) for c in asked
    ]
    assert [a.verdict for a in found] == [
        "accepted", "settled", "already", "accepted", "accepted", "already", "unknown",
    ]  # fmt: skip


def test_write_repeated_in_one_batch_is_already_only_when_it_is_the_same(space: Space) -> None:
    enqueue(space, 2)
    lease(space)
    one, two = claim(space, limit=2)
    same = jobs.settle([Settlement(one, "complete", result="1") for _ in range(2)])
    other = jobs.settle([Settlement(two, "complete", result=text) for text in ("1", "2")])

    assert [a.verdict for a in space.run(same)] == ["accepted", "already"]
    assert [a.verdict for a in space.run(other)] == ["accepted", "settled"]
    assert space.rows("SELECT result FROM fencerow.ended") == [(1,), (1,)]


def test_progress_is_kept_only_under_the_fence(space: Space, clock: Clock) -> None:
    enqueue(space)
    lease(space)
    held = claim(space)[0]

    assert space.run(jobs.progress(held, 0.25, "read")).verdict == "accepted"
    assert space.rows("SELECT progress, note FROM fencerow.jobs") == [(0.25, "read")]
    clock.advance(31)
    assert space.run(jobs.progress(held, 0.5, "wrote")).verdict == "expired"
    assert space.rows("SELECT progress, note FROM fencerow.running") == [(0.25, "read")]


def test_lease_is_renewed_in_time_and_never_revived(space: Space, clock: Clock) -> None:
    lease(space)
    clock.stop()
    clock.advance(29)
    renewal = space.run(workers.renew(A))
    assert renewal is not None
    assert renewal.seconds == 30
    assert space.value("SELECT until - fencerow.now() FROM fencerow.lease") == timedelta(seconds=30)
    clock.advance(30)

    assert space.run(workers.renew(A)) is None
    assert space.run(workers.open_lease(A, "a", seconds=30)) is None
    expire(space)
    assert space.run(workers.open_lease(A, "a", seconds=30)) is None
    assert space.run(workers.renew(12345)) is None


def test_lease_opened_again_answers_the_same_and_only_its_worker(space: Space) -> None:
    lease(space)
    before = space.rows("SELECT id, until, worker FROM fencerow.lease")

    assert space.run(workers.open_lease(A, "a", seconds=30)) is not None
    assert space.run(workers.open_lease(A, "somebody else", seconds=30)) is None
    assert space.rows("SELECT id, until, worker FROM fencerow.lease") == before


def test_renewal_names_the_jobs_to_cancel_and_differences(space: Space) -> None:
    enqueue(space, 3)
    lease(space)
    held = claim(space, limit=3)
    digest = space.value("SELECT fencerow.held_digest(%s)", (A,))
    space.run(jobs.cancel(held[1].job_id))

    renewal = space.run(workers.renew(A, digest))
    assert renewal is not None
    assert (renewal.cancelling, renewal.tickets) == ((held[1].job_id,), None)
    settle(space, held[0])
    renewal = space.run(workers.renew(A, digest))
    assert renewal is not None
    assert renewal.tickets == {held[1].job_id: 1, held[2].job_id: 1}
    settle(space, held[1:])
    renewal = space.run(workers.renew(A, digest))
    assert renewal is not None
    assert renewal.tickets == {}
