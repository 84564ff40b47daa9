"""A transaction in which the user's statements run: what ``async with job.commit()`` and ``with job.commit()`` drive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencerow.errors import FencerowError
from fencerow.ops.base import Op, Row
from fencerow.store.classify import Phase
from fencerow.store.protocols import Begin, Commit, Inside, Pause, Protocol, Rollback, Turn
from fencerow.store.session import AsyncSession, SyncSession
from fencerow.store.steps import BEGIN, Statement
from fencerow.store.stores import AsyncStore, SyncStore

if TYPE_CHECKING:
    import psycopg


def _statement(instruction: Begin | Commit | Rollback | Inside) -> Statement:
    match instruction:
        case Begin():
            return Statement("begin", BEGIN, None, Phase.INSIDE)
        case Commit():
            return Statement("commit", "COMMIT", None, Phase.COMMIT)
        case Rollback():
            return Statement("rollback", "ROLLBACK", None, Phase.INSIDE)
        case Inside(op):
            return Statement(op.name, op.sql, op.params, Phase.INSIDE)


def _decoded(instruction: Begin | Commit | Rollback | Inside, rows: list[Row]) -> Any:
    return instruction.op.decode(rows) if isinstance(instruction, Inside) else None


class AsyncTransaction:
    """Drives a protocol with a Turn in it, on a session of its own."""

    def __init__(self, store: AsyncStore, protocol: Protocol[None]) -> None:
        self._store = store
        self._protocol = protocol
        self._session = AsyncSession(store.target)

    async def open(self) -> psycopg.AsyncConnection[Row]:
        """Carry the protocol to the user's turn; the connection with the open transaction."""
        try:
            await self._advance(next(self._protocol))
        except BaseException:
            await self._session.close()
            raise
        connection = self._session.connection
        if connection is None:
            raise RuntimeError("the protocol reached the user's turn without a connection")
        return connection

    async def close(self, error: BaseException | None) -> None:
        """Tell the protocol how the user's turn ended, and carry it to its end."""
        try:
            await self._advance(self._protocol.throw(error) if error is not None else self._protocol.send(None))
        except StopIteration:
            pass
        finally:
            await self._session.close()

    async def _advance(self, instruction: object) -> None:
        while not isinstance(instruction, Turn):
            try:
                answer = await self._carry_out(instruction)
            except FencerowError as error:
                instruction = self._protocol.throw(error)
            else:
                instruction = self._protocol.send(answer)

    async def _carry_out(self, instruction: object) -> Any:
        match instruction:
            case Begin():
                await self._session.connect()
                return _decoded(instruction, await self._session.execute(_statement(instruction)))
            case Rollback():
                return await self._session.close()
            case Commit() | Inside():
                return _decoded(instruction, await self._session.execute(_statement(instruction)))
            case Op():
                return await self._store.run(instruction)
            case Pause(seconds):
                return await self._store._carry_out(Pause(seconds))
        raise TypeError(f"a transaction cannot carry out {type(instruction).__name__}")


class SyncTransaction:
    """As AsyncTransaction, for threads."""

    def __init__(self, store: SyncStore, protocol: Protocol[None]) -> None:
        self._store = store
        self._protocol = protocol
        self._session = SyncSession(store.target)

    def open(self) -> psycopg.Connection[Row]:
        """As AsyncTransaction.open."""
        try:
            self._advance(next(self._protocol))
        except BaseException:
            self._session.close()
            raise
        connection = self._session.connection
        if connection is None:
            raise RuntimeError("the protocol reached the user's turn without a connection")
        return connection

    def close(self, error: BaseException | None) -> None:
        """As AsyncTransaction.close."""
        try:
            self._advance(self._protocol.throw(error) if error is not None else self._protocol.send(None))
        except StopIteration:
            pass
        finally:
            self._session.close()

    def _advance(self, instruction: object) -> None:
        while not isinstance(instruction, Turn):
            try:
                answer = self._carry_out(instruction)
            except FencerowError as error:
                instruction = self._protocol.throw(error)
            else:
                instruction = self._protocol.send(answer)

    def _carry_out(self, instruction: object) -> Any:
        match instruction:
            case Begin():
                self._session.connect()
                return _decoded(instruction, self._session.execute(_statement(instruction)))
            case Rollback():
                return self._session.close()
            case Commit() | Inside():
                return _decoded(instruction, self._session.execute(_statement(instruction)))
            case Op():
                return self._store.run(instruction)
            case Pause(seconds):
                return self._store._carry_out(Pause(seconds))
        raise TypeError(f"a transaction cannot carry out {type(instruction).__name__}")
