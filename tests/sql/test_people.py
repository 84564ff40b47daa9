"""What people and time do to a job: cancel, redrive, keep, purge."""

import pytest

from fencerow.errors import Duplicate
from fencerow.ops import jobs, workers
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space
from fencerow.types import Claim, Unique
from tests.sql.steps import claim, enqueue, job, kinds, lease, lose, policy, running, settle, state

DAY = 86400.0


def clock_ahead(space: Space) -> float:
    return float(space.value("SELECT extract(epoch FROM ahead) FROM fencerow.test_clock"))


def test_cancel_answers_for_every_state(space: Space) -> None:
    ready, scheduled = enqueue(space) + enqueue(space, run_in=60.0)
    cancelled = {
        ready: space.run(jobs.cancel(ready, "me", "not needed")),
        scheduled: space.run(jobs.cancel(scheduled)),
    }
    assert cancelled == {ready: "cancelled", scheduled: "cancelled"}
    assert space.rows("SELECT job_id, outcome, error FROM fencerow.ended ORDER BY job_id") == [
        (ready, "cancelled", "not needed"),
        (scheduled, "cancelled", "cancelled by fencerow"),
    ]
    held = running(space)
    assert [space.run(jobs.cancel(held.job_id, "me")) for _ in range(2)] == ["requested", "requested"]
    assert state(space, held.job_id) == ("running", 1, 1)
    settle(space, held)
    assert space.run(jobs.cancel(held.job_id)) == "done"
    failed = running(space)
    settle(space, failed, "fail")
    assert space.run(jobs.cancel(failed.job_id)) == "failed"
    assert space.run(jobs.cancel(ready)) == "cancelled"
    assert space.run(jobs.cancel(10**12)) == "unknown"
    assert space.value("SELECT count(*) FROM fencerow.intervention WHERE verb = 'cancel'") == 4


def test_cancel_finds_a_suspect(space: Space) -> None:
    held = running(space)
    lose(space)
    assert space.run(jobs.cancel(held.job_id)) == "cancelled"
    assert kinds(space, held.job_id) == ["lost"]


def test_redrive_gives_a_fresh_budget_and_keeps_the_history(space: Space) -> None:
    enqueue(space, max_attempts=2)
    lease(space)
    for _ in range(2):
        settle(space, claim(space), "retry", error="no")
    stale = Claim(7001, "default", 1, 2, 2, 0, 100, "t", "{}", None)

    assert space.run(jobs.redrive(1, "me")) == "ready"
    assert state(space, 1) == ("ready", 2, 0)
    assert settle(space, stale) == ["expired"]
    (held,) = claim(space)
    assert (held.name, held.attempt) == ("1|3", 1)
    settle(space, held, "retry", error="no")
    (held,) = claim(space)
    settle(space, held, "retry", error="no")
    assert state(space, 1) == ("failed", 4, 2)
    assert kinds(space, 1) == ["failed"] * 4
    assert space.rows("SELECT verb, by FROM fencerow.intervention") == [("redrive", "me")]


def test_redrive_leaves_every_other_state_alone(space: Space) -> None:
    ready, scheduled = enqueue(space) + enqueue(space, run_in=60.0)
    assert (space.run(jobs.redrive(ready)), space.run(jobs.redrive(scheduled))) == ("ready", "scheduled")
    lease(space)
    (held,) = claim(space)
    assert space.run(jobs.redrive(held.job_id)) == "running"
    settle(space, held)
    space.run(jobs.cancel(scheduled))
    assert (space.run(jobs.redrive(ready)), space.run(jobs.redrive(scheduled))) == ("done", "cancelled")
    assert space.run(jobs.redrive(10**12)) == "unknown"
    assert space.rows("SELECT FROM fencerow.intervention WHERE verb = 'redrive'") == []


