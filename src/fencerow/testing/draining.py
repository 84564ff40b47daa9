"""
Running due jobs in the test's own process: the worker itself, in burst mode, against the real database.

So payloads and results go through JSON and the database as in production, retries are charged, and a handler that is
refused there is refused here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fencerow import limits
from fencerow.app import App
from fencerow.app.hosting import Queues
from fencerow.app.results import refuse_in_loop
from fencerow.errors import FencerowError
from fencerow.ops import inspect, jobs
from fencerow.ops.base import Op
from fencerow.store.stores import AsyncStore
from fencerow.task import options
from fencerow.types import Answer, Claim, Duration, Settlement
from fencerow.worker.claim import Lane
from fencerow.worker.inside import settings_of
from fencerow.worker.keep import Lease
from fencerow.worker.service import Service
from fencerow.worker.settings import WorkerSettings

TIMEOUT_SECONDS = 60.0
_STATES = "SELECT x.id, x.state FROM fencerow.jobs AS x WHERE x.id = ANY (%s::bigint[])"


class DrainTimeout(FencerowError, TimeoutError):
    """Jobs were still due, or running, when the time of a drain was over."""

    code = "drain_timeout"


@dataclass(frozen=True, slots=True)
class Drained:
    """
    What a drain did. Job ids, in the order in which they first ran, by the state in which they are now.

    Attributes:
        put_back: they will run again: a retry, a snooze, or a time that is ahead.
        errors: by job id: what its last attempt here left as error.
        runs: how many attempts ran.
    """

    done: tuple[int, ...]
    failed: tuple[int, ...]
    cancelled: tuple[int, ...]
    put_back: tuple[int, ...]
    errors: Mapping[int, str]
    runs: int


class _Observed(Service):
    """A worker that notes what it settles, and that may be told which jobs alone to start."""

    def __init__(self, app: App, settings: WorkerSettings, only: set[int] | None) -> None:
        super().__init__(app, settings)
        self.settlements: list[Settlement] = []
        self._left = only
        self._startable = None if only is None else set(only)
        self._aside: list[Claim] = []

    def _settled(self, settlement: Settlement, answer: Answer | None) -> None:
        if settlement.verb != "release":
            self.settlements.append(settlement)
            if self._left is not None:
                self._left.discard(settlement.claim.job_id)
                if not self._left:
                    self.stopping.set()
        super()._settled(settlement, answer)

    def _dispatch(self, lane: Lane) -> None:
        startable = self._startable
        if startable is None:
            super()._dispatch(lane)
            return
        wanted = startable
        self._aside += lane.take_back(lambda claim: claim.job_id not in wanted)
        super()._dispatch(lane)
        if self.runner is not None:
            # Here, because its retry may be claimed before the answer to its settlement is read.
            startable -= {job_id for _, job_id, _ in self.runner.running}

    def _give_back(self, lane: Lane, lease: Lease | None = None) -> None:
        lane.put(self._aside)
        self._aside = []
        super()._give_back(lane, lease)


def drain(
    app: App,
    *,
    queues: Queues | None = None,
    until_idle: bool = True,
    concurrency: int = limits.CONCURRENCY_DEFAULT,
    timeout: Duration = TIMEOUT_SECONDS,
) -> Drained:
    """
    Run the due jobs of the app's database here and now, in an event loop of their own.

    Args:
        queues: as in App.worker; None: those of the app's tasks.
        until_idle: until nothing is due, what jobs enqueue included; False: only what is due at the call, once each.
        concurrency: 1 runs them one after another, by priority and age.

    Raises:
        DrainTimeout: something was still running or due.  FencerowError: the worker could not start.
        UsageError: an event loop runs in this thread; await adrain() there.
    """
    refuse_in_loop("drain", "adrain")
    return asyncio.run(
        _drain_and_close(app, queues=queues, until_idle=until_idle, concurrency=concurrency, timeout=timeout)
    )


async def _drain_and_close(app: App, **settings: object) -> Drained:
    try:
        return await adrain(app, **settings)  # type: ignore[arg-type]
    finally:
        await app.leave_loop()


async def adrain(
    app: App,
    *,
    queues: Queues | None = None,
    until_idle: bool = True,
    concurrency: int = limits.CONCURRENCY_DEFAULT,
    timeout: Duration = TIMEOUT_SECONDS,  # noqa: ASYNC109 - the end of it is an error of the drain's own
) -> Drained:
    """As drain, in the running event loop."""
    seconds = options.seconds(timeout, "timeout", least=0.1, most=86400)
    settings = settings_of(app, queues=queues, concurrency=concurrency, burst=True)
    store = await app.ready()
    only = None if until_idle else await _due(store, {queue for queue, _ in settings.queues})
    service = _Observed(app, settings, only)
    if only is not None and not only:
        return await _told(store, [])
    run = asyncio.create_task(service.run(signals=False))
    done, _ = await asyncio.wait([run], timeout=seconds)
    if not done:
        running = [] if service.runner is None else sorted(key[1] for key in service.runner.running)
        service.request_stop()
        service.request_stop()
        await run
        what = f"jobs {', '.join(map(str, running[:20]))} were running" if running else "jobs were still due"
        raise DrainTimeout(
            f"not drained within {seconds:g} s: {what}", hint="Look for a job that never ends."
        )
    run.result()
    if service.error is not None:
        raise service.error
    return await _told(store, service.settlements)


async def _due(store: AsyncStore, queues: set[str]) -> set[int]:
    await store.run(jobs.promote())
    due: set[int] = set()
    before: int | None = None
    while True:
        page = await store.run(inspect.job_page(state="ready", before=before, limit=1000))
        due |= {job.id for job in page.jobs if job.queue in queues}
        before = page.before
        if before is None:
            return due


async def _told(store: AsyncStore, settlements: list[Settlement]) -> Drained:
    ids = list(dict.fromkeys(settlement.claim.job_id for settlement in settlements))
    states: dict[int, str] = await store.run(Op("states", _STATES, (ids,), dict, writes=False))

    def those(wanted: Callable[[str | None], bool]) -> tuple[int, ...]:
        return tuple(job for job in ids if wanted(states.get(job)))

    return Drained(
        done=those(lambda state: state == "done"),
        failed=those(lambda state: state == "failed"),
        cancelled=those(lambda state: state == "cancelled"),
        put_back=those(lambda state: state in ("ready", "scheduled", "running", "waiting")),
        errors={entry.claim.job_id: entry.error for entry in settlements if entry.error},
        runs=len(settlements),
    )
