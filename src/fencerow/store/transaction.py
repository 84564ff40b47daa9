"""A transaction in which the user's statements run: what ``async with job.commit()`` and ``with job.commit()`` drive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from fencerow.errors import FencerowError
from fencerow.ops.base import Row
from fencerow.store.classify import Phase, is_lost
from fencerow.store.protocols import Begin, Commit, Inside, Protocol, Rollback, Turn
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
            await self._advance(lambda: next(self._protocol))
        except BaseException:
            await self._session.close()
            raise
        connection = self._session.connection
        if connection is None:
            raise RuntimeError("the protocol reached the user's turn without a connection")
        return connection

    def lost(self, error: BaseException) -> bool:
        """Whether the connection did not survive, and *error* is how the user's turn learnt it."""
        connection = self._session.connection
        return connection is None or is_lost(connection, error)

    async def close(self, error: BaseException | None) -> None:
        """Tell the protocol how the user's turn ended, and carry it to its end."""
        try:
            await self._advance(
                lambda: self._protocol.send(None) if error is None else self._protocol.throw(error)
            )
        finally:
            await self._session.close()

    async def _advance(self, step: Callable[[], object]) -> None:
        """Take *step* with the protocol and carry out what it asks for, up to the user's turn or the end."""
        while True:
            try:
                instruction = step()
            except StopIteration:
                return
            if isinstance(instruction, Turn):
                return
            step = partial(self._resume, *await self._try(instruction))

    async def _try(self, instruction: object) -> tuple[Any, FencerowError | None]:
        try:
            return await self._carry_out(instruction), None
        except FencerowError as error:
            return None, error

    def _resume(self, answer: Any, error: FencerowError | None) -> object:
        return self._protocol.send(answer) if error is None else self._protocol.throw(error)

    async def _carry_out(self, instruction: object) -> Any:
        match instruction:
            case Begin():
                await self._session.connect()
                return _decoded(instruction, await self._session.execute(_statement(instruction)))
            case Rollback():
                return await self._session.close()
            case Commit() | Inside():
                return _decoded(instruction, await self._session.execute(_statement(instruction)))
        return await self._store.carry_out(instruction)


class SyncTransaction:
    """As AsyncTransaction, for threads."""

    def __init__(self, store: SyncStore, protocol: Protocol[None]) -> None:
        self._store = store
        self._protocol = protocol
        self._session = SyncSession(store.target)

    def open(self) -> psycopg.Connection[Row]:
        """As AsyncTransaction.open."""
        try:
            self._advance(lambda: next(self._protocol))
        except BaseException:
            self._session.close()
            raise
        connection = self._session.connection
        if connection is None:
            raise RuntimeError("the protocol reached the user's turn without a connection")
        return connection

    def lost(self, error: BaseException) -> bool:
        """Whether the connection did not survive, and *error* is how the user's turn learnt it."""
        connection = self._session.connection
        return connection is None or is_lost(connection, error)

    def close(self, error: BaseException | None) -> None:
        """As AsyncTransaction.close."""
        try:
            self._advance(lambda: self._protocol.send(None) if error is None else self._protocol.throw(error))
        finally:
            self._session.close()

    def _advance(self, step: Callable[[], object]) -> None:
        """Take *step* with the protocol and carry out what it asks for, up to the user's turn or the end."""
        while True:
            try:
                instruction = step()
            except StopIteration:
                return
            if isinstance(instruction, Turn):
                return
            step = partial(self._resume, *self._try(instruction))

    def _try(self, instruction: object) -> tuple[Any, FencerowError | None]:
        try:
            return self._carry_out(instruction), None
        except FencerowError as error:
            return None, error

    def _resume(self, answer: Any, error: FencerowError | None) -> object:
        return self._protocol.send(answer) if error is None else self._protocol.throw(error)

    def _carry_out(self, instruction: object) -> Any:
        match instruction:
            case Begin():
                self._session.connect()
                return _decoded(instruction, self._session.execute(_statement(instruction)))
            case Rollback():
                return self._session.close()
            case Commit() | Inside():
                return _decoded(instruction, self._session.execute(_statement(instruction)))
        return self._store.carry_out(instruction)
