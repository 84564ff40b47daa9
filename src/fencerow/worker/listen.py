"""
Listening: a connection of its own that waits for NOTIFY. It is a hint and may be lost at any time; polling is the truth.

The connection is looked at every few seconds, because a half-open one gives neither an error nor a notification.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencerow.errors import FencerowError
from fencerow.log import logger
from fencerow.ops import workers
from fencerow.store.listening import Ear
from fencerow.store.session import Target

LOOK_SECONDS = 5.0
LOOK_TIMEOUT_SECONDS = 2.0
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


class Listener:
    """
    Args:
        wake: called with the lease id that a notification names.
    """

    def __init__(self, target: Target, wake: Callable[[int], None]) -> None:
        self._ear = Ear(target.hasty(LOOK_TIMEOUT_SECONDS))
        self._wake = wake
        self.listening = False

    async def run(self) -> None:
        """Listen for as long as the worker lives, connecting again after each loss."""
        failures = 0
        while True:
            try:
                await self._listen()
            except FencerowError as error:
                if self.listening:
                    logger.warning("no notifications for now, polling instead: %s", error)
            failures = 0 if self.listening else failures + 1
            self.listening = False
            await self._ear.close()
            await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])

    async def _listen(self) -> None:
        await self._ear.open(workers.channel())
        self.listening = True
        while True:
            async for payload in self._ear.hear(LOOK_SECONDS):
                if payload.isdecimal():
                    self._wake(int(payload))
            await self._ear.look()

    async def close(self) -> None:
        """Stop listening."""
        await self._ear.close()
