"""Enqueueing on a connection of the caller's: the jobs commit or roll back with his data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, cast

from fencerow.app.batch import Batch, Chunk
from fencerow.errors import UsageError
from fencerow.ops import jobs
from fencerow.store.classify import Phase, classify
from fencerow.store.session import arun_on, run_on

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection, Error

Kind = Literal["Connection", "AsyncConnection"]


def check_connection(connection: object, *, wanted: Kind) -> None:
    """
    Accept a psycopg connection of the wanted kind or a subclass.

    Raises:
        UsageError: it is something else, or of the other kind.
    """
    found = _of_driver(connection)
    if wanted in found:
        return
    if "Connection" in found:
        raise UsageError(
            "a sync connection was given to an async enqueue", hint="Call enqueue() in a thread."
        )
    if "AsyncConnection" in found:
        raise UsageError("an async connection was given to a sync enqueue", hint="Await aenqueue().")
    raise UsageError(
        f"connection= of type {type(connection).__name__} is not supported",
        hint="Give a psycopg Connection or AsyncConnection; others are not built yet.",
    )


def send_on(
    connection: Connection[Any], batch: Batch, first: Chunk, rest: Iterable[Chunk] | None, schema: str
) -> None:
    """
    Enqueue on the caller's connection. Several chunks are all in or none: under a savepoint of his transaction, which
    stays open, or in one transaction where he has none because his connection commits by itself.
    """
    if rest is None:
        batch.take(first, run_on(connection, jobs.enqueue(first.jobs), schema=schema))
        return
    if not connection.autocommit:
        # Opens his transaction if it is not open: else psycopg would end the savepoint's with a COMMIT.
        run_on(connection, jobs.enqueue([]), schema=schema)
    try:
        with connection.transaction():
            batch.take(first, run_on(connection, jobs.enqueue(first.jobs), schema=schema))
            for chunk in rest:
                batch.take(chunk, run_on(connection, jobs.enqueue(chunk.jobs), schema=schema))
    except Exception as error:
        raise _classified(error, connection) from error


async def asend_on(
    connection: AsyncConnection[Any], batch: Batch, first: Chunk, rest: Iterable[Chunk] | None, schema: str
) -> None:
    """As send_on, for an async connection."""
    if rest is None:
        batch.take(first, await arun_on(connection, jobs.enqueue(first.jobs), schema=schema))
        return
    if not connection.autocommit:
        await arun_on(connection, jobs.enqueue([]), schema=schema)
    try:
        async with connection.transaction():
            batch.take(first, await arun_on(connection, jobs.enqueue(first.jobs), schema=schema))
            for chunk in rest:
                batch.take(chunk, await arun_on(connection, jobs.enqueue(chunk.jobs), schema=schema))
    except Exception as error:
        raise _classified(error, connection) from error


def _classified(error: Exception, connection: Connection[Any] | AsyncConnection[Any]) -> Exception:
    """BEGIN, SAVEPOINT and COMMIT are psycopg's here, and so are their errors; others pass as they are."""
    if "Error" not in _of_driver(error):
        return error
    phase = Phase.COMMIT if connection.autocommit else Phase.INSIDE
    return classify(cast("Error", error), name="enqueue", phase=phase, lost=connection.broken)


def _of_driver(value: object) -> set[str]:
    """The classes of psycopg among a value's; the question imports nothing."""
    return {kind.__name__ for kind in type(value).__mro__ if kind.__module__.split(".")[0] == "psycopg"}
