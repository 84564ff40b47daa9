"""
A session: one connection that runs operations, async or sync. It connects when first used, and again after a loss.

A connection whose reply was lost is never used again. Every statement has three deadlines, each inside the next:
lock_timeout (in the functions), statement_timeout (a connection option), and the watchdog of this process.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any, TypeVar

from fencerow import limits
from fencerow.errors import CommitUncertain, DatabaseUnavailable, FencerowError, ReadOnly
from fencerow.ops.base import Op, Row
from fencerow.sql import requalify
from fencerow.store.classify import Phase, classify, is_lost
from fencerow.store.steps import Isolation, Statement, Steps
from fencerow.store.watchdog import thread_watchdog, watch_async

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")


class Target:
    """
    Where sessions connect: a libpq DSN, the schema of the space, and a name for pg_stat_activity.

    Args:
        pooler: True behind a transaction-mode pooler: no connection options, no prepared statements.
        statement_seconds: statement_timeout; the watchdog fires 3/5 of it later.
    """

    __slots__ = ("dsn", "isolation", "name", "pooler", "schema", "statement_seconds")

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "fencerow",
        name: str = "fencerow",
        pooler: bool = False,
        statement_seconds: float = limits.STATEMENT_TIMEOUT_SECONDS,
    ) -> None:
        self.dsn = dsn
        self.schema = schema
        self.name = name
        self.pooler = pooler
        self.statement_seconds = statement_seconds
        self.isolation = Isolation()

    def hasty(self, watchdog_seconds: float) -> Target:
        """The same place for statements that answer at once or not at all."""
        return Target(
            self.dsn,
            schema=self.schema,
            name=self.name,
            pooler=self.pooler,
            statement_seconds=watchdog_seconds * limits.STATEMENT_TIMEOUT_SECONDS / limits.WATCHDOG_SECONDS,
        )

    @property
    def watchdog_seconds(self) -> float:
        return self.statement_seconds * limits.WATCHDOG_SECONDS / limits.STATEMENT_TIMEOUT_SECONDS

    def sql(self, text: str) -> str:
        """SQL for this space's schema, as sent with parameters."""
        return requalify(text, self.schema, placeholders=True)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for the driver's connect()."""
        from psycopg.conninfo import conninfo_to_dict

        given = conninfo_to_dict(self.dsn)
        arguments: dict[str, Any] = {
            "autocommit": True,
            "application_name": self.name[:63],
            "prepare_threshold": None if self.pooler else 5,
        }
        arguments["connect_timeout"] = given.get("connect_timeout", limits.CONNECT_TIMEOUT_SECONDS)
        if not self.pooler:
            timeout = f"-c statement_timeout={int(self.statement_seconds * 1000)}"
            arguments["options"] = f"{given.get('options') or ''} {timeout}".strip()
            for name, value in (
                ("tcp_user_timeout", 10_000),
                ("keepalives_idle", 30),
                ("keepalives_interval", 10),
            ):
                arguments[name] = given.get(name, value)
        return arguments


class _Base:
    """What both sessions share: the notices that turn an answer into an uncertain one, and error classification."""

    __slots__ = ("_unreplicated", "target")

    def __init__(self, target: Target) -> None:
        self.target = target
        self._unreplicated = False

    def _notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        # PostgreSQL: cancelling the wait for a synchronous standby answers success with this warning.
        if diagnostic.sqlstate == "01000" and "synchronous replication" in (diagnostic.message_primary or ""):
            self._unreplicated = True

    def _checked(self, name: str, rows: list[Row]) -> list[Row]:
        if self._unreplicated:
            self._unreplicated = False
            raise CommitUncertain(
                f"{name}: committed here, but the wait for the synchronous standby was cancelled"
            )
        return rows


def spoken_to(connection: psycopg.AsyncConnection[Row] | psycopg.Connection[Row]) -> bool:
    """
    Whether the server said something on an idle connection: nearly always that it closes it.

    Asked before sending, because a write into a closed connection looks like one whose reply was lost.
    """
    if connection.closed:
        return True
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poller.poll(0))


