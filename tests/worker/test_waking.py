"""Who sleeps is woken, one for a job; what no hint tells is found by polls and timers."""

import asyncio
import os
import signal
import threading
from typing import Any

import pytest

from fencerow import App, AsyncJob, limits
from fencerow.clock import boottime
from fencerow.ops import jobs as job_ops
from fencerow.testing.space import Space
from fencerow.worker import listen
from tests.worker.inside import put, serving, soon, states


@pytest.fixture
def rare_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """So rare that only a wake-up can be why something runs."""
    monkeypatch.setattr(limits, "POLL_SECONDS", 60.0)
    monkeypatch.setattr(limits, "POLL_SECONDS_WITHOUT_NOTIFY", 60.0)


async def test_a_wake_up_reaches_one_that_sleeps(space: Space, rare_polls: None) -> None:
    """C067: the row of a worker that was woken is gone while it is busy, so the next NOTIFY goes to one that sleeps."""
    app, gate, ran = App(space.dsn), threading.Event(), []

    @app.task(name="t")
    def handler() -> None:
        ran.append(1)
        gate.wait(20)

    async with serving(app, concurrency=1), serving(app, concurrency=1):
        await soon(lambda: _asleep(space) == 2, "both sleep")
        put(space, "t")
        await soon(lambda: len(ran) == 1 and _asleep(space) == 1, "the first job, and one that sleeps on")
        put(space, "t")
        await soon(lambda: len(ran) == 2, "the second job")
        await soon(lambda: _asleep(space) == 0, "nobody sleeps")
        gate.set()
        await soon(lambda: set(states(space).values()) == {"done"}, "their end")


def _asleep(space: Space) -> int:
    return int(space.value("SELECT count(*) FROM fencerow.asleep"))


async def test_one_job_wakes_one_worker(
    space: Space, rare_polls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C067: eight sleep, one is woken and claims."""
    app, ran, claims = App(space.dsn), [], []

    @app.task(name="t")
    async def handler() -> None:
        ran.append(1)

    claim = job_ops.claim

    def counted(lease: int, queue: str, **more: Any) -> Any:
        claims.append(lease)
        return claim(lease, queue, **more)

    async with asyncio.TaskGroup() as group:
        stop = asyncio.Event()
        ready = []

        async def one() -> None:
            async with serving(app) as service:
                ready.append(service)
                await stop.wait()

        for _ in range(4):
            group.create_task(one())
        await soon(lambda: _asleep(space) == 4 and all(s.listener.listening for s in ready), "four asleep")
        await soon(lambda: all(len(s._idle_lanes) == 1 for s in ready), "at rest")
        monkeypatch.setattr(job_ops, "claim", counted)
        put(space, "t")
        await soon(lambda: ran and _asleep(space) == 4, "the job, and sleep again")
        stop.set()
    assert len(set(claims)) == 1


async def test_a_burst_runs_without_waiting_for_a_poll(space: Space, rare_polls: None) -> None:
    """C067: ten jobs, one slot, polls a minute apart."""
    app, ran = App(space.dsn), []

    @app.task(name="t")
    async def handler(job: AsyncJob) -> None:
        ran.append(job.id)

    async with serving(app, concurrency=1) as service:
        await soon(lambda: _asleep(space) == 1 and service.listener.listening, "its sleep")
        jobs = [put(space, "t")[0] for _ in range(10)]
        await soon(lambda: len(ran) == 10, "the ten")
    assert sorted(ran) == jobs


async def test_a_lost_wake_up_is_found_by_polling(space: Space) -> None:
    app, ran = App(space.dsn), []

    @app.task(name="t")
    async def handler() -> None:
        ran.append(1)

    async with serving(app) as service:
        await soon(lambda: _asleep(space) == 1 and service.listener.listening, "its sleep")
        space.rows("DELETE FROM fencerow.asleep")
        put(space, "t")
        await soon(lambda: ran, "the job")


async def test_a_listening_connection_that_went_silent_is_replaced(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C012: half-open, it gives neither an error nor a notification; polling covers the gap meanwhile."""
    monkeypatch.setattr(listen, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(listen, "LOOK_TIMEOUT_SECONDS", 0.3)
    app, ran = App(space.dsn), []

    @app.task(name="t")
    async def handler(job: AsyncJob) -> None:
        ran.append(job.id)

    def ears() -> set[int]:
        rows = space.rows(
            "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN %' OR query = 'SELECT 1'"
        )
        return {row[0] for row in rows}

    async with serving(app) as service:
        await soon(lambda: service.listener.listening and len(ears()) == 1, "it listens")
        (silent,) = ears()
        os.kill(silent, signal.SIGSTOP)
        try:
            put(space, "t")
            await soon(lambda: ran, "a job in the gap")
            await soon(lambda: service.listener.listening and ears() - {silent}, "another connection")
        finally:
            os.kill(silent, signal.SIGCONT)


async def test_a_scheduled_job_starts_while_its_worker_is_idle(space: Space, rare_polls: None) -> None:
    """By the sweep's timer, not by a poll."""
    app, ran = App(space.dsn), []

    @app.task(name="t")
    async def handler(job: AsyncJob) -> None:
        ran.append(boottime())

    async with serving(app) as service:
        await soon(lambda: _asleep(space) == 1 and service.listener.listening, "its sleep")
        (job,) = put(space, "t", run_in=0.3)
        await soon(lambda: ran, "its start")
    early = space.value(
        "SELECT claimed_at - j.run_at FROM fencerow.ended AS e JOIN fencerow.job AS j ON j.id = e.job_id WHERE j.id = %s",
        (job,),
    )
    assert early.total_seconds() >= 0
