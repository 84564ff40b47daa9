"""A reply is lost after the server has done the work: what is so is learnt from the database, never guessed (I11)."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fencerow import App, AsyncJob, Job
from fencerow.errors import CommitUncertain
from fencerow.server import Cluster
from fencerow.testing.proxy import Proxy
from fencerow.testing.space import Space
from tests.worker.inside import attempts, put, serving, soon, states


@pytest.fixture
def proxy(fencerow_cluster: Cluster, space: Space) -> Iterator[Proxy]:
    with Proxy(fencerow_cluster.sockets) as made:
        yield made


def behind(proxy: Proxy) -> App:
    return App(proxy.dsn("fencerow", "fencerow"))


async def test_jobs_of_a_claim_whose_reply_was_lost_are_adopted_and_run_once(
    proxy: Proxy, space: Space
) -> None:
    app, runs = behind(proxy), []

    @app.task(name="t")
    async def handler(job: AsyncJob) -> None:
        runs.append((job.id, job.generation, job.attempt))

    async with serving(app, concurrency=5) as service:
        await soon(lambda: service.listener.listening, "its sleep")
        cut = proxy.lose(r"\.claim\(", "reply")
        # It is executed by itself first when it polls; only a claim that brings jobs matters here.
        await soon(cut.done.is_set, "a lost reply to an idle claim")
        jobs = put(space, "t", 3)
        cut = proxy.lose(r"\.claim\(", "reply")
        await soon(cut.done.is_set, "a lost reply")
        await soon(lambda: set(states(space).values()) == {"done"}, "all")

    assert sorted(runs) == [(job, 1, 1) for job in jobs]
    assert space.rows("SELECT * FROM fencerow.attempt") == []


async def test_an_adopted_job_keeps_its_generation(proxy: Proxy, space: Space) -> None:
    """The claim is lost for sure: the jobs are there before the worker claims for the first time."""
    app, runs = behind(proxy), []

    @app.task(name="t")
    async def handler(job: AsyncJob) -> None:
        runs.append((job.id, job.generation, job.attempt))

    jobs = put(space, "t", 4)
    cut = proxy.lose(r"\.claim\(", "reply")
    async with serving(app, concurrency=5) as service:
        await soon(cut.done.is_set, "the lost reply")
        await soon(lambda: set(states(space).values()) == {"done"} and service.settler.idle, "all")
        assert service.settler.verdicts == {"accepted": 4}

    assert sorted(runs) == [(job, 1, 1) for job in jobs]


@pytest.mark.parametrize("lose", ["reply", "request"])
async def test_a_completion_whose_reply_was_lost_is_sent_again(proxy: Proxy, space: Space, lose: Any) -> None:
    """Done before the cut: `already`. Not arrived: `accepted`. Once in either case."""
    app = behind(proxy)

    @app.task(name="t")
    async def handler() -> str:
        return "r"

    put(space, "t")
    cut = proxy.lose(r"\.complete\(", lose)
    async with serving(app) as service:
        await soon(cut.done.is_set, "the loss")
        await soon(lambda: service.settler.idle and service.settler.verdicts, "the answer")
        assert service.settler.verdicts == {"already" if lose == "reply" else "accepted": 1}

    assert space.rows("SELECT outcome, result, generation FROM fencerow.ended") == [("done", "r", 1)]
    assert space.rows("SELECT * FROM fencerow.refusal") == []


@pytest.mark.parametrize("lose", ["reply", "request"])
async def test_a_retry_whose_reply_was_lost_is_sent_again(proxy: Proxy, space: Space, lose: Any) -> None:
    app = behind(proxy)

    @app.task(name="t", backoff=(3600, 3600))
    async def handler() -> None:
        raise ValueError("x")

    (job,) = put(space, "t")
    cut = proxy.lose(r"\.retry\(", lose)
    async with serving(app) as service:
        await soon(cut.done.is_set, "the loss")
        await soon(lambda: service.settler.idle and service.settler.verdicts, "the answer")
        assert service.settler.verdicts == {"already" if lose == "reply" else "accepted": 1}
    assert attempts(space, job) == [(1, 1, "failed")]


@pytest.mark.parametrize("lose", ["reply", "request"])
async def test_an_enqueue_is_uncertain_without_a_key_and_one_job_with_it(
    proxy: Proxy, space: Space, lose: Any
) -> None:
    async with behind(proxy) as app:

        @app.task(name="t")
        async def handler() -> None: ...

        cut = proxy.lose(r"\.enqueue_many\(", lose)
        with pytest.raises(CommitUncertain):
            await handler.aenqueue()
        await soon(cut.done.is_set, "the loss")
        assert len(states(space)) == (1 if lose == "reply" else 0)

        cut = proxy.lose(r"\.enqueue_many\(", lose)
        handle = await handler.using(idempotency_key="k").aenqueue()
        again = await handler.using(idempotency_key="k").aenqueue()
        await soon(cut.done.is_set, "the loss")
    assert handle.id == again.id
    assert space.value("SELECT count(*) FROM fencerow.job WHERE idempotency_key = 'k'") == 1


@pytest.mark.parametrize("lose", ["reply", "request"])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_lost_reply_to_commit_is_learnt(proxy: Proxy, space: Space, kind: str, lose: Any) -> None:
    """Committed: done, and the handler never knows. Not committed: nothing of it remains, the attempt is given back."""
    app, errors = behind(proxy), []
    if kind == "async":

        @app.task(name="t", backoff=(3600, 3600))
        async def on_loop(job: AsyncJob) -> None:
            try:
                async with job.commit() as tx:
                    tx.result = "in the block"
            except Exception as error:
                errors.append(type(error).__name__)
                raise

    else:

        @app.task(name="t", backoff=(3600, 3600))
        def in_thread(job: Job) -> None:
            try:
                with job.commit() as tx:
                    tx.result = "in the block"
            except Exception as error:
                errors.append(type(error).__name__)
                raise

    (job,) = put(space, "t")
    cut = proxy.lose("^COMMIT$", lose)
    async with serving(app):
        await soon(cut.done.is_set, "the loss")
        await soon(lambda: states(space)[job] in ("done", "scheduled"), "its end")

    if lose == "reply":
        assert errors == []
        assert space.rows("SELECT outcome, result FROM fencerow.ended") == [("done", "in the block")]
        assert attempts(space, job) == []
    else:
        assert errors == ["DatabaseUnavailable"]
        assert attempts(space, job) == [(1, 1, "snoozed")]
    assert space.rows("SELECT * FROM fencerow.refusal") == []


async def test_a_claim_lost_by_the_server_and_given_out_again_is_run_once(space: Space) -> None:
    """
    I2: after a crash that lost the commit of a claim the same generation is handed out again, here to its first holder.

    The crash is played by moving the ticket back as it was.
    """
    app, runs, gate = App(space.dsn), [], asyncio.Event()

    @app.task(name="t")
    async def handler(job: AsyncJob) -> None:
        runs.append(job.generation)
        await gate.wait()

    (job,) = put(space, "t")
    async with serving(app, concurrency=3):
        await soon(lambda: runs, "its start")
        space.connection.execute(
            "WITH gone AS (DELETE FROM fencerow.running RETURNING job_id) INSERT INTO fencerow.ready "
            "(since, job_id, generation, priority, attempt, queue) SELECT fencerow.now(), job_id, 0, 100, 0, 'default' FROM gone"
        )
        await soon(lambda: states(space)[job] == "running", "the same claim again")
        gate.set()
        await soon(lambda: states(space)[job] == "done", "its end")

    assert runs == [1]
    assert space.rows("SELECT * FROM fencerow.refusal") == []


async def test_what_stands_still_is_left_by_the_watchdog(proxy: Proxy, space: Space) -> None:
    """A network that swallows packets: nothing is accepted twice, and the worker goes on when it is back."""
    app, runs = behind(proxy), []

    @app.task(name="t")
    async def handler(job: AsyncJob) -> None:
        runs.append(job.id)

    async with serving(app) as service:
        put(space, "t", 2)
        await soon(lambda: len(runs) == 2, "the first")
        proxy.sever()
        put(space, "t", 2)
        await soon(lambda: len(runs) == 4 and service.settler.idle, "the others")
    assert sorted(set(runs)) == sorted(runs)
    assert set(states(space).values()) == {"done"}
