"""
A worker process: wires the parts together, and starts and stops them in order.

Start: check the schema, declare the tasks, register, open a lease, then claim. Stop (SIGTERM, SIGINT): claim nothing
more, give back at once what has not started, let running jobs end within the grace, settle, close the leases. A second
signal skips the grace.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Coroutine
from typing import Any

from fencerow import __version__, limits
from fencerow.app import App
from fencerow.errors import FencerowError, StoreError
from fencerow.log import JobLog, logger
from fencerow.ops import jobs, workers
from fencerow.ops.base import Op
from fencerow.store import migrate
from fencerow.store.classify import is_configuration
from fencerow.store.stores import AsyncStore
from fencerow.types import Answer, Claim, Settlement
from fencerow.worker.attempt import Stop
from fencerow.worker.claim import Lane, jittered
from fencerow.worker.keep import Keeper, Lease
from fencerow.worker.listen import Listener
from fencerow.worker.run import Runner
from fencerow.worker.settings import WorkerSettings
from fencerow.worker.settle import Settler
from fencerow.worker.suspects import Isolation
from fencerow.worker.sweep import Sweeper
from fencerow.worker.trouble import Trouble

DRAIN_SECONDS = 5.0
CLAIM_ENDS_SECONDS = 2.0
EXIT_CONFIGURATION = 3


class Service:
    """One worker process on one event loop."""

    def __init__(self, app: App, settings: WorkerSettings) -> None:
        self.app = app
        self.settings = settings
        base = settings.name or socket.gethostname()
        self.name = f"{base}:{os.getpid()}:{secrets.token_hex(3)}"
        self.target = app.target(name=f"fencerow {self.name}")
        self.store = AsyncStore(self.target, sessions=8)
        self.trouble = Trouble(self.fail)
        self.lanes = self._lanes()
        self.queues = [queue for queue, _ in settings.queues]
        self.settler = Settler(self.store, self.trouble, self._settled)
        self.keeper = Keeper(
            self.target,
            self.store,
            worker=self.name,
            seconds=settings.lease,
            alone=settings.alone,
            on_lost=self._lost,
            on_cancel=self._cancel,
        )
        self.sweeper = Sweeper(self.store, self.queues, self.trouble, self._suspects)
        self.listener = Listener(self.target, self._notified)
        self.isolation = Isolation(settings, self.name)
        self.runner: Runner | None = None
        self.stopping = asyncio.Event()
        self.error: FencerowError | None = None
        self._hurry = asyncio.Event()
        self._wake = {lane: asyncio.Event() for lane in self.lanes}
        self._loops: list[asyncio.Task[None]] = []
        self._claimers: list[asyncio.Task[None]] = []
        self._idle_lanes: set[Lane] = set()
        self._claiming = asyncio.Lock()
        self._compare_now = asyncio.Event()

    def _lanes(self) -> list[Lane]:
        careful = [name for name, task in self.app.tasks.items() if task.policy.careful]
        alone, lease = self.settings.alone, self.settings.lease
        lanes = [
            Lane(slots, [queue], careful=careful, alone=alone, lease_seconds=lease)
            for queue, slots in self.settings.queues
            if slots
        ]
        shared = [queue for queue, slots in self.settings.queues if not slots]
        if shared:
            lanes.append(
                Lane(self.settings.concurrency, shared, careful=careful, alone=alone, lease_seconds=lease)
            )
        return lanes

    async def run(self) -> int:
        """Work until told to stop; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.request_stop)
        space = await self._introduce()
        if space is not None:
            self._start(space)
            await self.stopping.wait()
            await self._stop()
        await self.keeper.stop()
        await self.listener.close()
        await self.store.close()
        if self.error is not None:
            logger.error("the worker ends: %s", self.error)
            return EXIT_CONFIGURATION
        return 0

    def fail(self, error: FencerowError) -> None:
        """End the worker because waiting cannot cure this."""
        self.error = self.error or error
        self.stopping.set()
        self._hurry.set()

    def request_stop(self) -> None:
        """The first signal drains, the second skips the grace."""
        if self.stopping.is_set():
            self._hurry.set()
        self.stopping.set()

    async def _introduce(self) -> str | None:
        """
        Check the schema, declare tasks, register, open a lease; the identity of the space.

        A database that is away is waited for; what waiting cannot cure ends the worker before it claims anything.
        """
        await self.keeper.start()
        while not self.stopping.is_set():
            try:
                migrate.check_contract(*await self.store.run(migrate.contract()))
                for task in self.app.tasks.values():
                    await self.store.run(workers.declare_task(task.policy))
                await self.store.run(self._registration())
                await self.keeper.current()
                return await self.store.run(workers.space_id())
            except FencerowError as error:
                if not isinstance(error, StoreError) or is_configuration(error):
                    self.fail(error)
                else:
                    await self._within(self.trouble.wait(error, "the database cannot be reached"), 60)
        return None

    def _registration(self) -> Op[None]:
        return workers.register(
            self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            queues=self.queues,
            tasks=list(self.app.tasks),
            slots=sum(lane.slots for lane in self.lanes),
        )

    def _start(self, space_id: str) -> None:
        slots = sum(lane.slots for lane in self.lanes)
        self.runner = Runner(
            self.app,
            self.store,
            self.settler,
            space_id=space_id,
            slots=slots,
            grace=self.settings.grace,
            freed=self._freed,
        )
        self._begin(self.settler.run(), "settle")
        self._begin(self.keeper.watch(), "trust")
        self._begin(self.runner.watch(), "deadlines")
        self._begin(self._reconcile(), "reconcile")
        if not self.settings.alone:
            self._begin(self.sweeper.run(), "sweep")
            self._begin(self.listener.run(), "listen")
        self._claimers = [self._begin(self._serve(lane), "claim") for lane in self.lanes]
        logger.info("worker %s serves %s with %d slots", self.name, ", ".join(self.queues), slots)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"fencerow {name}")
        task.add_done_callback(self._ended)
        self._loops.append(task)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s ended unexpectedly", task.get_name(), exc_info=error)
            self.fail(FencerowError(f"{task.get_name()} ended unexpectedly: {type(error).__name__}"))

    # -- claiming

    async def _serve(self, lane: Lane) -> None:
        dozing = False
        while not self.stopping.is_set():
            try:
                if lane.demand == 0 or self.settler.backlog > 2 * limits.SETTLE_BATCH_MAX:
                    await self._wait(lane, None)
                    continue
                lease = await self.keeper.current()
                found = await self._claim(lane, lease)
                self.trouble.over()
                if found:
                    if dozing:
                        dozing = False
                        await self.store.run(workers.rouse(lease.id, lane.queues))
                elif dozing or self.settings.alone:
                    await self._rest(lane)
                    dozing = False
                else:
                    await self.store.run(workers.doze(lease.id, lane.queues))
                    dozing = True
            except StoreError as error:
                self._compare_now.set()
                await self.trouble.wait(error, "jobs cannot be claimed")

    async def _claim(self, lane: Lane, lease: Lease) -> int:
        """One claim at a time, so that a ticket which the database shows and nobody holds is a lost answer."""
        self._wake[lane].clear()

        def take(claims: list[Claim]) -> None:
            for claim in claims:
                lease.held[claim.job_id] = claim.generation
            lane.buffer.extend(claims)
            self._dispatch(lane)

        async with self._claiming:
            wanted = lane.demand
            if wanted == 0 or self.stopping.is_set():
                return 0
            return await lane.claim(self.store, lease, wanted, thorough=True, take=take)

    async def _rest(self, lane: Lane) -> None:
        """Nothing was found twice, the second time after saying that we sleep: wait for a hint or the next poll."""
        self._idle_lanes.add(lane)
        if self.settings.burst and self._exhausted() and await self._nothing_due():
            self.request_stop()
        poll = limits.POLL_SECONDS if self.listener.listening else limits.POLL_SECONDS_WITHOUT_NOTIFY
        await self._wait(lane, jittered(poll))
        self._idle_lanes.discard(lane)

    async def _nothing_due(self) -> bool:
        if self.settings.alone:
            return True
        await self.sweeper.sweep()
        for lane in self.lanes:
            if await self._claim(lane, await self.keeper.current()):
                return False
        return self._exhausted()

    def _exhausted(self) -> bool:
        runner = self.runner
        quiet = (
            runner is not None and not runner.running and not self.settler.backlog and not self.isolation.busy
        )
        return quiet and len(self._idle_lanes) == len(self.lanes)

    async def _wait(self, lane: Lane, seconds: float | None) -> None:
        try:
            await asyncio.wait_for(self._wake[lane].wait(), seconds)
        except TimeoutError:
            pass
        self._wake[lane].clear()

    def _dispatch(self, lane: Lane) -> None:
        runner = self.runner
        if self.stopping.is_set():
            self._give_back(lane)
        while runner is not None and lane.buffer and lane.busy < lane.slots:
            claim = lane.buffer.popleft()
            runner.start(claim, lane, self.keeper.leases[claim.lease])

    def _give_back(self, lane: Lane) -> None:
        while lane.buffer:
            self.settler.add(Settlement(lane.buffer.popleft(), "release"))

    def _freed(self, lane: Lane) -> None:
        self._dispatch(lane)
        if lane.demand:
            self._wake[lane].set()

    def _notified(self, lease: int) -> None:
        if lease in self.keeper.leases:
            self.sweeper.poke()
            for event in self._wake.values():
                event.set()

    def _suspects(self, queues: list[str]) -> None:
        if not self.stopping.is_set():
            self.isolation.found(queues)

    # -- ownership

    def _settled(self, settlement: Settlement, _answer: Answer | None) -> None:
        claim = settlement.claim
        lease = self.keeper.leases.get(claim.lease)
        if lease is not None and lease.held.get(claim.job_id) == claim.generation:
            del lease.held[claim.job_id]
        if self.settings.burst and self.runner is not None and not self.runner.running:
            for event in self._wake.values():
                event.set()

    def _lost(self, lease: Lease) -> None:
        logger.warning("lease lost: %d jobs were held under it", len(lease.held))
        if self.runner is not None:
            self.runner.lose(lease)
        for lane in self.lanes:
            for claim in [claim for claim in lane.buffer if claim.lease == lease.id]:
                lane.buffer.remove(claim)
                self.settler.add(Settlement(claim, "release"))
            self._wake[lane].set()

    def _cancel(self, job_ids: list[int]) -> None:
        if self.runner is not None:
            self.runner.cancel(job_ids)

    async def _reconcile(self) -> None:
        """Twice a lease, and after a claim that failed, compare what the database says we hold with what we hold."""
        while True:
            try:
                await asyncio.wait_for(self._compare_now.wait(), self.settings.lease / 2)
            except TimeoutError:
                pass
            self._compare_now.clear()
            try:
                for lease in list(self.keeper.leases.values()):
                    await self._compare(lease)
                await self.keeper.retire_empty()
            except StoreError as error:
                await self.trouble.wait(error, "held jobs cannot be compared")
                self._compare_now.set()

    async def _compare(self, lease: Lease) -> None:
        if lease.lost:
            return
        async with self._claiming:
            held = dict(lease.held)
            renewal = await self.store.run(workers.renew(lease.id, lease.digest()))
            if renewal is None:
                self.keeper.lose(lease)
                return
            if renewal.tickets is not None:
                surplus = [job for job in renewal.tickets if job not in held and job not in lease.held]
                if surplus:
                    self._adopt(lease, await self.store.run(jobs.adopt(lease.id, surplus)))
                self._missing(lease, [job for job in held if job not in renewal.tickets])
        self._cancel(list(renewal.cancelling))

    def _adopt(self, lease: Lease, claims: list[Claim]) -> None:
        """The answer to a claim was lost: its tickets are ours, and nobody else will find them."""
        for claim in claims:
            JobLog(claim).warning("found under our lease: the answer to its claim was lost")
            lease.held[claim.job_id] = claim.generation
            lane = next((lane for lane in self.lanes if claim.queue in lane.queues), None)
            if lane is None:
                self.settler.add(Settlement(claim, "release"))
            else:
                lane.buffer.append(claim)
                self._dispatch(lane)

    def _missing(self, lease: Lease, job_ids: list[int]) -> None:
        """Somebody took these tickets from under our lease: their handlers must stop. What is being settled is not missing."""
        for job_id in job_ids:
            attempt = self.runner.running.get((lease.id, job_id)) if self.runner is not None else None
            if (
                attempt is not None
                and self.runner is not None
                and not attempt.hold.committed
                and not attempt.hold.open_commits
            ):
                self.runner.stop(attempt, Stop.LOST)
        gone = set(job_ids)
        for lane in self.lanes:
            for claim in [claim for claim in lane.buffer if claim.lease == lease.id and claim.job_id in gone]:
                lane.buffer.remove(claim)
                lease.held.pop(claim.job_id, None)

    # -- stopping

    async def _stop(self) -> None:
        runner = self.runner
        logger.info("worker %s stops: nothing more is claimed", self.name)
        for lane in self.lanes:
            self._wake[lane].set()
            self._give_back(lane)
        isolation = asyncio.create_task(self.isolation.stop(self.settings.grace))
        if runner is not None:
            await self._within(runner.drained(), self.settings.grace)
            runner.stop_all()
            await self._within(runner.drained(), min(1.0, self.settings.grace))
            runner.settle_rest()
        await asyncio.wait(self._claimers, timeout=CLAIM_ENDS_SECONDS)
        await self._within(self.settler.drained(), DRAIN_SECONDS)
        await isolation
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._within(self._leave(), DRAIN_SECONDS)

    async def _within(self, work: Coroutine[Any, Any, None], seconds: float) -> None:
        task = asyncio.ensure_future(work)
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait((task, hurry), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for waiter in (task, hurry):
            waiter.cancel()
        await asyncio.gather(task, hurry, return_exceptions=True)

    async def _leave(self) -> None:
        try:
            for lease in list(self.keeper.leases.values()):
                await self.keeper.close_lease(lease)
            await self.store.run(workers.retire(self.name))
        except FencerowError as error:
            logger.warning("left without a word: %s", error)
