"""Which jobs a worker takes, and how many: order, slots, what is claimed ahead, late commits, a lease of its own."""

import asyncio
import threading
from typing import Any

import pytest

from fencerow import App, AsyncJob, limits
from fencerow.ops import jobs as job_ops
from fencerow.ops import queues, workers
from fencerow.testing.space import Space
from fencerow.types import NewJob
from tests.worker.inside import attempts, put, serving, settled, soon, states


async def test_a_batch_starts_in_order_of_priority_and_id(space: Space) -> None:
    """C063."""
    app, order = App(space.dsn), []

    @app.task(name="t")
    async def handler(job: AsyncJob) -> None:
        order.append(job.id)

    made = [
        NewJob("t", "{}", priority=priority) for priority in (30, 10, 20, 10, 30, 20, 10, 20, 30, 5, 40, 5)
    ]
    answers = space.run(job_ops.enqueue(made))
    wanted = [(made[place].priority, answer.id) for place, answer in enumerate(answers)]
    async with serving(app, concurrency=1):
        await soon(lambda: settled(space), "all")

    assert order == [job for _, job in sorted(wanted)]


async def test_each_queue_has_its_slots(space: Space) -> None:
    app, gate, running = App(space.dsn), threading.Event(), {"mail": 0, "a": 0, "b": 0}

    @app.task(name="t")
    def handler(queue: str) -> None:
        running[queue] += 1
        gate.wait(20)

    for queue in running:
        put(space, "t", 5, queue=queue, payload=f'{{"queue": "{queue}"}}')
    async with serving(app, queues=(("mail", 1), ("a", None), ("b", 3)), concurrency=2) as service:
        await soon(lambda: running == {"mail": 1, "a": 2, "b": 3}, f"the slots, {running}")
        assert service.queues == ["mail", "a", "b"]
        gate.set()
        await soon(lambda: settled(space), "all")


async def test_careful_jobs_never_wait_in_the_buffer(space: Space) -> None:
    """I6: on_lost="fail", a single attempt, and a job's own on_lost: claimed for a free slot only, whatever is claimed ahead."""
    app, gate = App(space.dsn), threading.Event()

    @app.task(name="quick")
    def quick() -> None: ...

    @app.task(name="careful", on_lost="fail")
    def careful() -> None:
        gate.wait(20)

    put(space, "quick", 200)
    async with serving(app, concurrency=2) as service:
        await soon(lambda: settled(space), "the quick ones, which teach it to claim ahead")
        lane = service.lanes[0]
        assert lane.times.ahead(2, 10) > 10
        put(space, "careful", 10)
        put(space, "quick", 10, on_lost="fail")
        await soon(lambda: list(states(space).values()).count("running") == 2, "two careful ones")
        put(space, "quick", 10, priority=50)
        await soon(lambda: len(lane.buffer) >= 1 or lane.times.ahead(2, 10) == 0, "what is claimed ahead")
        assert all(claim.task == "quick" and not (claim.extra or {}).get("on_lost") for claim in lane.buffer)
        gate.set()
        await soon(lambda: settled(space), "all")
    assert set(states(space).values()) == {"done"}


async def test_one_slow_job_does_not_idle_the_other_slots(space: Space) -> None:
    """C066."""
    app, gate, done = App(space.dsn), threading.Event(), []

    @app.task(name="slow")
    def slow() -> None:
        gate.wait(20)

    @app.task(name="t")
    async def handler(job: AsyncJob) -> None:
        done.append(job.id)

    (first,) = put(space, "slow")
    put(space, "t", 40)
    async with serving(app, concurrency=4):
        await soon(lambda: len(done) == 40, "the forty")
        assert states(space)[first] == "running"
        gate.set()


@pytest.mark.slow
async def test_jobs_claimed_ahead_go_back_when_the_slots_do_not_get_free(space: Space) -> None:
    """Run times of the past promised otherwise: others may run them instead. Slow: a second without progress has to pass."""
    app, gate, started = App(space.dsn), threading.Event(), []

    @app.task(name="quick")
    async def quick() -> None: ...

    @app.task(name="slow")
    def slow() -> None:
        started.append(1)
        gate.wait(20)

    put(space, "quick", 300)
    async with serving(app, concurrency=1):
        await soon(lambda: settled(space), "the quick ones")
        jobs = put(space, "slow", 50)
        await soon(lambda: list(states(space).values()).count("ready") == 49, "their return")
        assert len(started) == 1
        given_back = [job for job in jobs if attempts(space, job)]
        assert {kind for job in given_back for _, _, kind in attempts(space, job)} <= {"released"}
        assert space.value("SELECT max(attempt) FROM fencerow.ready") == 0
        gate.set()
        await soon(lambda: settled(space), "all")


async def test_nothing_is_claimed_after_a_pause_is_answered(space: Space) -> None:
    app, ran = App(space.dsn), []

    @app.task(name="t")
    async def handler(job: AsyncJob) -> None:
        ran.append(job.id)

    async with serving(app):
        put(space, "t", 3)
        await soon(lambda: len(ran) == 3, "the first")
        space.run(queues.pause("default"))
        later = put(space, "t", 3)
        other = put(space, "t", queue="other")
        async with serving(app, queues=(("other", None),)):
            await soon(lambda: other[0] in ran, "that of another queue")
        assert not set(later) & set(ran)
        assert [states(space)[job] for job in later] == ["ready"] * 3
        space.run(queues.resume("default"))
        await soon(lambda: set(later) <= set(ran), "the later ones")


