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
from fencerow.errors import Rejected, ResourceBusy, StoreError
from fencerow.log import JobLog
from fencerow.ops import jobs
from fencerow.store.protocols import resolved
from fencerow.store.stores import AsyncStore
from fencerow.types import Answer, Settlement
from fencerow.worker.trouble import Trouble

UNSTORABLE = "the database refused to store the outcome"
TROUBLE = "outcomes cannot be written"
APART_PIECES = 4


class Settler:
    """
    Args:
        done: called with each settlement and its answer (None: it could not be written and its lease will end it).
        failed: called with an error that is no trouble of the database.
    """

    def __init__(
        self,
        store: AsyncStore,
        trouble: Trouble,
        done: Callable[[Settlement, Answer | None], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.verdicts: Counter[str] = Counter()
        self._store = store
        self._trouble = trouble
        self._done = done
        self._failed = failed
        self._busy = False
        self._waiting: list[Settlement] = []
        self._apart: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def backlog(self) -> int:
        """Settlements not yet sent."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether everything handed over is answered."""
        return self._idle.is_set()

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
        try:
            await self._flush()
        finally:
            for task in self._apart:
                task.cancel()

    async def _flush(self) -> None:
        while True:
            await self._arrived.wait()
            batch, self._waiting = (
                self._waiting[: limits.SETTLE_BATCH_MAX],
                self._waiting[limits.SETTLE_BATCH_MAX :],
            )
            if not self._waiting:
                self._arrived.clear()
            self._busy = True
            for group in jobs.by_verb(batch):
                await self._settle(group)
            self._busy = False
            self._note_idle()

    def _note_idle(self) -> None:
        if not self._waiting and not self._apart:
            self._idle.set()

    async def _settle(self, group: list[Settlement]) -> None:
        while True:
            try:
                answers = await self._store.follow(resolved(jobs.settle(group)))
                break
            except Rejected as error:
                await self._one_by_one(group, error)
                return
            except ResourceBusy as error:
                self._set_apart(group, error)
                return
            except StoreError as error:
                await self._trouble.wait(error, TROUBLE)
        self._trouble.over(TROUBLE)
        for settlement, answer in zip(group, answers, strict=True):
            self._judge(settlement, answer)

    def _set_apart(self, group: list[Settlement], error: ResourceBusy) -> None:
        """
        Somebody holds a ticket of this group: it is cut smaller until that ticket is alone and waited for by itself,
        while other outcomes go on.
        """
        pause = self._trouble.noted(error, TROUBLE) if len(group) == 1 else 0.0
        size = -(-len(group) // APART_PIECES)
        for start in range(0, len(group), size):
            task = asyncio.create_task(self._settle_later(group[start : start + size], pause))
            self._apart.add(task)
            task.add_done_callback(self._back)

    async def _settle_later(self, group: list[Settlement], pause: float) -> None:
        await asyncio.sleep(pause)
        await self._settle(group)

    def _back(self, task: asyncio.Task[None]) -> None:
        self._apart.discard(task)
        if not self._busy:
            self._note_idle()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

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
