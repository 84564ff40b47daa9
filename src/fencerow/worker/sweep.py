"""
Sweeping: any worker takes the jobs of ended leases back, makes due jobs ready, and deletes what is past its retention.

No leader: the SQL passes over what another worker is sweeping. Each part fails alone. The next sweep is at the earliest
known lease end or run time, at the latest after a second.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from fencerow import limits
from fencerow.clock import boottime
from fencerow.errors import StoreError
from fencerow.log import logger
from fencerow.ops import jobs, workers
from fencerow.store.stores import AsyncStore
from fencerow.worker.trouble import Trouble

SOONEST_SECONDS = 0.002
PURGE_SECONDS = 1.0
PURGE_REST_SECONDS = 60.0


class Sweeper:
    """
    Args:
        found_suspects: called with the queues that hold suspects.
    """

    def __init__(
        self,
        store: AsyncStore,
        queues: Sequence[str],
        trouble: Trouble,
        found_suspects: Callable[[list[str]], None],
    ) -> None:
        self._store = store
        self._queues = tuple(queues)
        self._trouble = trouble
        self._found_suspects = found_suspects
        self._poke = asyncio.Event()
        self._purge_at = boottime() + PURGE_SECONDS * random.random()  # noqa: S311 - jitter
        self._purge_after = 0

    def poke(self) -> None:
        """Something may be due earlier than thought."""
        self._poke.set()

    async def run(self) -> None:
        """Sweep for as long as the worker lives."""
        while True:
            try:
                pause = await self.sweep()
                self._trouble.over()
            except StoreError as error:
                await self._trouble.wait(error, "the sweep cannot reach the database")
                continue
            try:
                await asyncio.wait_for(self._poke.wait(), pause)
            except TimeoutError:
                pass
            self._poke.clear()

    async def sweep(self) -> float:
        """One pass; seconds until the next."""
        next_run, next_end, suspects = await self._store.run(workers.horizon(self._queues))
        if next_run is not None and next_run <= 0:
            await self._store.run(jobs.promote())
        if next_end is not None and next_end <= 0:
            for lost in await self._store.run(jobs.expire()):
                logger.warning(
                    "job=%d generation=%d lost with its worker's lease: %s",
                    lost.job_id,
                    lost.generation,
                    lost.fate,
                )
        if (next_run is not None and next_run <= 0) or (next_end is not None and next_end <= 0):
            next_run, next_end, suspects = await self._store.run(workers.horizon(self._queues))
        if suspects:
            self._found_suspects(suspects)
        await self._purge()
        ahead = [seconds for seconds in (next_run, next_end) if seconds is not None]
        longest = limits.SWEEP_SECONDS * (0.8 + 0.2 * random.random())  # noqa: S311 - jitter
        return max(SOONEST_SECONDS, min([longest, *ahead]))

    async def _purge(self) -> None:
        if boottime() < self._purge_at:
            return
        purged, reached = await self._store.run(jobs.purge(self._purge_after))
        self._purge_after = reached or 0
        full_walk = reached is None
        self._purge_at = boottime() + (PURGE_REST_SECONDS if full_walk and not purged else PURGE_SECONDS)
