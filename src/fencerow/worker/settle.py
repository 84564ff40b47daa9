"""
Settling: outcomes gather while one flush is under way, so that batches grow with the load and a lone job never waits.

Each attempt sends one settlement, however late: the database alone judges it. A lost reply is answered by sending the
same again; a refusal drops the outcome, is logged, and has left its row in the database.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from fencerow import limits
from fencerow.errors import Rejected, StoreError
from fencerow.log import JobLog
from fencerow.ops import jobs
from fencerow.store.protocols import resolved
from fencerow.store.stores import AsyncStore
from fencerow.types import Answer, Settlement
from fencerow.worker.trouble import Trouble


class Settler:
    """
    Args:
        done: called with each settlement and its answer (None: it could not be written and its lease will end it).
    """

    def __init__(
        self, store: AsyncStore, trouble: Trouble, done: Callable[[Settlement, Answer | None], None]
    ) -> None:
        self.verdicts: Counter[str] = Counter()
        self._store = store
        self._trouble = trouble
        self._done = done
        self._waiting: list[Settlement] = []
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def backlog(self) -> int:
        """Settlements not yet answered, the flush under way not counted."""
        return len(self._waiting)

    def add(self, settlement: Settlement) -> None:
        """Hand over the settlement of one attempt."""
        self._waiting.append(settlement)
        self._idle.clear()
        self._arrived.set()

    def settled(self, settlement: Settlement) -> None:
        """The attempt was settled otherwise (job.commit())."""
        self._done(settlement, None)

    async def drained(self) -> None:
        """Wait until everything handed over is answered."""
        await self._idle.wait()

    async def run(self) -> None:
        """Flush for as long as the worker lives."""
        while True:
            await self._arrived.wait()
            batch, self._waiting = (
                self._waiting[: limits.SETTLE_BATCH_MAX],
                self._waiting[limits.SETTLE_BATCH_MAX :],
            )
            if not self._waiting:
                self._arrived.clear()
            for group in jobs.by_verb(batch):
                await self._settle(group)
            if not self._waiting:
                self._idle.set()

    async def _settle(self, group: list[Settlement]) -> None:
        while True:
            try:
                answers = await self._store.follow(resolved(jobs.settle(group)))
                break
            except Rejected as error:
                await self._one_by_one(group, error)
                return
            except StoreError as error:
                await self._trouble.wait(error, "outcomes cannot be written")
        self._trouble.over()
        for settlement, answer in zip(group, answers, strict=True):
            self._judge(settlement, answer)

    async def _one_by_one(self, group: list[Settlement], error: Rejected) -> None:
        """One bad row must not harm its neighbours: each goes alone, and the bad one ends failed."""
        if len(group) > 1:
            for settlement in group:
                await self._settle([settlement])
            return
        settlement = group[0]
        if settlement.verb == "fail" and settlement.error == UNSTORABLE:
            JobLog(settlement.claim).error("its outcome cannot be stored: %s", error)
            self._done(settlement, None)
            return
        await self._settle([replace(settlement, verb="fail", kind="invalid", result=None, error=UNSTORABLE)])

    def _judge(self, settlement: Settlement, answer: Answer) -> None:
        self.verdicts[answer.verdict] += 1
        if not answer.accepted:
            JobLog(settlement.claim).warning(
                "%s refused: %s (now %s, generation %s, owner %s)",
                settlement.verb,
                answer.verdict,
                answer.state,
                answer.current,
                answer.owner,
            )
        self._done(settlement, answer)


UNSTORABLE = "the database refused to store the outcome"
