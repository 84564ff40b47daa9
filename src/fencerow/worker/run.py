"""
Running: one attempt from its claim to its settlement. A handler returns an outcome or raises; it may be told to stop
because trust in its lease ended, its time is over, its cancel was requested, or the worker stops.

What a handler returned is sent even after it was told to stop: the database alone judges whether it came in time.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fencerow import limits
from fencerow.app import App
from fencerow.clock import boottime
from fencerow.errors import UnknownTask
from fencerow.job.hold import Hold
from fencerow.store.stores import AsyncStore
from fencerow.task import Task
from fencerow.types import Claim, Settlement
from fencerow.worker import outcome
from fencerow.worker.attempt import Attempt, Stop
from fencerow.worker.call import in_thread, on_loop
from fencerow.worker.children import ChildDied, Children, died
from fencerow.worker.claim import Lane
from fencerow.worker.keep import Lease
from fencerow.worker.settle import Settler

LOOK_SECONDS = 0.25
SHORT_TIMEOUT_SECONDS = 1.0
THREADS = "fencerow-handler"
HANG_SECONDS = 2.0
"""How long after a job's time and grace a loop that did not settle it counts as hung."""

_REASONS = {
    Stop.LOST: "untrusted",
    Stop.TIMEOUT: "timeout",
    Stop.CANCEL: "cancel_requested",
    Stop.SHUTDOWN: "shutdown",
}


