"""
Sweeping: any worker takes the jobs of ended leases back, makes due jobs ready, and deletes what is past its retention.

No leader: the SQL passes over what another worker is sweeping. Each part fails alone. The next sweep is at the earliest
known lease end or run time, at the latest after a second.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from fencerow import limits
from fencerow.clock import boottime
from fencerow.errors import StoreError
from fencerow.log import logger
from fencerow.ops import jobs, workers
from fencerow.store.stores import AsyncStore
from fencerow.worker.trouble import Trouble

T = TypeVar("T")

SOONEST_SECONDS = 0.002
OVERDUE_SECONDS = 0.1
"""When what is due could not be moved (somebody holds the ticket): look again after this."""
SWEEP_ROWS = 1000
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
            pause = await self.sweep()
            try:
                await asyncio.wait_for(self._poke.wait(), pause)
            except TimeoutError:
                pass
            self._poke.clear()

    async def sweep(self) -> float:
        """One pass; seconds until the next. Each part fails alone: a ticket that cannot be moved stops no other part."""
        horizon = await self._part("horizon", self._store.run(workers.horizon(self._queues)))
        if horizon is None:
            return OVERDUE_SECONDS
        again = overdue = False
        if horizon[0] is not None and horizon[0] <= 0:
            promoted = await self._part("promote", self._store.run(jobs.promote(SWEEP_ROWS)))
            again, overdue = (promoted or 0) >= SWEEP_ROWS, True
        if horizon[1] is not None and horizon[1] <= 0:
            expired = await self._part("expire", self._expire())
            again, overdue = again or (expired or 0) >= SWEEP_ROWS, True
        if overdue:
            horizon = await self._part("horizon", self._store.run(workers.horizon(self._queues))) or horizon
        if horizon[2]:
            self._found_suspects(horizon[2])
        await self._part("purge", self._purge())
        longest = limits.SWEEP_SECONDS * (0.8 + 0.2 * random.random())  # noqa: S311 - jitter
        ahead = [
            seconds if seconds > 0 else OVERDUE_SECONDS for seconds in horizon[:2] if seconds is not None
        ]
        return SOONEST_SECONDS if again else max(SOONEST_SECONDS, min([longest, *ahead]))

    async def _part(self, name: str, work: Coroutine[Any, Any, T]) -> T | None:
        what = f"the sweep fails ({name})"
        try:
            answer = await work
        except StoreError as error:
            await self._trouble.wait(error, what)
            return None
        self._trouble.over(what)
        return answer

    async def _expire(self) -> int:
        lost = await self._store.run(jobs.expire(SWEEP_ROWS))
        for job in lost:
            logger.warning(
                "job=%d generation=%d lost with its worker's lease: %s",
                job.job_id,
                job.generation,
                job.fate,
                extra={"job": job.job_id, "generation": job.generation},
            )
        return len(lost)

    async def _purge(self) -> None:
        if boottime() < self._purge_at:
            return
        purged, reached = await self._store.run(jobs.purge(self._purge_after))
        self._purge_after = reached or 0
        full_walk = reached is None
        self._purge_at = boottime() + (PURGE_REST_SECONDS if full_walk and not purged else PURGE_SECONDS)
