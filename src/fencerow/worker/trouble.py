"""Database trouble of a worker: backed off from with jitter, said once per period, never charged to a job."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from fencerow.clock import boottime
from fencerow.errors import FencerowError
from fencerow.log import logger
from fencerow.store.classify import is_configuration

SAY_AGAIN_SECONDS = 60.0
PAUSE_SECONDS_MAX = 5.0
CONFIGURATION_TRIES = 3


@dataclass(slots=True)
class _Spell:
    """One kind of work that fails: how often in a row, and when that was last said."""

    failures: int = 0
    said_at: float = float("-inf")
    said: bool = False


class Trouble:
    """
    Each kind of work has its own count: claims that go through say nothing about settlements that do not.

    Args:
        fatal: called with an error that waiting cannot cure (seen CONFIGURATION_TRIES times in a row).
    """

    def __init__(self, fatal: Callable[[FencerowError], None]) -> None:
        self._fatal = fatal
        self._spells: dict[str, _Spell] = {}

    async def wait(self, error: FencerowError, what: str) -> None:
        """Note an error and wait before the next try."""
        await asyncio.sleep(self.noted(error, what))

    def noted(self, error: FencerowError, what: str) -> float:
        """Note an error; how many seconds to wait before the next try."""
        spell = self._spells.setdefault(what, _Spell())
        spell.failures += 1
        now = boottime()
        if now - spell.said_at >= SAY_AGAIN_SECONDS:
            logger.warning("%s: %s", what, error)
            spell.said_at, spell.said = now, True
        if is_configuration(error) and spell.failures >= CONFIGURATION_TRIES:
            self._fatal(error)
        pause = min(PAUSE_SECONDS_MAX, 0.05 * 2.0 ** min(spell.failures, 7))
        return pause * (0.5 + random.random() / 2)  # noqa: S311 - jitter

    def over(self, what: str) -> None:
        """This kind of work went through."""
        spell = self._spells.get(what)
        if spell is None or not spell.failures:
            return
        spell.failures = 0
        if spell.said:
            spell.said = False
            logger.info("no more: %s", what)
