"""What a worker is told at its start, and how it is passed on to processes that it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fencerow import limits
from fencerow.errors import ConfigError

SETTINGS_VARIABLE = "FENCEROW_WORKER_SETTINGS"
"""Environment variable with the settings as JSON, for ``python -m fencerow.worker``: a DSN does not belong in argv."""

SUPERVISOR_VARIABLE = "FENCEROW_SUPERVISOR"
"""Environment variable with the pid of whoever started it, a supervisor or a worker: once that is gone it drains and ends."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """
    Args:
        app_ref: ``module:attribute`` of the App.
        queues: (queue, slots of its own or None); queues without a number share ``concurrency`` slots, in this order.
        processes: worker processes to keep running; 1: this process works itself.
        burst: end when nothing is due.
        lease: seconds; how long a worker that vanished keeps its jobs.
        grace: seconds that running jobs get to end after SIGTERM.
        alone: run suspects, one at a time (used by Fencerow itself).
        dsn: overrides the app's.
    """

    app_ref: str
    queues: tuple[tuple[str, int | None], ...] = (("default", None),)
    concurrency: int = limits.CONCURRENCY_DEFAULT
    processes: int = 1
    burst: bool = False
    lease: float = limits.LEASE_SECONDS_DEFAULT
    grace: float = limits.GRACE_SECONDS_DEFAULT
    name: str | None = None
    alone: bool = False
    dsn: str | None = None
    schema: str | None = None
    log_level: str = "info"
    json_logs: bool = False

    def __post_init__(self) -> None:
        for what, value, low, high in (
            ("concurrency", self.concurrency, 1, limits.CONCURRENCY_MAX),
            ("processes", self.processes, 1, limits.PROCESSES_MAX),
            ("lease", self.lease, limits.LEASE_SECONDS_MIN, limits.LEASE_SECONDS_MAX),
            ("grace", self.grace, 0, 86400),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{what} is {value}", hint=f"Choose {low} to {high}.")
        if not self.queues:
            raise ConfigError("no queue to serve", hint="Name at least one with --queues.")
        names = [queue for queue, _ in self.queues]
        if len(set(names)) < len(names):
            raise ConfigError("a queue is named twice", hint="Name each queue once.")
        for queue, slots in self.queues:
            if slots is not None and not 1 <= slots <= limits.CONCURRENCY_MAX:
                raise ConfigError(
                    f"queue {queue!r} has {slots} slots", hint=f"Choose 1 to {limits.CONCURRENCY_MAX}."
                )

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> WorkerSettings:
        """Back from JSON, where tuples are lists."""
        return cls(**{**values, "queues": tuple((queue, slots) for queue, slots in values["queues"])})