def test_redrive_takes_the_unique_key_again_or_is_refused(space: Space) -> None:
    held = running(space, unique=Unique("k"))
    settle(space, held, "fail")
    assert space.run(jobs.redrive(held.job_id)) == "ready"
    assert space.rows("SELECT job_id FROM fencerow.unique_key") == [(held.job_id,)]
    settle(space, claim(space), "fail")
    (other,) = space.run(jobs.enqueue([job(unique=Unique("k"))]))

    with pytest.raises(Duplicate) as caught:
        space.run(jobs.redrive(held.job_id))
    assert caught.value.job_id == other.id
    assert state(space, held.job_id)[0] == "failed"


def test_jobs_are_kept_as_long_as_their_task_says(space: Space, clock: Clock) -> None:
    policy(space, name="short", keep=1 * DAY, keep_failed=2 * DAY)
    ends = {}
    for task in ("short", "unknown to the database"):
        for verb in ("complete", "fail", "cancelled"):
            held = running(space, task=task)
            settle(space, held, verb)
            ends[held.job_id] = (task, verb)
    (live,) = enqueue(space, task="short")
    gone: dict[float, list[int]] = {}
    before = set(ends)
    for days in (0.9, 1.1, 1.9, 2.1, 6.9, 7.1, 29.9, 30.1):
        space.rows("UPDATE fencerow.test_clock SET ahead = make_interval(secs => %s)", (days * DAY,))
        space.run(jobs.purge())
        left = {row[0] for row in space.rows("SELECT job_id FROM fencerow.ended")}
        gone[days], before = sorted(before - left), left

    assert {days: ids for days, ids in gone.items() if ids} == {1.1: [1, 3], 2.1: [2], 7.1: [4, 6], 30.1: [5]}
    assert state(space, live)[0] == "ready"
    assert space.value("SELECT count(*) FROM fencerow.job") == 1
    assert space.value("SELECT count(*) FROM fencerow.attempt") == 0


def test_purge_walks_in_pages_and_takes_everything_of_a_job(space: Space, clock: Clock) -> None:
    policy(space, keep=0.0, keep_failed=0.0)
    enqueue(space, 10)
    lease(space)
    held = claim(space, limit=10)
    settle(space, held[:9], "fail")
    settle(space, held[:3])
    assert space.value("SELECT count(*) FROM fencerow.refusal") == 3

    walk, after = [], 0
    while True:
        purged, reached = space.run(jobs.purge(after, 4))
        if reached is None:
            break
        walk.append((purged, reached))
        after = reached
    assert walk == [(4, 4), (4, 8), (1, 9)]
    left = {
        t: space.value(f"SELECT count(*) FROM fencerow.{t}")
        for t in ("job", "ended", "attempt", "refusal", "running")
    }
    assert left == {"job": 1, "ended": 0, "attempt": 0, "refusal": 0, "running": 1}


def test_purged_job_is_unknown_to_everybody(space: Space) -> None:
    policy(space, keep=0.0)
    held = running(space)
    settle(space, held)
    space.run(jobs.purge())

    assert settle(space, held) == ["unknown"]
    assert space.run(jobs.cancel(held.job_id)) == "unknown"
    assert space.run(jobs.redrive(held.job_id)) == "unknown"
    assert space.run(jobs.outcome(held)) == "lost"


def test_what_no_job_keeps_is_forgotten_in_time(space: Space, clock: Clock) -> None:
    """Leases and workers of the past go after 30 days, audit rows after a year; a live worker's row stays."""
    policy(space, keep=0.0)
    for name, number in (("gone", 1), ("lives", 2)):
        space.run(
            workers.register(name, host="h", pid=1, version="0", queues=["default"], tasks=["t"], slots=1)
        )
        space.run(workers.open_lease(number, name, seconds=DAY if name == "lives" else 30.0))
    space.run(workers.close_lease(1))
    space.run(jobs.cancel(enqueue(space)[0], "me"))
    seen = []
    for days in (29, 31, 366):
        clock.advance(days * DAY - clock_ahead(space))
        space.rows("UPDATE fencerow.lease SET until = fencerow.now() + length")
        space.run(jobs.purge())
        seen.append(
            [
                space.value(f"SELECT count(*) FROM fencerow.{table}")
                for table in ("past_lease", "worker", "intervention")
            ]
        )

    assert seen == [[1, 2, 1], [0, 1, 1], [0, 1, 0]]
