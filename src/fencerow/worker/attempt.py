"""One attempt in this process: its claim, its lease, its deadline, and why it was told to stop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fencerow.clock import boottime
from fencerow.job.hold import Hold
from fencerow.log import JobLog
from fencerow.task import Task
from fencerow.types import Claim, Settlement
from fencerow.worker.keep import Lease


class Stop(Enum):
    """Why a running handler was told to stop; a later member outranks an earlier one."""

    CANCEL = "its cancel was requested"
    SHUTDOWN = "the worker stops"
    TIMEOUT = "its time is over"
    LOST = "its lease may be over"

    def outranks(self, other: Stop | None) -> bool:
        """Whether it replaces the reason given before."""
        order = list(Stop)
        return other is None or order.index(self) > order.index(other)


@dataclass(eq=False)
class Attempt:
    """
    Attributes:
        task: None when this process does not know the task.
        running: the asyncio task that runs it, once started.
        started_at: 0 until its first step.
        stop: the strongest reason for which it was told to stop.
        settled: True once its settlement was handed over; it is handed over once.
    """

    claim: Claim
    lease: Lease
    hold: Hold
    task: Task[Any, Any] | None
    timeout: float | None
    running: asyncio.Task[None] | None = None
    started_at: float = 0.0
    stop: Stop | None = None
    stop_at: float = 0.0
    settled: bool = False
    in_thread: bool = False

    @property
    def key(self) -> tuple[int, int, int]:
        """What fences it. A job may run twice in one process: an overdue thread, and the attempt after it."""
        return self.lease.id, self.claim.job_id, self.claim.generation

    def begin(self) -> None:
        """Its handler is about to be called: from now on its time runs."""
        if self.timeout is not None:
            self.hold.deadline = boottime() + self.timeout

    @property
    def log(self) -> JobLog:
        """The logger with this attempt's job and generation."""
        return JobLog(self.claim)

    def lost(self, reason: str) -> Settlement:
        """The settlement of an attempt that did not return while it was trusted."""
        return Settlement(self.claim, "lost", error=reason)