async def test_a_late_commit_is_found_below_the_watermark(space: Space) -> None:
    """A producer's transaction stays open while a thousand later jobs are claimed past its own."""
    app, ran = App(space.dsn), []

    @app.task(name="t")
    async def handler(job: AsyncJob) -> None:
        ran.append(job.id)

    producer = space.connect(autocommit=False, name="producer")
    late = producer.execute("SELECT fencerow.enqueue('t', '{}')").fetchone()
    assert late is not None
    async with serving(app, concurrency=10):
        put(space, "t", 1000)
        await soon(lambda: len(ran) == 1000, "the thousand")
        assert late[0] not in ran
        producer.commit()
        await soon(lambda: late[0] in ran, "the late one")


async def test_a_lease_is_replaced_after_its_claims(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision on reconciling: the next claims go under another lease, and the old one is closed once it is empty."""
    monkeypatch.setattr(limits, "LEASE_CLAIMS_MAX", 20)
    app, leases, gate = App(space.dsn), [], asyncio.Event()

    @app.task(name="t")
    async def handler(job: AsyncJob) -> None:
        leases.append(job._hold.claim.lease)
        if len(leases) == 1:
            await gate.wait()

    async with serving(app, concurrency=5) as service:
        assert service.reconciler is not None
        for _ in range(12):
            put(space, "t", 5)
            await soon(lambda: list(states(space).values()).count("ready") == 0, "five more")
        assert len(set(leases)) >= 3
        service.reconciler.soon()
        await soon(lambda: len(service.keeper.leases) == 2, "the empty ones closed")
        gate.set()
        await soon(lambda: set(states(space).values()) == {"done"} and service.settler.idle, "all")
        service.reconciler.soon()
        await soon(lambda: len(service.keeper.leases) == 1, "the first one closed")
        await soon(lambda: space.value("SELECT count(*) FROM fencerow.lease") == 1, "in the database too")


async def test_idle_polls_use_up_no_lease(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what was claimed counts, not what was asked for."""
    monkeypatch.setattr(limits, "LEASE_CLAIMS_MAX", 30)
    monkeypatch.setattr(limits, "POLL_SECONDS", 0.01)
    app, polls = App(space.dsn), []

    @app.task(name="t")
    async def handler() -> None: ...

    claim = job_ops.claim

    def counted(*given: Any, **more: Any) -> Any:
        polls.append(1)
        return claim(*given, **more)

    monkeypatch.setattr(job_ops, "claim", counted)
    async with serving(app, concurrency=10) as service:
        first = await service.keeper.current()
        await soon(lambda: len(polls) > 20, "twenty polls")
        assert await service.keeper.current() is first


async def test_an_outcome_that_waits_for_a_ticket_holds_up_no_other(space: Space) -> None:
    """I12: somebody's open transaction holds one ticket of a batch; all others are settled meanwhile."""
    app, gate = App(space.dsn), asyncio.Event()

    @app.task(name="t")
    async def handler() -> None:
        await gate.wait()

    @app.task(name="later")
    async def later() -> None: ...

    jobs = put(space, "t", 8)
    holder = space.connect(autocommit=False, name="holder")
    async with serving(app, concurrency=10):
        await soon(lambda: set(states(space).values()) == {"running"}, "all run")
        holder.execute("SELECT FROM fencerow.running WHERE job_id = %s FOR UPDATE", (jobs[3],))
        gate.set()
        await soon(lambda: list(states(space).values()).count("done") == 7, "the seven")
        (after,) = put(space, "later")
        await soon(lambda: states(space)[after] == "done", "one that came later")
        assert states(space)[jobs[3]] == "running"
        holder.rollback()
        await soon(lambda: states(space)[jobs[3]] == "done", "the last")


async def test_a_sweep_goes_on_when_one_of_its_parts_fails(space: Space) -> None:
    """A ticket that cannot be promoted keeps nobody from taking lost jobs back."""
    app, ran = App(space.dsn), []

    @app.task(name="t", on_lost="fail")
    async def handler(job: AsyncJob) -> None:
        ran.append(job.id)

    space.run(workers.open_lease(5, "gone", seconds=1))
    (lost,) = put(space, "t")
    space.run(job_ops.claim(5, "default", limit=1))
    space.rows("UPDATE fencerow.lease SET until = fencerow.now() - interval '1 s'")
    (broken,) = put(space, "t", run_in=0.001)
    # A ticket of the same key is there already: moving the due one violates the primary key.
    space.rows(
        "INSERT INTO fencerow.ready (since, job_id, generation, priority, attempt, queue, suspect) "
        "SELECT fencerow.now(), job_id, generation, priority, attempt, queue, false FROM fencerow.scheduled"
    )
    space.rows("INSERT INTO fencerow.queue (name, paused_at) VALUES ('default', fencerow.now())")
    async with serving(app):
        await soon(lambda: states(space)[lost] == "failed", "the loss")
    assert broken not in ran
