"""Operations that only look: what they say of workers, of what runs under one, and of refused writes."""

from fencerow.ops import inspect, jobs, workers
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space
from tests.cli import life


def test_live_workers_are_those_with_a_lease(space: Space, clock: Clock) -> None:
    """C022: liveness is told by the lease, never by a row that a process left behind."""
    lease = life.worker(space, "w1", queues=("mail", "other"))
    space.run(workers.register("w2", host="h", pid=2, version="1", queues=["mail"], tasks=[], slots=1))

    (live,) = space.run(inspect.live_workers())
    assert (live.name, live.queues, live.tasks, live.slots) == ("w1", ("mail", "other"), ("mail.send",), 1)
    life.enqueue(space)
    claimed = life.claim(space, lease)
    assert space.run(inspect.running_under("w1")) == [(claimed.job_id, 1, lease)]
    assert space.run(inspect.running_under("w2")) == []

    clock.advance(31)

    assert space.run(inspect.live_workers()) == []


def test_refusals_are_read_from_where_one_left_off(space: Space, clock: Clock) -> None:
    lease = life.worker(space)
    life.enqueue(space)
    claimed = life.claim(space, lease)
    clock.advance(31)
    for _ in range(2):
        space.run(jobs.settle([life.settlement(claimed)]))

    first, second = space.run(inspect.recent_refusals())

    assert (first.job_id, first.worker, first.op, first.verdict) == (1, "w1", "complete", "expired")
    assert space.run(inspect.recent_refusals(first.id)) == [second]
    assert space.run(inspect.recent_refusals(limit=1)) == [first]


def test_facts_of_an_unknown_job_are_none(space: Space) -> None:
    assert space.run(inspect.job_facts(99)) is None
