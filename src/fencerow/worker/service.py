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

from fencerow import limits
from fencerow.app import App
from fencerow.clock import boottime
from fencerow.errors import FencerowError, StoreError
from fencerow.log import logger
from fencerow.ops import workers
from fencerow.store.classify import is_configuration
from fencerow.store.stores import AsyncStore
from fencerow.types import Answer, Claim, Settlement
from fencerow.worker.children import Children
from fencerow.worker.claim import Lane, jittered, lanes_of
from fencerow.worker.introduce import introduce
from fencerow.worker.keep import Keeper, Lease
from fencerow.worker.listen import Listener
from fencerow.worker.reconcile import Reconciler
from fencerow.worker.run import Runner
from fencerow.worker.settings import WorkerSettings
from fencerow.worker.settle import Settler
from fencerow.worker.suspects import Isolation
from fencerow.worker.sweep import Sweeper
from fencerow.worker.trouble import Trouble
from fencerow.worker.waiting import first

CLAIM_ENDS_SECONDS = 2.0
UNWIND_SECONDS = 1.0
SETTLE_SECONDS_MIN = 3.0
LEAVE_SECONDS = 5.0
HURRY_SECONDS = 1.0
RELIEVE_SECONDS = 0.5
HANDLER_SESSIONS = 4
EXIT_CONFIGURATION = 3
LINGER_SECONDS = 2.0
"""How long a process for suspects waits for another one: starting the next process costs more."""
BACKLOG_MAX = 2 * limits.SETTLE_BATCH_MAX
"""Unanswered settlements beyond which nothing more is claimed."""
CLAIM_TROUBLE = "jobs cannot be claimed"
START_TROUBLE = "the database cannot be reached"


