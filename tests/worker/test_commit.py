"""job.commit(): the business row and the completion commit together, or nothing of the block remains (I10)."""

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fencerow import App, AsyncJob, Job
from fencerow.testing.sessions import SessionThread
from fencerow.testing.space import Space
from tests.worker.inside import attempts, error_of, put, serving, soon, states

HOUR = (3600.0, 3600.0)
INSERT = "INSERT INTO public.business (job) VALUES (%s)"


@pytest.fixture
def business(space: Space) -> Iterator[Space]:
    space.connection.execute("CREATE TABLE public.business (job bigint, n serial)")
    yield space
    space.release()
    space.connection.execute("DROP TABLE public.business")


def written(space: Space) -> list[int]:
    return [row[0] for row in space.connection.execute("SELECT job FROM public.business ORDER BY n")]


@pytest.fixture(params=["async", "thread"])
def app(request: pytest.FixtureRequest, business: Space) -> App:
    """An app whose task ``t`` does in a commit block what the test puts into ``app.act``, before, in and after it."""
    app = App(business.dsn)
    before: list[Any] = []

    def step(name: str, job: Any, tx: Any = None) -> None:
        acts: dict[str, Any] = getattr(app, "acts", {})
        before.append(name)
        if name in acts:
            acts[name](job, tx)

    if request.param == "async":

        @app.task(name="t", backoff=HOUR)
        async def on_loop(job: AsyncJob) -> str:
            step("before", job)
            async with job.commit() as tx:
                await tx.execute(INSERT, (job.id,))
                step("inside", job, tx)
            step("after", job)
            return "returned"

        @app.task(name="twice", backoff=HOUR)
        async def twice(job: AsyncJob) -> None:
            async with job.commit():
                pass
            async with job.commit():
                pass

    else:

        @app.task(name="t", backoff=HOUR)
        def in_thread(job: Job) -> str:
            step("before", job)
            with job.commit() as tx:
                tx.execute(INSERT, (job.id,))
                step("inside", job, tx)
            step("after", job)
            return "returned"

        @app.task(name="twice", backoff=HOUR)
        def twice_in_thread(job: Job) -> None:
            with job.commit():
                pass
            with job.commit():
                pass

    return app


async def _run(app: App, space: Space, state: str, **acts: Any) -> int:
    app.acts = acts  # type: ignore[attr-defined]
    (job,) = put(space, "t")
    async with serving(app):
        await soon(lambda: states(space)[job] == state, f"{state}, not {states(space)}")
    return job


async def test_row_and_completion_commit_together(app: App, business: Space) -> None:
    def inside(job: Any, tx: Any) -> None:
        tx.result = {"n": 1}
        assert business.value("SELECT count(*) FROM public.business") == 0
        assert business.value("SELECT count(*) FROM fencerow.ended") == 0

    job = await _run(app, business, "done", inside=inside)

    assert written(business) == [job]
    assert business.rows("SELECT result, generation FROM fencerow.ended") == [({"n": 1}, 1)]
    assert business.rows("SELECT * FROM fencerow.refusal") == []


async def test_nothing_of_the_block_remains_when_it_raises(app: App, business: Space) -> None:
    def inside(job: Any, tx: Any) -> None:
        raise ValueError("in the block")

    job = await _run(app, business, "scheduled", inside=inside)

    assert written(business) == []
    assert attempts(business, job) == [(1, 1, "failed")]


async def test_what_is_raised_after_the_block_changes_nothing(app: App, business: Space) -> None:
    def after(job: Any, tx: Any) -> None:
        raise ValueError("after the block")

    job = await _run(app, business, "done", after=after)

    assert written(business) == [job]
    assert attempts(business, job) == []


@pytest.mark.parametrize(
    ("fate", "place"),
    [("superseded", "before"), ("expired", "before"), ("cancelled", "before"), ("expired", "inside")],
)
async def test_a_lost_claim_leaves_nothing_but_its_refusal(
    app: App, business: Space, fate: str, place: str
) -> None:
    """The ticket is gone at entry, or the lease ends while the block holds it: nobody else can move it then."""

    def lose(job: Any, tx: Any) -> None:
        moves = {
            "superseded": "UPDATE fencerow.running SET generation = generation + 1 WHERE job_id = {job}",
            "expired": "UPDATE fencerow.lease SET until = fencerow.now() - interval '1 s'",
            "cancelled": "WITH gone AS (DELETE FROM fencerow.running WHERE job_id = {job} RETURNING job_id, generation) "
            "INSERT INTO fencerow.ended (job_id, lease_id, ended_at, generation, attempt, outcome) "
            "SELECT job_id, 1, fencerow.now(), generation, 1, 'cancelled' FROM gone",
        }
        business.connection.execute(moves[fate].format(job=job.id).encode())

    app.acts = {place: lose}  # type: ignore[attr-defined]
    (job,) = put(business, "t")
    async with serving(app):
        await soon(lambda: business.rows("SELECT * FROM fencerow.refusal"), "a refusal")
        rows = business.rows("SELECT job_id, generation, verdict FROM fencerow.refusal ORDER BY id")
        assert written(business) == []
        assert rows[0] == (job, 1, fate)
        business.connection.execute("DELETE FROM fencerow.running")


