"""A store keeps a few sessions to one space and runs operations and protocols on them, async or sync."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from typing import Any, TypeVar

from fencerow.errors import FencerowError
from fencerow.ops.base import Op
from fencerow.store.protocols import Pause, Protocol
from fencerow.store.session import AsyncSession, SyncSession, Target

T = TypeVar("T")

SESSIONS_MAX = 10


class AsyncStore:
    """
    Sessions of one event loop to one space.

    Args:
        target: where; see Target.
        sessions: how many connections at most; an operation waits for a free one.
    """

    def __init__(self, target: Target, *, sessions: int = SESSIONS_MAX) -> None:
        self.target = target
        self._idle: deque[AsyncSession] = deque()
        self._free = asyncio.Semaphore(sessions)
        self._closed = False
        self._pid = os.getpid()

    async def run(self, op: Op[T]) -> T:
        """Run one operation as a transaction of its own; see AsyncSession.run."""
        async with self._free:
            session = self._idle.pop() if self._idle else AsyncSession(self.target)
            try:
                return await session.run(op)
            finally:
                await self._give_back(session)

    async def _give_back(self, session: AsyncSession) -> None:
        if self._closed:
            await session.close()
        elif session.connection is not None:
            self._idle.append(session)

    async def follow(self, protocol: Protocol[T]) -> T:
        """Carry out a protocol whose instructions are operations and pauses."""
        try:
            instruction = next(protocol)
            while True:
                try:
                    answer = await self.carry_out(instruction)
                except FencerowError as error:
                    instruction = protocol.throw(error)
                else:
                    instruction = protocol.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    async def carry_out(self, instruction: object) -> Any:
        """Run an operation or wait; other instructions need a transaction."""
        match instruction:
            case Op():
                return await self.run(instruction)
            case Pause(seconds):
                return await asyncio.sleep(seconds)
        raise TypeError(f"a store cannot carry out {type(instruction).__name__}")

    async def close(self) -> None:
        """Close all connections; the store cannot be used again."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()

    def __del__(self) -> None:
        self.abandon()  # its loop ended without a word, and nobody else knows of its connections

    def abandon(self) -> None:
        """As close, when the loop has ended and nothing can be awaited in it any more. A fork leaves its parent's alone."""
        self._closed = True
        while self._idle:
            session = self._idle.pop()
            if os.getpid() == self._pid:
                session.abandon()


class SyncStore:
    """Sessions of one process's threads to one space. A fork inherits none of them."""

    def __init__(self, target: Target, *, sessions: int = SESSIONS_MAX) -> None:
        self.target = target
        self._sessions = sessions
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._idle: deque[SyncSession] = deque()
        self._free = threading.BoundedSemaphore(self._sessions)

    def run(self, op: Op[T]) -> T:
        """As AsyncStore.run."""
        with self._lock:
            if self._pid != os.getpid():
                self._reset()
        with self._free:
            try:
                session = self._idle.pop()
            except IndexError:
                session = SyncSession(self.target)
            try:
                return session.run(op)
            finally:
                if session.connection is not None:
                    self._idle.append(session)

    def follow(self, protocol: Protocol[T]) -> T:
        """As AsyncStore.follow."""
        try:
            instruction = next(protocol)
            while True:
                try:
                    answer = self.carry_out(instruction)
                except FencerowError as error:
                    instruction = protocol.throw(error)
                else:
                    instruction = protocol.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def carry_out(self, instruction: object) -> Any:
        """As AsyncStore.carry_out."""
        match instruction:
            case Op():
                return self.run(instruction)
            case Pause(seconds):
                return time.sleep(seconds)
        raise TypeError(f"a store cannot carry out {type(instruction).__name__}")

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()