def _called(handler: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What a sync handler returned or raised, as a value: a future refuses to carry StopIteration and would never end."""
    try:
        return handler(), None
    except BaseException as error:  # noqa: BLE001 - a handler may raise anything, SystemExit included
        return None, error


class Runner:
    """
    All attempts that run in this process.

    Args:
        freed: called with the lane when a slot became free.
        children: the processes of tasks with executor="process".
        promise: called with the time (CLOCK_BOOTTIME) by which this loop will have looked at its jobs again; while it
            is past, the process is hung and its leases are not renewed.
    """

    def __init__(
        self,
        app: App,
        store: AsyncStore,
        settler: Settler,
        *,
        space_id: str,
        slots: int,
        grace: float,
        freed: Callable[[Lane], None],
        children: Children,
        promise: Callable[[float], None],
    ) -> None:
        self.running: dict[tuple[int, int, int], Attempt] = {}
        self._app = app
        self._store = store
        self._settler = settler
        self._space_id = space_id
        self._grace = grace
        self._freed = freed
        self._children = children
        self._promise = promise
        self._promised = float("inf")
        self._threads = ThreadPoolExecutor(max_workers=slots, thread_name_prefix=THREADS)
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self, claim: Claim, lane: Lane, lease: Lease) -> None:
        """Start an attempt in a slot of the lane."""
        task = self._app.tasks.get(claim.task)
        timeout = self._timeout(claim, task)
        hold = Hold(claim, self._space_id, lambda: lease.trusted)
        attempt = Attempt(claim, lease, hold, task, timeout)
        lane.busy += 1
        self._idle.clear()
        self.running[attempt.key] = attempt
        if timeout is not None and (hung_at := boottime() + self._hang(timeout)) < self._promised:
            self._promised = hung_at
            self._promise(hung_at)
        attempt.running = asyncio.create_task(self._run(attempt, lane))

    def _hang(self, seconds: float) -> float:
        return seconds + self._grace + HANG_SECONDS

    def _timeout(self, claim: Claim, task: Task[Any, Any] | None) -> float | None:
        given = (claim.extra or {}).get("timeout")
        if given is not None:
            return float(given)
        return limits.TIMEOUT_SECONDS_DEFAULT if task is None else task.policy.timeout

    async def _run(self, attempt: Attempt, lane: Lane) -> None:
        attempt.started_at = began = boottime()
        attempt.begin()
        if attempt.timeout is not None and attempt.timeout < SHORT_TIMEOUT_SECONDS:
            asyncio.get_running_loop().call_later(attempt.timeout, self._look_at, attempt)
        try:
            settlement = await self._outcome(attempt)
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, SystemExit included
            settlement = self._raised(attempt, error)
        lane.times.add(boottime() - began)
        self.running.pop(attempt.key, None)
        lane.busy -= 1
        self._settle(attempt, settlement)
        if not self.running:
            self._idle.set()
        self._freed(lane)

    async def _outcome(self, attempt: Attempt) -> Settlement:
        claim, task = attempt.claim, attempt.task
        if not attempt.lease.trusted:
            return Settlement(claim, "release")
        if attempt.stop is not None:
            raise asyncio.CancelledError
        if task is None:
            raise UnknownTask(
                f"this worker knows no task {claim.task!r}", hint="Start a worker whose app has it."
            )
        if task.executor == "process":
            return await self._children.run(attempt, self._space_id)
        if task.is_async:
            value = await on_loop(self._app, task, attempt.hold, self._store)
        else:
            store = self._app.store()
            attempt.in_thread = True
            context = contextvars.copy_context()
            value, raised = await asyncio.get_running_loop().run_in_executor(
                self._threads,
                lambda: context.run(_called, lambda: in_thread(self._app, task, attempt.hold, store)),
            )
            if raised is not None:
                raise raised
        return outcome.returned(claim, task, value)

    def _raised(self, attempt: Attempt, error: BaseException) -> Settlement:
        claim = attempt.claim
        if attempt.hold.committed:
            attempt.log.warning("raised after job.commit(), the job stays done: %s", type(error).__name__)
            return Settlement(claim, "complete")
        match attempt.stop:
            case Stop.LOST:
                return attempt.lost("stopped because its lease may have been over")
            case Stop.CANCEL:
                return Settlement(claim, "cancelled", error="stopped because its cancel was requested")
            case Stop.SHUTDOWN:
                return Settlement(claim, "release")
            case Stop.TIMEOUT:
                return Settlement(
                    claim,
                    "retry",
                    kind="timeout",
                    error=f"ran longer than {attempt.timeout} s",
                    delay=outcome.backoff(claim, attempt.task),
                )
        attempt.log.info("raised %s", type(error).__name__)
        return (
            died(attempt, error)
            if isinstance(error, ChildDied)
            else outcome.raised(attempt.hold, attempt.task, error)
        )

    def _settle(self, attempt: Attempt, settlement: Settlement) -> None:
        if attempt.settled:
            attempt.log.warning("its handler ended after the attempt had been settled without it")
            return
        attempt.settled = True
        if attempt.hold.committed:
            self._settler.settled(settlement)
            return
        if settlement.verb in ("fail", "retry"):
            attempt.log.info("%s (%s)", settlement.verb, settlement.kind)
        self._settler.add(settlement)

    def stop(self, attempt: Attempt, why: Stop) -> None:
        """Tell a handler to stop: an async one is cancelled, a process is killed, in a thread its next ``job`` call raises."""
        if attempt.settled or not why.outranks(attempt.stop):
            return
        attempt.stop, attempt.stop_at = why, boottime()
        attempt.hold.lost = attempt.hold.lost or _REASONS[why]
        attempt.hold.cancel_requested |= why is Stop.CANCEL
        attempt.log.info("told to stop: %s", why.value)
        if self._children.kill(attempt):
            return
        # A task cancelled before its first step would never run, and so never settle: _outcome looks at `stop` itself.
        if attempt.running is not None and attempt.started_at and not attempt.in_thread:
            attempt.running.cancel()

    def lose(self, lease: Lease) -> None:
        """Trust in a lease ended: stop everything under it."""
        for attempt in list(self.running.values()):
            if attempt.lease is lease:
                self.stop(attempt, Stop.LOST)

    def cancel(self, job_ids: list[int]) -> None:
        """Stop jobs whose cancel was requested."""
        wanted = set(job_ids)
        for attempt in list(self.running.values()):
            if attempt.claim.job_id in wanted:
                self.stop(attempt, Stop.CANCEL)

    def _look_at(self, attempt: Attempt) -> None:
        deadline = attempt.hold.deadline
        if deadline is not None and boottime() >= deadline:
            self.stop(attempt, Stop.TIMEOUT)

    async def watch(self) -> None:
        """Stop what is overdue, and settle without its handler what does not stop."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now, soonest = boottime(), float("inf")
            for attempt in list(self.running.values()):
                deadline = attempt.hold.deadline
                if attempt.settled:
                    continue
                if deadline is not None and now >= deadline:
                    self.stop(attempt, Stop.TIMEOUT)
                if attempt.stop is not None and now >= attempt.stop_at + self._patience(attempt):
                    attempt.log.error("does not stop; its slot stays taken until it returns")
                    self._settle(attempt, self._raised(attempt, TimeoutError("did not stop")))
                elif deadline is not None:
                    soonest = min(soonest, max(deadline, attempt.stop_at))
            self._promised = self._hang(soonest)
            self._promise(self._promised)

    def _patience(self, attempt: Attempt) -> float:
        match attempt.stop:
            case Stop.LOST:
                return limits.margin_seconds(attempt.lease.seconds) / 2
            case Stop.CANCEL:
                return float("inf")  # it runs, so it is not cancelled yet; its timeout still ends it
        return self._grace

    async def drained(self) -> None:
        """Wait until nothing runs."""
        await self._idle.wait()

    def stop_all(self) -> None:
        """The grace is over: stop everything that still runs."""
        for attempt in list(self.running.values()):
            self.stop(attempt, Stop.SHUTDOWN)

    def settle_rest(self) -> None:
        """Settle without their handlers what did not stop: the process is about to end."""
        for attempt in list(self.running.values()):
            if not attempt.settled:
                self._settle(attempt, self._raised(attempt, TimeoutError("did not stop")))

    def close(self) -> None:
        """Let idle threads end; those inside a handler go on."""
        self._threads.shutdown(wait=False, cancel_futures=True)
