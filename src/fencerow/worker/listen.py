"""
Listening: a connection of its own that waits for NOTIFY. It is a hint and may be lost at any time; polling is the truth.

The connection is looked at every few seconds, because a half-open one gives neither an error nor a notification.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fencerow.errors import FencerowError
from fencerow.log import logger
from fencerow.ops import workers
from fencerow.store.classify import Phase, classify
from fencerow.store.session import AsyncSession, Target
from fencerow.store.watchdog import watch_async

LOOK_SECONDS = 5.0
LOOK_TIMEOUT_SECONDS = 2.0
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


class Listener:
    """
    Args:
        wake: called with the lease id that a notification names.
    """

    def __init__(self, target: Target, wake: Callable[[int], None]) -> None:
        self._session = AsyncSession(target)
        self._wake = wake
        self.listening = False

    async def run(self) -> None:
        """Listen for as long as the worker lives, connecting again after each loss."""
        import psycopg

        failures = 0
        while True:
            try:
                await self._listen()
            except FencerowError as error:
                self._lost(error)
            except psycopg.Error as error:
                self._lost(classify(error, name="listen", phase=Phase.INSIDE, lost=True))
            failures = 0 if self.listening else failures + 1
            self.listening = False
            await self._session.close()
            await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])

    def _lost(self, error: FencerowError) -> None:
        if self.listening:
            logger.warning("no notifications for now, polling instead: %s", error)

    async def _listen(self) -> None:
        channel = await self._session.run(workers.channel())
        connection = await self._session.connect()
        await connection.execute(f'LISTEN "{channel}"'.encode())
        self.listening = True
        while True:
            async for notification in connection.notifies(timeout=LOOK_SECONDS):
                self._heard(notification.payload)
            await self._look(connection)

    async def _look(self, connection: Any) -> None:
        handle = watch_async(connection.fileno(), LOOK_TIMEOUT_SECONDS)
        try:
            await connection.execute("SELECT 1")
        finally:
            handle.cancel()

    def _heard(self, payload: str) -> None:
        if payload.isdecimal():
            self._wake(int(payload))

    async def close(self) -> None:
        """Stop listening."""
        await self._session.close()