class AsyncSession(_Base):
    """One connection of an asyncio program; not to be shared by tasks at the same time."""

    __slots__ = ("_connection",)

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._connection: psycopg.AsyncConnection[Row] | None = None

    @property
    def connection(self) -> psycopg.AsyncConnection[Row] | None:
        """The live connection, or None."""
        return self._connection

    async def connect(self) -> psycopg.AsyncConnection[Row]:
        """The connection, opened if there is none. Raises DatabaseUnavailable."""
        import psycopg

        if self._connection is None or self._connection.closed:
            try:
                self._connection = await psycopg.AsyncConnection.connect(
                    self.target.dsn, **self.target.arguments()
                )
            except psycopg.Error as error:
                raise classify(error, name="connect", phase=Phase.CONNECT, lost=True) from None
            self._connection.add_notice_handler(self._notice)
        return self._connection

    async def run(self, op: Op[T]) -> T:
        """
        Run an operation as one READ COMMITTED transaction.

        Raises:
            DatabaseUnavailable: nothing was done.  CommitUncertain: the reply to a write was lost.
            StoreError, ClaimLost, Duplicate, …: as the database answered; nothing was done.
        """
        if self._connection is not None and spoken_to(self._connection):
            await self.close()
        await self.connect()
        return await self.drive(self.target.isolation.transact(op))

    async def drive(self, steps: Steps[T]) -> T:
        """Carry out the statements that a generator yields."""
        try:
            statement = next(steps)
            while True:
                try:
                    rows = await self.execute(statement)
                except FencerowError as error:
                    statement = steps.throw(error)
                else:
                    statement = steps.send(rows)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    async def execute(self, statement: Statement) -> list[Row]:
        """One round trip on the live connection."""
        import psycopg

        connection = self._connection
        if connection is None or connection.closed:
            raise DatabaseUnavailable(f"{statement.name}: the connection was lost before it could be sent")
        sql = self.target.sql(statement.sql)
        handle = watch_async(connection.fileno(), self.target.watchdog_seconds)
        try:
            cursor = connection.cursor(binary=True)
            await cursor.execute(sql.encode(), statement.params)
            rows = await cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            lost = is_lost(connection, error)
            found = classify(error, name=statement.name, phase=statement.phase, lost=lost)
            # A demoted server keeps its connections, and the next one may reach the primary.
            if lost or isinstance(found, ReadOnly):
                await self.close()
            raise found from None
        except BaseException:
            await self.close()
            raise
        finally:
            handle.cancel()
        return self._checked(statement.name, rows)

    async def close(self) -> None:
        """Drop the connection; the next run() opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def abandon(self) -> None:
        """As close, when the loop has ended."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pgconn.finish()


class SyncSession(_Base):
    """One connection of a threaded program; not to be shared by threads at the same time."""

    __slots__ = ("_connection",)

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._connection: psycopg.Connection[Row] | None = None

    @property
    def connection(self) -> psycopg.Connection[Row] | None:
        """The live connection, or None."""
        return self._connection

    def connect(self) -> psycopg.Connection[Row]:
        """As AsyncSession.connect."""
        import psycopg

        if self._connection is None or self._connection.closed:
            try:
                self._connection = psycopg.connect(self.target.dsn, **self.target.arguments())
            except psycopg.Error as error:
                raise classify(error, name="connect", phase=Phase.CONNECT, lost=True) from None
            self._connection.add_notice_handler(self._notice)
        return self._connection

    def run(self, op: Op[T]) -> T:
        """As AsyncSession.run."""
        if self._connection is not None and spoken_to(self._connection):
            self.close()
        self.connect()
        return self.drive(self.target.isolation.transact(op))

    def drive(self, steps: Steps[T]) -> T:
        """As AsyncSession.drive."""
        try:
            statement = next(steps)
            while True:
                try:
                    rows = self.execute(statement)
                except FencerowError as error:
                    statement = steps.throw(error)
                else:
                    statement = steps.send(rows)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def execute(self, statement: Statement) -> list[Row]:
        """As AsyncSession.execute."""
        import psycopg

        connection = self._connection
        if connection is None or connection.closed:
            raise DatabaseUnavailable(f"{statement.name}: the connection was lost before it could be sent")
        sql = self.target.sql(statement.sql)
        token = thread_watchdog.arm(connection.fileno(), self.target.watchdog_seconds)
        try:
            cursor = connection.cursor(binary=True)
            cursor.execute(sql.encode(), statement.params)
            rows = cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            lost = is_lost(connection, error)
            found = classify(error, name=statement.name, phase=statement.phase, lost=lost)
            # A demoted server keeps its connections, and the next one may reach the primary.
            if lost or isinstance(found, ReadOnly):
                self.close()
            raise found from None
        except BaseException:
            self.close()
            raise
        finally:
            thread_watchdog.disarm(token)
        return self._checked(statement.name, rows)

    def close(self) -> None:
        """As AsyncSession.close."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def run_on(connection: psycopg.Connection[Any], op: Op[T], *, schema: str = "fencerow") -> T:
    """Run an operation on the caller's connection, inside the caller's transaction: it commits or rolls back with it."""
    import psycopg
    from psycopg.rows import tuple_row

    phase = _foreign_phase(connection, op)
    try:
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(_foreign(op, schema), op.params)
            return op.decode(cursor.fetchall())
    except psycopg.Error as error:
        raise classify(error, name=op.name, phase=phase, lost=is_lost(connection, error)) from error


async def arun_on(connection: psycopg.AsyncConnection[Any], op: Op[T], *, schema: str = "fencerow") -> T:
    """As run_on, for an async connection."""
    import psycopg
    from psycopg.rows import tuple_row

    phase = _foreign_phase(connection, op)
    try:
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(_foreign(op, schema), op.params)
            return op.decode(await cursor.fetchall())
    except psycopg.Error as error:
        raise classify(error, name=op.name, phase=phase, lost=is_lost(connection, error)) from error


def _foreign(op: Op[Any], schema: str) -> bytes:
    return requalify(op.sql, schema, placeholders=True).encode()


def _foreign_phase(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], op: Op[Any]) -> Phase:
    alone = connection.autocommit and connection.info.transaction_status.name == "IDLE"
    return Phase.COMMIT if alone and op.writes else Phase.INSIDE
