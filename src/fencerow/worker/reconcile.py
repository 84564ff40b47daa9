"""
Comparing: twice a lease, and after a claim that failed, what the database says we hold with what we hold.

A ticket under our lease that nobody here knows belongs to a claim whose answer was lost: it is adopted. One that we hold
and the database does not show was taken from us: its handler is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from fencerow.errors import StoreError
from fencerow.log import JobLog
from fencerow.ops import jobs, workers
from fencerow.store.stores import AsyncStore
from fencerow.types import Claim, Settlement
from fencerow.worker.attempt import Stop
from fencerow.worker.claim import Lane
from fencerow.worker.keep import Keeper, Lease
from fencerow.worker.run import Runner
from fencerow.worker.settle import Settler
from fencerow.worker.trouble import Trouble

TROUBLE = "held jobs cannot be compared"


class Reconciler:
    """
    Args:
        claiming: held while a claim is under way, whose tickets would look like those of a lost answer.
        taken: called with a lane to which adopted jobs were added.
        cancelling: called with the ids of running jobs whose cancel was requested.
    """

    def __init__(
        self,
        store: AsyncStore,
        keeper: Keeper,
        runner: Runner,
        settler: Settler,
        trouble: Trouble,
        *,
        lanes: Sequence[Lane],
        claiming: asyncio.Lock,
        taken: Callable[[Lane], None],
        cancelling: Callable[[list[int]], None],
    ) -> None:
        self._store = store
        self._keeper = keeper
        self._runner = runner
        self._settler = settler
        self._trouble = trouble
        self._lanes = lanes
        self._claiming = claiming
        self._taken = taken
        self._cancelling = cancelling
        self._now = asyncio.Event()

    def soon(self) -> None:
        """Compare at the next opportunity."""
        self._now.set()

    async def run(self, interval: float) -> None:
        """Compare for as long as the worker lives, at least each *interval* seconds."""
        while True:
            try:
                await asyncio.wait_for(self._now.wait(), interval)
            except TimeoutError:
                pass
            self._now.clear()
            try:
                for lease in list(self._keeper.leases.values()):
                    await self.compare(lease)
                # A claim under way may be about to fill the lease that looks empty.
                async with self._claiming:
                    await self._keeper.retire_empty()
                self._trouble.over(TROUBLE)
            except StoreError as error:
                self._now.set()
                await self._trouble.wait(error, TROUBLE)

    async def compare(self, lease: Lease) -> None:
        """Compare one lease, which also renews it."""
        if lease.lost:
            return
        async with self._claiming:
            held = dict(lease.held)
            renewal = await self._store.run(workers.renew(lease.id, lease.digest()))
            if renewal is None:
                self._keeper.lose(lease)
                return
            if renewal.tickets is not None:
                surplus = [job for job in renewal.tickets if job not in held and job not in lease.held]
                if surplus:
                    self._adopt(lease, await self._store.run(jobs.adopt(lease.id, surplus)))
                self._missing(lease, [job for job in held if job not in renewal.tickets])
        self._cancelling(list(renewal.cancelling))

    def _adopt(self, lease: Lease, claims: list[Claim]) -> None:
        """The answer to a claim was lost: its tickets are ours, and nobody else will find them."""
        for claim in claims:
            JobLog(claim).warning("found under our lease: the answer to its claim was lost")
            lease.held[claim.job_id] = claim.generation
            lane = next((lane for lane in self._lanes if claim.queue in lane.queues), None)
            if lane is None:
                self._settler.add(Settlement(claim, "release"))
            else:
                lane.put([claim])
                self._taken(lane)

    def _missing(self, lease: Lease, job_ids: list[int]) -> None:
        """Somebody took these tickets from under our lease. What is being settled is not missing."""
        gone = set(job_ids)
        for attempt in list(self._runner.running.values()):
            ours = attempt.hold.committed or attempt.hold.open_commits or attempt.settled
            if attempt.lease is lease and attempt.claim.job_id in gone and not ours:
                self._runner.stop(attempt, Stop.LOST)
        for lane in self._lanes:
            for claim in lane.take_back(lambda claim: claim.lease == lease.id and claim.job_id in gone):
                lease.held.pop(claim.job_id, None)
