"""A connection that waits for NOTIFY."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fencerow.ops.base import Op
from fencerow.store.classify import Phase, classify
from fencerow.store.session import AsyncSession, Target
from fencerow.store.steps import Statement

LOOK = Statement("look", "SELECT 1", None, Phase.INSIDE)


class Ear:
    """One connection of an asyncio program that listens on one channel."""

    def __init__(self, target: Target) -> None:
        self._session = AsyncSession(target)

    async def open(self, channel: Op[str]) -> None:
        """Listen on the channel that an operation names. Raises StoreError."""
        name = (await self._session.run(channel)).replace('"', '""')
        await self._session.execute(Statement("listen", f'LISTEN "{name}"', None, Phase.INSIDE))

    async def hear(self, seconds: float) -> AsyncIterator[str]:
        """
        The payloads that arrive within *seconds*.

        A half-open connection gives neither an error nor a payload: look() from time to time.
        """
        import psycopg

        connection = await self._session.connect()
        try:
            async for notification in connection.notifies(timeout=seconds):
                yield notification.payload
        except psycopg.Error as error:
            raise classify(error, name="listen", phase=Phase.INSIDE, lost=True) from None

    async def look(self) -> None:
        """Ask the server something, under the watchdog. Raises DatabaseUnavailable when it is gone."""
        await self._session.execute(LOOK)

    async def close(self) -> None:
        """Stop listening."""
        await self._session.close()
