"""job.commit(connection): "done" in a transaction of the user's, who commits it, or does not."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from fencerow import App, AsyncJob, Job
from fencerow.errors import ClaimLost, NotReadCommitted, UsageError
from fencerow.testing import adrain, drain
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space


@pytest.fixture
def ledger(space: Space) -> Any:
    """A table of the user's."""
    space.connection.execute("CREATE TABLE IF NOT EXISTS ledger (job bigint PRIMARY KEY)")
    space.connection.execute("DELETE FROM ledger")
    yield lambda: [row[0] for row in space.connection.execute("SELECT job FROM ledger ORDER BY job")]
    space.connection.execute("DROP TABLE ledger")


Ledger = Callable[[], list[int]]
BOOK = "INSERT INTO ledger VALUES (%s)"


def refusals(space: Space) -> list[tuple[Any, ...]]:
    return space.rows("SELECT op, verdict FROM fencerow.refusal")


def test_the_row_and_the_completion_commit_together(app: App, space: Space, ledger: Ledger) -> None:
    seen: list[str] = []

    @app.task
    def book(job: Job) -> str:
        with psycopg.connect(space.dsn, autocommit=True) as connection:
            with connection.transaction(), job.commit(connection) as tx:
                tx.execute(BOOK, (job.id,))
                tx.result = {"booked": job.id}
            seen.append(space.value("SELECT state FROM fencerow.jobs WHERE id = %s", (job.id,)))
        return "not used: the result was given in the block"

    handle = book.enqueue()
    drained = drain(app)

    assert seen == ["done"]
    assert drained.done == (handle.id,)
    assert ledger() == [handle.id]
    assert space.value("SELECT result FROM fencerow.ended") == {"booked": handle.id}
    assert refusals(space) == []


async def test_async_and_a_connection_that_begins_by_itself(app: App, space: Space, ledger: Ledger) -> None:
    @app.task
    async def book(job: AsyncJob) -> None:
        async with await psycopg.AsyncConnection.connect(space.dsn) as connection:
            await connection.execute(BOOK, (job.id,))
            async with job.commit(connection) as tx:
                await tx.execute(BOOK, (job.id + 1000,))
            # psycopg commits when its own block ends

    handle = await book.aenqueue()
    drained = await adrain(app)

    assert drained.done == (handle.id,)
    assert ledger() == [handle.id, handle.id + 1000]
    assert refusals(space) == []


def test_what_is_rolled_back_after_the_block_is_an_attempt_like_any_other(
    app: App, space: Space, ledger: Ledger
) -> None:
    @app.task(backoff=(0.001, 0.001), max_attempts=3)
    def book(job: Job) -> None:
        with psycopg.connect(space.dsn) as connection, connection.transaction():
            with job.commit(connection) as tx:
                tx.execute(BOOK, (job.id,))
            if job.attempt == 1:
                raise ValueError("after the block, before COMMIT")

    handle = book.enqueue()
    drained = drain(app)

    assert drained.done == (handle.id,)
    assert drained.runs == 2
    assert "after the block" in drained.errors[handle.id]
    assert ledger() == [handle.id]
    assert space.rows("SELECT kind, attempt FROM fencerow.attempt") == [("failed", 1)]
    assert refusals(space) == []


@pytest.mark.parametrize("how", ["left open", "rolled back"])
def test_a_handler_that_returns_without_its_commit_is_not_done(
    app: App, space: Space, ledger: Ledger, how: str
) -> None:
    connections: list[psycopg.Connection[Any]] = []

    @app.task(max_attempts=1)
    def book(job: Job) -> None:
        connection: psycopg.Connection[Any] = psycopg.connect(space.dsn)
        connections.append(connection)
        with job.commit(connection) as tx:
            tx.execute(BOOK, (job.id,))
        if how == "rolled back":
            connection.rollback()

    handle = book.enqueue()
    drained = drain(app)
    for connection in connections:
        connection.close()

    assert drained.failed == (handle.id,)
    assert how in drained.errors[handle.id]
    assert "Commit it before the handler returns" in drained.errors[handle.id]
    assert ledger() == []
    assert refusals(space) == []


