"""Database trouble of a worker: backed off from with jitter, said once per period, never charged to a job."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from fencerow.clock import boottime
from fencerow.errors import FencerowError
from fencerow.log import logger
from fencerow.store.classify import is_configuration

SAY_AGAIN_SECONDS = 60.0
PAUSE_SECONDS_MAX = 5.0
CONFIGURATION_TRIES = 3


class Trouble:
    """
    Args:
        fatal: called with an error that waiting cannot cure (seen CONFIGURATION_TRIES times in a row).
    """

    def __init__(self, fatal: Callable[[FencerowError], None]) -> None:
        self._fatal = fatal
        self._failures = 0
        self._said_at = 0.0
        self.text: str | None = None

    async def wait(self, error: FencerowError, what: str) -> None:
        """Note an error and wait before the next try."""
        self._failures += 1
        now = boottime()
        if self.text is None or now - self._said_at >= SAY_AGAIN_SECONDS:
            logger.warning("%s: %s", what, error)
            self._said_at = now
        self.text = f"{what}: {error}"
        if is_configuration(error) and self._failures >= CONFIGURATION_TRIES:
            self._fatal(error)
        pause = min(PAUSE_SECONDS_MAX, 0.05 * 2 ** min(self._failures, 7))
        await asyncio.sleep(pause * (0.5 + random.random() / 2))  # noqa: S311 - jitter

    def over(self) -> None:
        """An operation went through."""
        if self.text is not None:
            logger.info("the database answers again")
            self.text = None
        self._failures = 0