class Service:
    """One worker process on one event loop."""

    def __init__(self, app: App, settings: WorkerSettings) -> None:
        self.app = app
        self.settings = settings
        self.name = f"{settings.name or socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.target = app.target(name=f"fencerow {self.name}")
        self.store = AsyncStore(self.target, sessions=8)
        self.handler_store = AsyncStore(self.target, sessions=HANDLER_SESSIONS)
        self.trouble = Trouble(self.fail)
        self.lanes = lanes_of(
            settings.queues,
            concurrency=settings.concurrency,
            careful=[name for name, task in app.tasks.items() if task.policy.careful],
            alone=settings.alone,
            lease_seconds=settings.lease,
        )
        self.queues = [queue for queue, _ in settings.queues]
        self.slots = sum(lane.slots for lane in self.lanes)
        self.settler = Settler(self.store, self.trouble, self._settled, self._broken)
        self.keeper = Keeper(
            self.target,
            self.store,
            worker=self.name,
            seconds=settings.lease,
            alone=settings.alone,
            on_lost=self._lost,
            on_cancel=self._cancel,
        )
        self.children = Children(settings.app_ref, self.target, self.keeper.memory.fd)
        self.sweeper = Sweeper(self.store, self.queues, self.trouble, self._suspects)
        self.listener = Listener(self.target, self._notified)
        self.isolation = Isolation(settings, self.name)
        self.runner: Runner | None = None
        self.reconciler: Reconciler | None = None
        self.started = asyncio.Event()
        self.stopping = asyncio.Event()
        self.error: FencerowError | None = None
        self._hurry = asyncio.Event()
        self._wake = {lane: asyncio.Event() for lane in self.lanes}
        self._loops: list[asyncio.Task[None]] = []
        self._claimers: list[asyncio.Task[None]] = []
        self._idle_lanes: set[Lane] = set()
        self._claiming = asyncio.Lock()
        self._dozing: dict[Lane, int] = {}
        self._held_back = False
        self._linger_until = 0.0

    async def run(self, *, signals: bool = True) -> int:
        """Work until told to stop, by a signal unless the process is somebody else's; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if signals else ():
            asyncio.get_running_loop().add_signal_handler(number, self.request_stop)
        try:
            space = await self._introduce()
            if space is not None:
                self._start(space)
                self.started.set()
                await self.stopping.wait()
                await self._stop()
        finally:
            await self.children.stop()
            await self.keeper.stop()
            await self.listener.close()
            await self.handler_store.close()
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
            self.isolation.signal()
        self.stopping.set()

    async def _introduce(self) -> str | None:
        """The identity of the space. A database that is away is waited for; what waiting cannot cure ends the worker."""
        await self.keeper.start()
        while not self.stopping.is_set():
            try:
                space = await introduce(
                    self.app, self.store, self.keeper, name=self.name, queues=self.queues, slots=self.slots
                )
                self.trouble.over(START_TROUBLE)
                return space
            except FencerowError as error:
                if not isinstance(error, StoreError) or is_configuration(error):
                    self.fail(error)
                else:
                    await first(self.stopping.wait(), self.trouble.noted(error, START_TROUBLE))
        return None

    def _start(self, space_id: str) -> None:
        self.runner = Runner(
            self.app,
            self.handler_store,
            self.settler,
            space_id=space_id,
            slots=self.slots,
            grace=self.settings.grace,
            freed=self._freed,
            children=self.children,
            promise=self.keeper.memory.promise,
        )
        self.reconciler = Reconciler(
            self.store,
            self.keeper,
            self.runner,
            self.settler,
            self.trouble,
            lanes=self.lanes,
            claiming=self._claiming,
            taken=self._dispatch,
            cancelling=self._cancel,
        )
        self._begin(self.settler.run(), "settle")
        self._begin(self.keeper.watch(), "trust")
        self._begin(self.runner.watch(), "deadlines")
        self._begin(self.reconciler.run(self.settings.lease / 2), "reconcile")
        self._begin(self._relieve(), "relieve")
        if not self.settings.alone:
            self._begin(self.sweeper.run(), "sweep")
            # Behind a pooler notifications arrive at whoever has the connection by then.
            if not self.target.pooler:
                self._begin(self.listener.run(), "listen")
        self._claimers = [self._begin(self._serve(lane), "claim") for lane in self.lanes]
        logger.info("worker %s serves %s with %d slots", self.name, ", ".join(self.queues), self.slots)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"fencerow {name}")
        task.add_done_callback(self._ended)
        self._loops.append(task)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken(error)

    def _broken(self, error: BaseException) -> None:
        if isinstance(error, FencerowError):
            self.fail(error)
            return
        logger.error("a part of the worker ended unexpectedly", exc_info=error)
        self.fail(FencerowError(f"a part of the worker ended unexpectedly: {type(error).__name__}"))

    async def _serve(self, lane: Lane) -> None:
        while not self.stopping.is_set():
            try:
                self._held_back = self.settler.backlog > BACKLOG_MAX or (
                    self.settings.alone and not self.settler.idle
                )
                if lane.demand == 0 or self._held_back:
                    await self._wait(lane, None)
                    continue
                lease = await self.keeper.current()
                found = await self._claim(lane, lease)
                self.trouble.over(CLAIM_TROUBLE)
                await self._found(lane, lease, found)
            except StoreError as error:
                self._dozing.pop(lane, None)  # the server may have forgotten it
                if self.reconciler is not None:
                    self.reconciler.soon()
                await first(self.stopping.wait(), self.trouble.noted(error, CLAIM_TROUBLE))

    async def _found(self, lane: Lane, lease: Lease, found: int) -> None:
        """Asleep only when nothing was found after saying so, and awake for all producers as soon as something was."""
        dozing = self._dozing.get(lane)
        if found:
            self._linger_until = boottime() + LINGER_SECONDS
        if found or (dozing is not None and dozing != lease.id):
            if self._dozing.pop(lane, None) is not None and dozing is not None:
                await self.store.run(workers.rouse(dozing, lane.queues))
        elif dozing == lease.id or self.settings.alone or self.target.pooler:
            await self._rest(lane)
        else:
            await self.store.run(workers.doze(lease.id, lane.queues))
            self._dozing[lane] = lease.id

    async def _claim(self, lane: Lane, lease: Lease) -> int:
        """One claim at a time, so that a ticket which the database shows and nobody holds is a lost answer."""
        self._wake[lane].clear()

        def take(claims: list[Claim]) -> None:
            new = [claim for claim in claims if lease.held.get(claim.job_id) != claim.generation]
            if len(new) < len(claims):
                # The database lost the first claim in a crash and gave the same out again: what runs here is its holder.
                logger.warning("%d claims were held here already", len(claims) - len(new))
            lease.held.update((claim.job_id, claim.generation) for claim in new)
            lane.put(new)
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
            self.stopping.set()
        poll = limits.POLL_SECONDS if self.listener.listening else limits.POLL_SECONDS_WITHOUT_NOTIFY
        await self._wait(lane, jittered(poll))
        self._idle_lanes.discard(lane)

    async def _nothing_due(self) -> bool:
        if not self.settings.alone:
            await self.sweeper.sweep()
        elif boottime() < self._linger_until:
            return False
        for lane in self.lanes:
            if await self._claim(lane, await self.keeper.current()):
                return False
        return self._exhausted()

    def _exhausted(self) -> bool:
        runner = self.runner
        quiet = runner is not None and not runner.running and self.settler.idle and not self.isolation.busy
        return quiet and len(self._idle_lanes) == len(self.lanes)

    async def _wait(self, lane: Lane, seconds: float | None) -> None:
        if self.stopping.is_set():
            return
        try:
            await asyncio.wait_for(self._wake[lane].wait(), seconds)
        except TimeoutError:
            pass
        self._wake[lane].clear()

    def _dispatch(self, lane: Lane) -> None:
        runner = self.runner
        if self.stopping.is_set():
            self._give_back(lane)
        while runner is not None and (claim := lane.next()) is not None:
            lease = self.keeper.leases.get(claim.lease)
            if lease is None:
                self.settler.add(Settlement(claim, "release"))
            else:
                runner.start(claim, lane, lease)

    def _give_back(self, lane: Lane, lease: Lease | None = None) -> None:
        for claim in lane.take_back(lambda claim: lease is None or claim.lease == lease.id):
            self.settler.add(Settlement(claim, "release"))

    async def _relieve(self) -> None:
        """Jobs that wait here behind slots which did not get free as soon as run times promised go back to all workers."""
        while True:
            await asyncio.sleep(RELIEVE_SECONDS)
            for lane in self.lanes:
                if lane.stalled:
                    lane.stall()
                    self._give_back(lane)

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

    def _settled(self, settlement: Settlement, _answer: Answer | None) -> None:
        claim = settlement.claim
        lease = self.keeper.leases.get(claim.lease)
        if lease is not None and lease.held.get(claim.job_id) == claim.generation:
            del lease.held[claim.job_id]
        idle = self.settings.burst and self.runner is not None and not self.runner.running
        if idle or (self._held_back and self.settler.backlog <= BACKLOG_MAX):
            for event in self._wake.values():
                event.set()

    def _lost(self, lease: Lease) -> None:
        logger.warning("lease lost: %d jobs were held under it", len(lease.held))
        if self.runner is not None:
            self.runner.lose(lease)
        for lane in self.lanes:
            self._give_back(lane, lease)
            self._wake[lane].set()

    def _cancel(self, job_ids: list[int]) -> None:
        asked = set(job_ids)
        for lane in self.lanes:
            for claim in lane.take_back(lambda claim: claim.job_id in asked):
                self.settler.add(Settlement(claim, "cancelled", error="cancelled before it started"))
        if self.runner is not None:
            self.runner.cancel(job_ids)

    async def _stop(self) -> None:
        runner, until = self.runner, boottime() + self.settings.grace
        logger.info("worker %s stops: nothing more is claimed", self.name)
        for lane in self.lanes:
            self._wake[lane].set()
            self._give_back(lane)
        isolation = asyncio.create_task(self.isolation.stop(self.settings.grace))
        if runner is not None:
            await self._within(runner.drained(), self.settings.grace)
            runner.stop_all()
            await self._within(runner.drained(), UNWIND_SECONDS)
            runner.settle_rest()
            runner.close()
        await asyncio.wait(self._claimers, timeout=CLAIM_ENDS_SECONDS)
        # Within the grace a database that is away may come back; what is not settled by then ends with its lease.
        patience = HURRY_SECONDS if self._hurry.is_set() else max(SETTLE_SECONDS_MIN, until - boottime())
        await first(self.settler.drained(), patience)
        await isolation
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await first(self._leave(), HURRY_SECONDS if self._hurry.is_set() else LEAVE_SECONDS)

    async def _within(self, work: Coroutine[Any, Any, Any], seconds: float) -> None:
        """Do some work for at most *seconds*, or until a second signal."""
        await first(work, seconds, unless=self._hurry.wait())

    async def _leave(self) -> None:
        try:
            for lease in list(self.keeper.leases.values()):
                await self.keeper.close_lease(lease)
            await self.store.run(workers.retire(self.name))
        except FencerowError as error:
            logger.warning("left without a word: %s", error)
