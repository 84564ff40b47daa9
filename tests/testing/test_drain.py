"""drain(): the worker itself, in the test's process."""

import threading
from datetime import timedelta

import pytest

from fencerow import App, AsyncJob, Cancel, Job, Retry, Snooze, UsageError
from fencerow.errors import InvalidPayload, NotInstalled
from fencerow.testing import DrainTimeout, adrain, drain
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space


def test_it_runs_until_nothing_is_due_and_tells_what_became_of_each(app: App, space: Space) -> None:
    @app.task
    def leaf(n: int) -> int:
        return n

    @app.task
    def root() -> None:
        for n in range(3):
            leaf.enqueue(n)

    @app.task(max_attempts=1)
    def breaks() -> None:
        raise ValueError("broken")

    @app.task
    def stops() -> Cancel:
        return Cancel("enough")

    @app.task
    def later() -> Snooze:
        return Snooze(3600, "tomorrow")

    first, broken, stopped, snoozed = (task.enqueue().id for task in (root, breaks, stops, later))
    ahead = leaf.using(run_in=3600).enqueue(9).id
    drained = drain(app)

    assert set(drained.done) >= {first}
    assert len(drained.done) == 4
    assert drained.failed == (broken,)
    assert drained.cancelled == (stopped,)
    assert drained.put_back == (snoozed,)
    assert drained.errors[broken].startswith("ValueError: broken")
    assert (drained.errors[stopped], drained.errors[snoozed]) == ("enough", "tomorrow")
    assert drained.runs == 7
    assert space.value("SELECT state FROM fencerow.jobs WHERE id = %s", (ahead,)) == "scheduled"
    assert space.value("SELECT count(*) FROM fencerow.lease") == 0


def test_the_clock_makes_what_is_ahead_due(app: App, clock: Clock) -> None:
    @app.task(backoff=(3600, 3600), max_attempts=2)
    def second_time(job: Job) -> int:
        if job.attempt == 1:
            raise ConnectionError
        return job.attempt

    handle = second_time.using(run_in=timedelta(days=2)).enqueue()

    assert drain(app).runs == 0
    clock.advance(2 * 86400 + 1)
    assert drain(app).put_back == (handle.id,)
    clock.advance(3601)
    assert drain(app).done == (handle.id,)
    assert handle.result(timeout=0) == 2


@pytest.mark.parametrize("concurrency", [1, 10])
def test_one_round_runs_what_is_due_at_the_call_once_each(app: App, space: Space, concurrency: int) -> None:
    ran: list[int] = []

    @app.task(name="again")
    def again(job: Job) -> Retry:
        ran.append(job.id)
        again.enqueue()
        return Retry(0)

    due = [again.enqueue().id for _ in range(5)]
    drained = drain(app, until_idle=False, concurrency=concurrency)

    assert sorted(ran) == due
    assert drained.runs == 5
    assert sorted(drained.put_back) == due
    states: dict[str, int] = dict(space.rows("SELECT state, count(*) FROM fencerow.jobs GROUP BY state"))
    assert sum(states.values()) == 10
    assert set(states) <= {"ready", "scheduled"}
    assert space.value("SELECT max(attempt) FROM fencerow.jobs") == 1, "what was put back was not charged"
    assert drain(app, queues=["other"], until_idle=False).runs == 0


def test_one_after_another_by_priority_and_age(app: App) -> None:
    ran: list[str] = []

    @app.task
    def note(text: str) -> None:
        ran.append(text)

    for text, priority in (("c", 100), ("d", 100), ("a", 1), ("b", 50)):
        note.using(priority=priority).enqueue(text)
    drain(app, concurrency=1)

    assert ran == ["a", "b", "c", "d"]


async def test_in_a_loop_it_is_awaited(app: App) -> None:
    @app.task
    async def async_one(job: AsyncJob) -> int:
        return job.id

    handle = await async_one.aenqueue()
    with pytest.raises(UsageError, match="adrain"):
        drain(app)

    assert (await adrain(app)).done == (handle.id,)
    assert await handle.aresult(timeout=0) == handle.id


def test_payloads_take_the_real_way(app: App) -> None:
    """C117: what JSON would change is refused in a test as in production."""

    @app.task
    def takes(value: dict[str, list[int]]) -> None: ...

    with pytest.raises(InvalidPayload):
        takes.enqueue({1: (1, 2)})  # type: ignore[dict-item]


def test_what_never_ends_is_named(app: App, space: Space) -> None:
    gate = threading.Event()

    @app.task
    async def endless(job: AsyncJob) -> None:
        while not gate.is_set():
            await job.progress(0.5)

    handle = endless.enqueue()
    with pytest.raises(DrainTimeout, match=f"jobs {handle.id} were running"):
        drain(app, timeout=1.5)

    assert space.rows("SELECT state, attempt FROM fencerow.jobs") == [("ready", 0)]


def test_a_drain_that_cannot_start_raises(space: Space) -> None:
    with App(space.dsn, schema="nowhere") as app, pytest.raises(NotInstalled):
        drain(app)