async def test_a_second_use_is_refused(app: App, business: Space) -> None:
    (job,) = put(business, "twice")
    async with serving(app):
        await soon(lambda: states(business)[job] == "done", "its end")
    # The first one stands; the misuse came after it.
    assert attempts(business, job) == []


async def test_it_works_where_the_default_isolation_is_stricter(app: App, business: Space) -> None:
    """I15: every connection of the worker says READ COMMITTED itself."""
    business.connection.execute(
        "ALTER DATABASE fencerow SET default_transaction_isolation = 'repeatable read'"
    )
    try:
        job = await _run(app, business, "done")
        assert written(business) == [job]
    finally:
        business.connection.execute("ALTER DATABASE fencerow RESET default_transaction_isolation")


async def test_a_deadlock_in_the_block_is_charged_to_the_job(app: App, business: Space) -> None:
    """What the handler's own SQL raises is the attempt's outcome (I13)."""

    def inside(job: Any, tx: Any) -> None:
        raise psycopg.errors.DeadlockDetected("deadlock detected")

    job = await _run(app, business, "scheduled", inside=inside)

    assert attempts(business, job) == [(1, 1, "failed")]
    assert "DeadlockDetected" in error_of(business, job)


async def test_a_statement_that_failed_in_the_block_cannot_be_swallowed(app: App, business: Space) -> None:
    """C085: PostgreSQL aborted the transaction, so the completion fails with it, and the next job is clean."""
    spoil = "SELECT 1 / 0"
    if app.tasks["t"].is_async:
        tasks = App(business.dsn)

        @tasks.task(name="t", backoff=HOUR)
        async def spoiled(job: AsyncJob) -> None:
            async with job.commit() as tx:
                await tx.execute(INSERT, (job.id,))
                try:
                    await tx.execute(spoil)
                except psycopg.Error:
                    pass

        app = tasks
    else:

        def inside(job: Any, tx: Any) -> None:
            try:
                tx.execute(spoil)
            except psycopg.Error:
                pass

        app.acts = {"inside": inside}  # type: ignore[attr-defined]
    (job,) = put(business, "t")
    async with serving(app):
        await soon(lambda: states(business)[job] == "scheduled", "its retry")

    assert written(business) == []
    assert attempts(business, job) == [(1, 1, "failed")]


async def test_a_connection_lost_in_the_block_is_not_charged(app: App, business: Space) -> None:
    """I13: it is Fencerow's own connection. The statement raises, nothing is half committed, the attempt is given back."""
    if app.tasks["t"].is_async:
        tasks = App(business.dsn)

        @tasks.task(name="t", backoff=HOUR)
        async def cut(job: AsyncJob) -> None:
            async with job.commit() as tx:
                await tx.execute(INSERT, (job.id,))
                _terminate(business, tx)
                await tx.execute("SELECT 1")

        app = tasks
    else:

        def inside(job: Any, tx: Any) -> None:
            _terminate(business, tx)
            tx.execute("SELECT 1")

        app.acts = {"inside": inside}  # type: ignore[attr-defined]
    (job,) = put(business, "t")
    async with serving(app):
        await soon(lambda: states(business)[job] == "scheduled", "its return")

    assert written(business) == []
    assert attempts(business, job) == [(1, 1, "snoozed")]
    assert business.value("SELECT attempt FROM fencerow.scheduled") == 0


def _terminate(space: Space, tx: Any) -> None:
    space.rows("SELECT pg_terminate_backend(%s, 5000)", (tx.connection.info.backend_pid,))


async def test_an_entry_that_fails_is_not_charged(app: App, business: Space) -> None:
    """I13: somebody holds the ticket for longer than lock_timeout; the attempt is given back."""
    holder = SessionThread(business, name="holder")

    def before(job: Any, tx: Any) -> None:
        holder.begin()
        holder.sql("SELECT FROM fencerow.running WHERE job_id = %s FOR UPDATE", (job.id,))

    def release() -> bool:
        return bool(business.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))

    app.acts = {"before": before}  # type: ignore[attr-defined]
    (job,) = put(business, "t")
    async with serving(app):
        await soon(release, "the entry that waits")
        await soon(lambda: not release(), "its lock_timeout")
        await soon(release, "the settlement that waits")
        holder.rollback()
        await soon(lambda: states(business)[job] == "scheduled", "its return")

    assert attempts(business, job) == [(1, 1, "snoozed")]
    assert written(business) == []


async def test_no_session_is_in_a_transaction_while_a_handler_runs(app: App, business: Space) -> None:
    """C086, I16."""
    seen: list[Any] = []
    gate = threading.Event()

    @app.task(name="looks")
    def looks() -> None:
        seen.append(
            business.rows(
                "SELECT state FROM pg_stat_activity WHERE application_name LIKE 'fencerow%' AND state LIKE 'idle in%'"
            )
        )
        gate.set()

    put(business, "looks")
    async with serving(app):
        await soon(gate.is_set, "the look")
    assert seen == [[]]
