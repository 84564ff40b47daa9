"""Enqueueing on the caller's connection: C075, the job is there if and only if his data is."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from fencerow import App, NewJob, Task, limits
from fencerow.errors import InvalidPayload, NotReadCommitted, UsageError
from fencerow.testing.space import Space

SEVERAL = 25
"""Three statements: the fault at the end is met when two of them were sent."""


@pytest.fixture(autouse=True)
def people(space: Space, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(limits, "ENQUEUE_BATCH_MAX", 10)
    space.connection.execute("CREATE TABLE public.person (name text)")
    yield
    space.release()
    space.connection.execute("DROP TABLE public.person")


def stored(space: Space) -> tuple[int, int]:
    """(people, jobs) that everybody sees."""
    people = space.connection.execute("SELECT count(*) FROM public.person").fetchone()
    return (people or (0,))[0], space.value("SELECT count(*) FROM fencerow.job")


def add(connection: psycopg.Connection[Any]) -> None:
    connection.execute("INSERT INTO public.person VALUES ('x')")


async def aadd(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.execute("INSERT INTO public.person VALUES ('x')")


def invalid_at_the_end(task: Task[..., None]) -> Iterator[NewJob]:
    for _ in range(SEVERAL):
        yield task.bind("x")
    yield task.bind("x\0")


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
def test_a_job_commits_and_rolls_back_with_the_data(space: Space, task: Task[..., None], keyed: bool) -> None:
    connection = space.connect(autocommit=False)
    calls = task.using(connection=connection, idempotency_key="k" if keyed else None)

    add(connection)
    calls.enqueue("a")
    assert stored(space) == (0, 0)
    connection.rollback()
    assert stored(space) == (0, 0)
    add(connection)
    calls.enqueue("a")
    connection.commit()
    assert stored(space) == (1, 1)


async def test_a_job_commits_and_rolls_back_with_the_data_in_a_loop(
    space: Space, loop_task: Task[..., None]
) -> None:
    async with await psycopg.AsyncConnection.connect(space.dsn) as connection:
        calls = loop_task.using(connection=connection)
        await aadd(connection)
        await calls.aenqueue("a")
        assert stored(space) == (0, 0)
        await connection.rollback()
        assert stored(space) == (0, 0)
        await aadd(connection)
        await calls.aenqueue("a")
        await connection.commit()
        assert stored(space) == (1, 1)


def test_a_savepoint_takes_its_jobs_with_it(space: Space, task: Task[..., None]) -> None:
    connection = space.connect(autocommit=False)
    calls = task.using(connection=connection)
    with connection.transaction():
        calls.enqueue("kept")
        with connection.transaction(force_rollback=True):
            calls.enqueue("gone")

    assert space.rows("SELECT payload->>'text' FROM fencerow.job") == [("kept",)]


def test_an_autocommit_connection_commits_at_once(space: Space, task: Task[..., None]) -> None:
    connection = space.connect()
    task.using(connection=connection).enqueue("a")

    assert stored(space) == (0, 1)


@pytest.mark.parametrize("autocommit", [True, False], ids=["autocommit", "transaction"])
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "fresh"])
def test_many_on_a_connection_are_all_in_or_none(
    space: Space, app: App, task: Task[..., None], autocommit: bool, begun: bool
) -> None:
    """C074, C075: more than one statement, and still one enqueue; the caller's transaction stays open and usable."""
    connection = space.connect(autocommit=autocommit)
    if begun:
        connection.execute("BEGIN") if autocommit else add(connection)
    with pytest.raises(InvalidPayload):
        app.enqueue_many(invalid_at_the_end(task), connection=connection)
    assert connection.info.transaction_status.name == ("INTRANS" if begun or not autocommit else "IDLE")
    handles = app.enqueue_many((task.bind("x") for _ in range(SEVERAL)), connection=connection)
    inside = connection.execute(space.sql("SELECT count(*) FROM fencerow.job").encode()).fetchone()

    assert (inside, len({handle.id for handle in handles})) == ((SEVERAL,), SEVERAL)
    assert stored(space)[1] == (SEVERAL if autocommit and not begun else 0)
    connection.rollback()
    assert stored(space)[1] == (SEVERAL if autocommit and not begun else 0)


async def test_many_on_an_async_connection_are_all_in_or_none(
    space: Space, loop_app: App, loop_task: Task[..., None]
) -> None:
    async with await psycopg.AsyncConnection.connect(space.dsn) as connection:
        with pytest.raises(InvalidPayload):
            await loop_app.aenqueue_many(invalid_at_the_end(loop_task), connection=connection)
        await aadd(connection)
        await loop_app.aenqueue_many([loop_task.bind("x")] * SEVERAL, connection=connection)
        assert stored(space) == (0, 0)
        await connection.commit()

    assert stored(space) == (1, SEVERAL)


def test_a_connection_of_another_kind_is_refused(space: Space, task: Task[..., None]) -> None:
    """Never accepted and ignored: the job would be enqueued outside the caller's transaction."""
    with space.connect() as connection:
        for other in (object(), "conn", space.dsn, connection.cursor(), type(connection)):
            with pytest.raises(UsageError, match="psycopg Connection or AsyncConnection"):
                task.using(connection=other).enqueue("a")

    assert stored(space) == (0, 0)


async def test_sync_and_async_connections_are_not_mixed(space: Space, loop_task: Task[..., None]) -> None:
    with pytest.raises(UsageError, match="sync connection was given to an async"):
        await loop_task.using(connection=space.connection).aenqueue("a")
    async with await psycopg.AsyncConnection.connect(space.dsn) as connection:
        with pytest.raises(UsageError, match="event loop"):
            loop_task.using(connection=connection).enqueue("a")

    assert stored(space) == (0, 0)


def test_a_subclass_of_a_connection_is_taken(space: Space, task: Task[..., None]) -> None:
    class Mine(psycopg.Connection[Any]):
        pass

    with Mine.connect(space.dsn) as connection:
        task.using(connection=connection).enqueue("a")

    assert stored(space) == (0, 1)


def test_a_serializable_producer_may_enqueue_without_keys(space: Space, task: Task[..., None]) -> None:
    """I15: inserts alone hold at any isolation; a decision about a key does not, and says so."""
    connection = space.connect(autocommit=False)
    connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    task.using(connection=connection).enqueue("a")
    connection.commit()
    with pytest.raises(NotReadCommitted, match="READ COMMITTED"):
        task.using(connection=connection, idempotency_key="k").enqueue("a")
    connection.rollback()

    assert stored(space) == (0, 1)


def test_rows_of_any_shape_are_read(space: Space, task: Task[..., None]) -> None:
    """The caller's row factory and his cursor class are his affair."""
    connection = space.connect(row_factory=dict_row)

    assert task.using(connection=connection).enqueue("a").created