@pytest.mark.parametrize("when", ["before", "inside"])
def test_a_lost_claim_rolls_everything_back_and_the_refusal_is_kept(
    app: App, space: Space, ledger: Ledger, clock: Clock, when: str
) -> None:
    losses: list[ClaimLost] = []

    @app.task(max_attempts=1)
    def book(job: Job) -> None:
        if when == "before":
            clock.advance(3600)
        try:
            with psycopg.connect(space.dsn) as connection, connection.transaction():
                connection.execute(BOOK, (job.id,))
                with job.commit(connection) as tx:
                    tx.execute(BOOK, (job.id + 1000,))
                    if when == "inside":
                        clock.advance(3600)
        except ClaimLost as lost:
            losses.append(lost)
            raise

    book.enqueue()
    drain(app)

    assert [lost.verdict for lost in losses] == ["expired"]
    assert ledger() == []
    assert ("commit", "expired") in refusals(space)


def test_connections_that_do_not_fit_are_refused_and_the_job_goes_on(
    app: App, space: Space, ledger: Ledger
) -> None:
    refused: dict[str, Exception] = {}

    def attempt(job: Job, name: str, connection: Any) -> None:
        try:
            with job.commit(connection):
                refused[name] = AssertionError("entered")
        except (UsageError, NotReadCommitted) as error:
            refused[name] = error

    @app.task
    def book(job: Job) -> str:
        with psycopg.connect(space.dsn, autocommit=True) as connection:
            attempt(job, "commits by itself", connection)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            attempt(job, "repeatable read", connection)
            connection.rollback()
        attempt(job, "closed", connection)
        attempt(job, "no connection", object())
        with psycopg.connect(space.dsn) as failed:
            with pytest.raises(psycopg.errors.DivisionByZero):
                failed.execute("SELECT 1/0")
            attempt(job, "failed transaction", failed)
        return "by the handler's own return"

    handle = book.enqueue()
    drained = drain(app)

    assert drained.done == (handle.id,)
    assert {name: type(error) for name, error in refused.items()} == {
        "commits by itself": UsageError,
        "repeatable read": NotReadCommitted,
        "closed": UsageError,
        "no connection": UsageError,
        "failed transaction": UsageError,
    }
    assert handle.result(timeout=0) == "by the handler's own return"


def test_steps_and_children_have_no_place_in_or_after_the_block(
    app: App, space: Space, ledger: Ledger
) -> None:
    told: list[str] = []

    @app.task(queue="apart")
    def child() -> None: ...

    @app.task
    def book(job: Job) -> None:
        with psycopg.connect(space.dsn) as connection:
            with job.commit(connection) as tx:
                for call in (lambda: job.step("a", int), lambda: job.enqueue_child(child.bind())):
                    with pytest.raises(UsageError) as error:
                        call()
                    told.append(str(error.value))
                # The way that the message names: the child commits with the job.
                child.using(connection=tx.connection).enqueue()
            with pytest.raises(UsageError, match="used before in this attempt"), job.commit(connection):
                pass

    handle = book.enqueue()
    drained = drain(app, queues=["default"])

    assert drained.done == (handle.id,)
    assert all("job.commit()" in text for text in told)
    assert space.value("SELECT count(*) FROM fencerow.job WHERE task LIKE '%%child'") == 1


def test_a_raise_after_the_commit_changes_nothing(app: App, space: Space, ledger: Ledger) -> None:
    @app.task(max_attempts=1)
    def book(job: Job) -> None:
        with psycopg.connect(space.dsn) as connection, connection.transaction(), job.commit(connection) as tx:
            tx.execute(BOOK, (job.id,))
        raise RuntimeError("too late to matter")

    handle = book.enqueue()
    drained = drain(app)

    assert drained.done == (handle.id,)
    assert ledger() == [handle.id]
    assert refusals(space) == []
