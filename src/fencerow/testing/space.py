"""A migrated space on a throwaway server, emptied between tests by one string of DELETEs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from fencerow.ops.base import Op, Row
from fencerow.sql import SCHEMA, requalify
from fencerow.store.migrate import migrate_dsn
from fencerow.store.session import Target, run_on

T = TypeVar("T")

# Settings of the space outlive a test; so do the names of its migrations.
_KEPT = ("migration", "routine", "space")
_SEQUENCES = (
    "SELECT string_agg(format('setval(%%L, 1, false)', format('%%I.%%I', schemaname, sequencename)), ', ') "
    "FROM pg_sequences WHERE schemaname = %s"
)
_TABLES = (
    "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = %s AND tablename <> ALL (%s) ORDER BY 1"
)


class Space:
    """
    One migrated space.

    Attributes:
        dsn: libpq URI of its database, for ``App(space.dsn)`` or another process.
        schema: the schema's name, unquoted.
        connection: an autocommit psycopg connection of the owner.
    """

    def __init__(self, dsn: str, *, schema: str = SCHEMA) -> None:
        self.dsn = dsn
        self.schema = schema
        migrate_dsn(dsn, schema)
        self.connection: psycopg.Connection[Row] = psycopg.connect(
            # A test that waits for itself fails instead of hanging; the functions have their own limits.
            dsn,
            autocommit=True,
            application_name="space",
            options="-c lock_timeout=20s",
        )
        self._opened: list[psycopg.Connection[Row]] = []
        self._closers: list[Callable[[], object]] = []
        self._emptying = self._prepare()

    @property
    def target(self) -> Target:
        """Where a store of this space connects."""
        return Target(self.dsn, schema=self.schema, name="test")

    def run(self, op: Op[T]) -> T:
        """Run an operation as one transaction on ``connection``."""
        return run_on(self.connection, op, schema=self.schema)

    def sql(self, text: str) -> str:
        """SQL written for the schema ``fencerow``, for this space's schema."""
        return requalify(text, self.schema)

    def rows(self, text: str, params: tuple[Any, ...] = ()) -> list[Row]:
        """The rows, if any, of a statement written for the schema ``fencerow``."""
        text = requalify(text, self.schema, placeholders=bool(params))
        cursor = self.connection.execute(text.encode(), params or None)
        return cursor.fetchall() if cursor.description else []

    def value(self, text: str, params: tuple[Any, ...] = ()) -> Any:
        """The first value of the first row."""
        return self.rows(text, params)[0][0]

    def connect(
        self, *, autocommit: bool = True, name: str = "test", **options: Any
    ) -> psycopg.Connection[Row]:
        """Another connection of the owner; closed at the end of the test."""
        connection: psycopg.Connection[Row] = psycopg.connect(
            self.dsn, autocommit=autocommit, application_name=name, **options
        )
        self._opened.append(connection)
        return connection

    def at_end(self, close: Callable[[], object]) -> None:
        """Call *close* at the end of the test, before the space is emptied; the last one first."""
        self._closers.append(close)

    def release(self) -> None:
        """End what the test opened."""
        while self._closers:
            self._closers.pop()()
        while self._opened:
            self._opened.pop().close()

    def empty(self) -> None:
        """Delete every row and restart the sequences: about a millisecond for what a test leaves."""
        self.force(self._emptying)

    def force(self, statements: bytes) -> None:
        """Execute on ``connection``; a session that is in the way for 2 s is ended: this server is ours alone."""
        limited = b"SET lock_timeout = '2s';\n" + statements + b";\nRESET lock_timeout"
        try:
            self.connection.execute(limited)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            self.connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            self.connection.execute(limited)

    def close(self) -> None:
        """Close everything."""
        self.release()
        self.connection.close()

    def _prepare(self) -> bytes:
        with self.connection.cursor() as cursor:
            tables = [row[0] for row in cursor.execute(_TABLES, (self.schema, list(_KEPT))).fetchall()]
            sequences = cursor.execute(_SEQUENCES, (self.schema,)).fetchall()[0][0]
        deletes = (self.sql(f"DELETE FROM fencerow.{name}") for name in tables)
        return ";\n".join([*deletes, f"SELECT {sequences}"]).encode()
