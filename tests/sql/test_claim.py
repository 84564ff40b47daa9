"""Which jobs a claim takes, in which order, and never more than its limit (I5)."""

import pytest
from psycopg.errors import DatabaseError

from fencerow.ops import jobs, workers
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space
from fencerow.types import NewJob
from tests.sql.steps import A, B, claim, enqueue, expire, job, lease, lose, policy, settle, state

ALONE = 8001


def alone(space: Space, lease_id: int = ALONE) -> int:
    space.rows("SELECT fencerow.open_lease(%s, 'alone', '30 s', true)", (lease_id,))
    return lease_id


def test_claim_is_in_order_of_priority_and_age(space: Space) -> None:
    """C063: twelve jobs of one transaction and mixed priorities; lower runs sooner, negative before zero."""
    priorities = [3, 1, -2, 3, 1, 0, 100, -32768, 32767, 1, 0, 3]
    entries = space.run(jobs.enqueue([job(priority=p) for p in priorities]))
    lease(space)

    taken = [held.job_id for held in claim(space, limit=12)]

    wanted = sorted(zip(priorities, [e.id for e in entries], strict=True))
    assert taken == [job_id for _, job_id in wanted]


def test_claims_beside_each_other_take_the_next_of_the_same_priority(space: Space) -> None:
    """Lab priority-pair: priorities 10, 10, 20, 20, 30 with idempotency keys, which are no order keys."""
    new = [job(priority=p, idempotency_key=f"pair-{n}") for n, p in enumerate((10, 10, 20, 20, 30))]
    ids = [entry.id for entry in space.run(jobs.enqueue(new))]
    lease(space, A)
    lease(space, B)
    a, b = space.connect(autocommit=False), space.connect()
    sql = "SELECT job_id, attempt FROM fencerow.claim(%s, 'default', 1)"

    assert a.execute(sql, (A,)).fetchall() == [(ids[0], 1)]
    assert b.execute(sql, (B,)).fetchall() == [(ids[1], 1)]
    a.rollback()
    assert state(space, ids[0]) == ("ready", 0, 0)
    assert a.execute(sql, (A,)).fetchall() == [(ids[0], 1)]
    assert [held.job_id for held in claim(space, B)] == [ids[2]]
    a.execute("SELECT * FROM fencerow.complete(%s, ARRAY[%s], ARRAY[1])", (A, ids[0]))
    a.commit()

    assert space.rows("SELECT state, count(*) FROM fencerow.jobs GROUP BY 1 ORDER BY 1") == [
        ("done", 1), ("ready", 2), ("running", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [0, 1, 7, 20, 100])
def test_claim_takes_at_most_its_limit(space: Space, limit: int) -> None:
    enqueue(space, 20)
    lease(space)

    assert len(claim(space, limit=limit)) == min(limit, 20)
    assert space.value("SELECT count(*) FROM fencerow.running") == min(limit, 20)


def test_claim_sees_one_queue(space: Space) -> None:
    enqueue(space, queue="mail")
    lease(space)

    assert claim(space, queue="mai") == []
    assert claim(space, queue="MAIL") == []
    assert len(claim(space, queue="mail")) == 1


def test_claim_carries_what_the_handler_reads(space: Space) -> None:
    enqueue(
        space, task="letter", payload='{"to": "é"}', priority=7, tags=["a", "b"], headers={"trace": "1"},
        max_attempts=4, timeout=90.5, on_lost="fail", idempotency_key="once",
    )  # fmt: skip
    enqueue(space, priority=8)
    lease(space)
    full, plain = claim(space, limit=2)

    assert (full.task, full.payload, full.priority) == ("letter", '{"to": "é"}', 7)
    assert full.extra == {
        "max_attempts": 4, "timeout": 90.5, "on_lost": "fail", "tags": ["a", "b"], "idempotency_key": "once",
        "headers": {"trace": "1"},
    }  # fmt: skip
    assert plain.extra is None


def test_fence_rises_over_all_claims_and_carries_the_timeline(space: Space) -> None:
    enqueue(space, 4)
    lease(space)
    lease(space, B)
    fences = [c.fence for c in claim(space, limit=2)] + [c.fence for c in claim(space, B, limit=2)]

    assert fences == sorted(set(fences))
    assert {fence >> 48 for fence in fences} == {1}


@pytest.mark.parametrize("gone", ["closed", "over", "never opened"])
def test_claim_takes_nothing_without_a_live_lease(space: Space, clock: Clock, gone: str) -> None:
    enqueue(space)
    if gone != "never opened":
        lease(space)
    if gone == "closed":
        assert space.run(workers.close_lease(A)) is True
        assert space.run(workers.close_lease(A)) is False
    clock.advance(31)

    assert claim(space) == []
    assert state(space, 1) == ("ready", 0, 0)


def test_lease_is_not_closed_while_it_holds_jobs(space: Space) -> None:
    enqueue(space)
    lease(space)
    held = claim(space)

    assert space.run(workers.close_lease(A)) is False
    settle(space, held)
    assert space.run(workers.close_lease(A)) is True
    assert space.rows("SELECT id, worker FROM fencerow.past_lease") == [(A, "a")]


def test_paused_queue_is_not_claimed_and_its_running_jobs_finish(space: Space) -> None:
    enqueue(space, 2)
    lease(space)
    held = claim(space)
    assert space.value("SELECT fencerow.pause('default', 'me')") is True
    assert space.value("SELECT fencerow.pause('default', 'you')") is False

    assert claim(space) == []
    assert settle(space, held) == ["accepted"]
    enqueue(space)
    assert claim(space) == []
    assert space.rows("SELECT paused_by FROM fencerow.queue") == [("me",)]
    assert space.value("SELECT fencerow.resume('default')") is True
    assert space.value("SELECT fencerow.resume('default')") is False
    assert len(claim(space, limit=5)) == 2
    assert space.rows("SELECT verb, queue FROM fencerow.intervention ORDER BY id") == [
        ("pause", "default"), ("resume", "default"),
    ]  # fmt: skip


def test_claim_above_a_watermark_looks_only_there(space: Space) -> None:
    low = enqueue(space, 3, priority=5)
    high = enqueue(space, 3, priority=9)
    enqueue(space, 1, priority=1)
    lease(space)

    taken = claim(space, limit=3, marks={9: high[0], 5: low[1]})

    assert [held.job_id for held in taken] == [low[2], high[1], high[2]]
    assert [held.job_id for held in claim(space, limit=9, marks={5: low[2], 9: high[2]})] == []
    assert len(claim(space, limit=9)) == 4


def test_careful_jobs_are_claimed_only_for_free_slots(space: Space) -> None:
    """I6: on_lost = fail and single attempts never wait in a buffer, where being lost would end them."""
    policy(space, name="once", max_attempts=1)
    order: list[NewJob] = [
        job(), job(on_lost="fail"), job(max_attempts=1), job(task="once"), job(), job(on_lost="fail"), job(),
    ]  # fmt: skip
    ids = [entry.id for entry in space.run(jobs.enqueue(order))]
    lease(space)

    taken = [c.job_id for c in claim(space, limit=7, slots=2, careful=["once"])]
    assert taken == [ids[0], ids[1], ids[4], ids[6]]
    assert [c.job_id for c in claim(space, limit=7, slots=1, careful=["once"])] == [ids[2]]
    assert [c.job_id for c in claim(space, limit=7, slots=0, careful=["once"])] == []
    assert [c.job_id for c in claim(space, limit=7, slots=2)] == [ids[3], ids[5]]


def test_job_lost_in_company_is_claimed_alone_until_it_settles(space: Space) -> None:
    ids = enqueue(space, 3)
    lease(space)
    lease(space, B)
    claim(space, limit=2)
    lose(space)

    assert [c.job_id for c in claim(space, B, limit=9)] == [ids[2]]
    alone(space)
    alone(space, ALONE + 1)
    first = claim(space, ALONE, limit=9, alone=True)
    assert [c.job_id for c in first] == [ids[0]]
    assert claim(space, ALONE, limit=9, alone=True) == []
    assert [c.job_id for c in claim(space, ALONE + 1, limit=9, alone=True)] == [ids[1]]
    assert settle(space, first, "release") == ["accepted"]
    assert claim(space, B, limit=9) == []
    again = claim(space, ALONE, alone=True)
    assert settle(space, again, "retry", error="settled") == ["accepted"]
    assert claim(space, ALONE, alone=True) == []
    assert [c.job_id for c in claim(space, B, limit=9)] == [ids[0]]


def test_suspect_stays_one_through_its_back_off(space: Space, clock: Clock) -> None:
    (job_id,) = enqueue(space)
    lease(space)
    claim(space)
    lose(space)
    alone(space)
    claim(space, ALONE, alone=True)
    assert lose(space, ALONE) == {job_id: "scheduled"}
    clock.advance(3600)
    assert space.run(jobs.promote()) == 1
    lease(space, B)

    assert claim(space, B) == []
    alone(space, ALONE + 1)
    assert [c.name for c in claim(space, ALONE + 1, alone=True)] == [f"{job_id}|3"]


def test_lease_for_suspects_claims_nothing_else(space: Space) -> None:
    enqueue(space, 3)
    lease(space)
    alone(space)

    assert claim(space, ALONE, limit=3, alone=True) == []
    assert claim(space, ALONE, limit=3, alone=True, marks={100: 0}) == []
    for lease_id, wanted in ((A, True), (ALONE, False)):
        with pytest.raises(Exception, match="opened for suspects"):
            claim(space, lease_id, alone=wanted)


def test_returned_job_keeps_its_place(space: Space, clock: Clock) -> None:
    """C027, C064: a job that comes back is ordered by its priority and age among the fresh ones."""
    (old,) = enqueue(space, priority=5)
    lease(space)
    held = claim(space)
    fresh = enqueue(space, 3, priority=5)
    (urgent,) = enqueue(space, priority=1)
    settle(space, held, "retry", error="x")

    assert [c.job_id for c in claim(space, limit=9)] == [urgent, old, *fresh]


def test_promote_makes_only_due_jobs_ready(space: Space, clock: Clock) -> None:
    clock.stop()
    soon, later = enqueue(space, run_in=10.0) + enqueue(space, run_in=20.0)
    lease(space, seconds=3600)

    assert space.run(jobs.promote()) == 0
    clock.advance(10)
    assert (space.run(jobs.promote()), state(space, soon)[0], state(space, later)[0]) == (
        1,
        "ready",
        "scheduled",
    )
    assert [c.job_id for c in claim(space, limit=5)] == [soon]
    enqueue(space, 5, run_in=1.0)
    clock.advance(100)
    assert [space.run(jobs.promote(4)), space.run(jobs.promote(4)), space.run(jobs.promote(4))] == [4, 2, 0]


def test_sweep_reaches_the_lost_job_behind_live_leases(space: Space, clock: Clock) -> None:
    """C020, C050: leases that live cost a sweep nothing; the worker's own row plays no part."""
    enqueue(space, 6)
    space.run(workers.register("a", host="h", pid=1, version="1", queues=["default"], tasks=["t"], slots=1))
    lease(space, A, seconds=3600)
    claim(space, A, limit=5)
    lease(space, B, seconds=10)
    lost = claim(space, B)[0]
    clock.advance(11)
    space.rows("DELETE FROM fencerow.worker")

    assert expire(space, 3) == {lost.job_id: "ready"}


def test_sweep_goes_on_where_its_limit_stopped_it(space: Space) -> None:
    ids = enqueue(space, 5)
    lease(space)
    claim(space, limit=5)
    space.rows("UPDATE fencerow.lease SET until = fencerow.now() - interval '1 s'")

    swept = [sorted(expire(space, 2)) for _ in range(4)]

    assert swept == [ids[:2], ids[2:4], ids[4:], []]
    assert space.rows("SELECT id FROM fencerow.lease") == []


def test_claim_needs_a_whole_number_of_jobs(space: Space) -> None:
    lease(space)
    with pytest.raises(DatabaseError, match="must not be negative"):
        space.rows("SELECT * FROM fencerow.claim(%s, 'default', -1)", (A,))
