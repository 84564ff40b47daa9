"""
Suspects: jobs that were lost in company run one at a time in a process of their own, so that a death burns nobody else.

The process is a worker like this one, for suspects only, that ends when it finds none. Each runs under its own lease.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from fencerow.log import logger
from fencerow.worker.settings import SETTINGS_VARIABLE, SUPERVISOR_VARIABLE, WorkerSettings

SETTLE_SECONDS = 5.0
"""What a process may take after its grace, to cancel, to settle and to end."""


class Isolation:
    """Starts and stops the processes for suspects of one worker: at most one more a sweep, ``concurrency`` in all."""

    def __init__(self, settings: WorkerSettings, worker: str) -> None:
        self._settings = settings
        self._worker = worker
        self._children: dict[asyncio.subprocess.Process, asyncio.Task[None]] = {}
        self._starting: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def busy(self) -> bool:
        """Whether such a process runs or starts."""
        return bool(self._children) or self._starting is not None

    def found(self, queues: Sequence[str]) -> None:
        """There are suspects in these queues."""
        if self._stopped or self._starting is not None or len(self._children) >= self._settings.concurrency:
            return
        if not self._settings.app_ref:
            return  # another process could not import this app
        self._starting = asyncio.create_task(self._start(tuple(queues)))
        self._starting.add_done_callback(self._started)

    def _started(self, task: asyncio.Task[None]) -> None:
        self._starting = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a process for a suspect job cannot be started: %s", type(error).__name__)

    async def _start(self, queues: tuple[str, ...]) -> None:
        settings = replace(
            self._settings,
            queues=tuple((queue, None) for queue in queues),
            concurrency=1,
            processes=1,
            burst=True,
            alone=True,
            name=f"{self._worker}/alone",
        )
        # It follows its worker: else each killed worker would leave up to `concurrency` of them beside those of the next.
        environment = {
            **os.environ,
            SETTINGS_VARIABLE: json.dumps(asdict(settings)),
            SUPERVISOR_VARIABLE: str(os.getpid()),
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "fencerow.worker",
            env=environment,
            start_new_session=True,
        )
        self._children[process] = asyncio.create_task(self._wait(process))

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self._children.pop(process, None)
        if code not in (0, -signal.SIGTERM):
            end = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            logger.warning("a process that ran a suspect job alone ended with %s", end)

    async def stop(self, grace: float) -> None:
        """Ask them to drain, wait until they have had their grace and settled, and end those that do not."""
        self._stopped = True
        if self._starting is not None:
            await asyncio.wait([self._starting])
        self.signal()
        waits = list(self._children.values())
        if waits:
            await asyncio.wait(waits, timeout=grace + SETTLE_SECONDS)
        for process in list(self._children):
            _send(process, signal.SIGKILL)

    def signal(self) -> None:
        """The first asks them to drain, the second to hurry."""
        for process in list(self._children):
            _send(process, signal.SIGTERM)


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:
        pass  # it has just ended
