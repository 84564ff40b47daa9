"""A worker inside another asyncio program: no signals, its failures are raised where it was started."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fencerow import limits
from fencerow.app import App
from fencerow.app.hosting import Queues
from fencerow.errors import ConfigError
from fencerow.log import logger
from fencerow.task import options
from fencerow.types import Duration
from fencerow.worker.service import Service
from fencerow.worker.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class _Inside:
    name: str
    _run: asyncio.Task[int]

    @property
    def running(self) -> bool:
        return not self._run.done()


def settings_of(
    app: App,
    *,
    queues: Queues | None = None,
    concurrency: int = limits.CONCURRENCY_DEFAULT,
    grace: Duration = limits.GRACE_SECONDS_DEFAULT,
    lease: Duration | None = None,
    name: str | None = None,
    ref: str | None = None,
    burst: bool = False,
) -> WorkerSettings:
    """Settings of a worker in this process; see App.worker."""
    if isinstance(queues, str):
        raise ConfigError("queues are one string", hint=f'Give a list, as ["{queues[:20]}"].')
    if queues is None:
        queues = dict.fromkeys(sorted({task.policy.queue for task in app.tasks.values()} or {"default"}))
    pairs = queues.items() if isinstance(queues, Mapping) else ((queue, None) for queue in queues)
    return WorkerSettings(
        app_ref=reference(app) if ref is None else ref,
        queues=tuple(pairs),
        concurrency=concurrency,
        burst=burst,
        lease=app.lease
        if lease is None
        else options.seconds(lease, "lease", least=limits.LEASE_SECONDS_MIN, most=limits.LEASE_SECONDS_MAX),
        grace=options.seconds(grace, "grace", least=0, most=86400),
        name=name,
        dsn=app.dsn,
        schema=app.schema,
    )


def reference(app: App) -> str:
    """``module:name`` under which another process can import *app*, or "" if no module holds it."""
    for module_name, module in sorted(sys.modules.items()):
        if module_name != "__main__":
            for name, value in list(vars(module).items()):
                if value is app and name.isidentifier():
                    return f"{module_name}:{name}"
    return ""


@asynccontextmanager
async def running(app: App, settings: WorkerSettings) -> AsyncIterator[_Inside]:
    """As App.worker says."""
    if not settings.app_ref:
        logger.warning(
            "this app cannot be imported by name: jobs that were lost in company wait for another worker"
        )
    await asyncio.to_thread(app.target)  # an embedded server starts here, which takes seconds
    service = Service(app, settings)
    run = asyncio.create_task(service.run(signals=False), name="fencerow worker")
    try:
        started = asyncio.ensure_future(service.started.wait())
        await asyncio.wait((started, run), return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if not run.done():
            yield _Inside(service.name, run)
    finally:
        service.request_stop()
        await _ended(service, run)
    if service.error is not None:
        raise service.error


async def _ended(service: Service, run: asyncio.Task[int]) -> None:
    """Wait for the worker's end; a cancel meanwhile skips the grace, and goes on when the jobs were given back."""
    cancelled = False
    while not run.done():
        try:
            await asyncio.wait([run])
        except asyncio.CancelledError:
            cancelled = True
            service.request_stop()
    run.result()
    if cancelled:
        raise asyncio.CancelledError
