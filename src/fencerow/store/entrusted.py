"""A transaction of the user's on a psycopg connection of his own, in which ``job.commit(connection)`` takes part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fencerow.errors import UsageError

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection


def check(connection: object, *, wanted: Literal["Connection", "AsyncConnection"]) -> None:
    """
    Accept a psycopg connection of the wanted kind whose next statement belongs to a transaction that somebody will commit.

    Raises:
        UsageError: another kind, closed, a transaction that failed, or autocommit without a transaction.
    """
    import psycopg

    kind = psycopg.Connection if wanted == "Connection" else psycopg.AsyncConnection
    if not isinstance(connection, kind):
        raise UsageError(
            f"job.commit() was given a {type(connection).__name__}",
            hint=f"Give a psycopg {wanted}, or nothing for a connection of its own.",
        )
    status = connection.info.transaction_status.name
    if connection.closed or status not in ("IDLE", "INTRANS"):
        raise UsageError(
            "job.commit() was given a connection that is closed, busy or in a failed transaction",
            hint="Begin a new transaction first.",
        )
    if status == "IDLE" and connection.autocommit:
        raise UsageError(
            "job.commit() was given a connection that commits by itself and has no transaction open",
            hint="Open one around it: with connection.transaction(): with job.commit(connection): …",
        )


def is_open(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether a transaction is still open on it."""
    return not connection.closed and connection.info.transaction_status.name != "IDLE"
