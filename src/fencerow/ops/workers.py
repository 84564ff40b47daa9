"""Leases, registration of workers and tasks, and the small talk of sleeping and waking."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from fencerow.ops.base import Op, Row, nothing, scalar
from fencerow.types import Renewal, TaskPolicy


def open_lease(lease: int, worker: str, *, seconds: float, alone: bool = False) -> Op[float | None]:
    """Begin to hold jobs: seconds left by the database clock, or None when the lease is over or another worker's."""
    return Op(
        "open_lease",
        "SELECT seconds FROM fencerow.open_lease(%s, %s, %s::interval, %s)",
        (lease, worker, timedelta(seconds=seconds), alone),
        lambda rows: rows[0][0] if rows else None,
    )


def close_lease(lease: int) -> Op[bool]:
    """Give up a lease that holds nothing; False when it still holds tickets or is gone."""
    return Op("close_lease", "SELECT fencerow.close_lease(%s)", (lease,), scalar)


def _renewal(rows: list[Row]) -> Renewal | None:
    if not rows:
        return None
    seconds, cancelling, jobs, generations = rows[0]
    return Renewal(
        seconds, tuple(cancelling), None if jobs is None else dict(zip(jobs, generations, strict=True))
    )


def renew(lease: int, held: str | None = None) -> Op[Renewal | None]:
    """Renew a lease and, given the digest of what is held, compare; None when the lease is over."""
    return Op(
        "renew",
        "SELECT seconds, cancelling, jobs, generations FROM fencerow.renew(%s, %s)",
        (lease, held),
        _renewal,
    )


def doze(lease: int, queues: Sequence[str]) -> Op[None]:
    """Say that this process waits for a NOTIFY on these queues."""
    return Op("doze", "SELECT fencerow.doze(%s, %s::text[])", (lease, list(queues)), nothing)


def rouse(lease: int, queues: Sequence[str]) -> Op[None]:
    """Say that this process is awake on these queues."""
    return Op("rouse", "SELECT fencerow.rouse(%s, %s::text[])", (lease, list(queues)), nothing)


def space_id() -> Op[str]:
    """The identity of this space, a UUID."""
    return Op("space_id", "SELECT fencerow.space_id()::text", (), scalar, writes=False)


def horizon(queues: Sequence[str]) -> Op[tuple[float | None, float | None, list[str]]]:
    """Seconds until the next scheduled job and until the next lease end (None: none), and queues that hold suspects."""
    return Op(
        "horizon",
        "SELECT next_run, next_end, suspects FROM fencerow.horizon(%s::text[])",
        (list(queues),),
        lambda rows: rows[0],
        writes=False,
    )


def channel() -> Op[str]:
    """The NOTIFY channel of this space."""
    return Op("channel", "SELECT fencerow.channel()", (), scalar, writes=False)


def register(
    name: str, *, host: str, pid: int, version: str, queues: Sequence[str], tasks: Sequence[str], slots: int
) -> Op[None]:
    """Tell who this worker process is."""
    return Op(
        "register",
        "SELECT fencerow.register(%s, %s, %s, %s, %s::text[], %s::text[], %s)",
        (name, host, pid, version, list(queues), list(tasks), slots),
        nothing,
    )


def retire(name: str) -> Op[None]:
    """Tell that this worker process stopped in good order."""
    return Op("retire", "SELECT fencerow.retire(%s)", (name,), nothing)


def declare_task(policy: TaskPolicy) -> Op[bool]:
    """Write a task's policy; True when it changed."""
    return Op(
        "declare_task",
        "SELECT fencerow.declare_task(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            policy.name,
            policy.queue,
            policy.priority,
            policy.max_attempts,
            policy.on_lost,
            timedelta(seconds=policy.backoff_base),
            timedelta(seconds=policy.backoff_cap),
            None if policy.timeout is None else timedelta(seconds=policy.timeout),
            timedelta(seconds=policy.keep),
            timedelta(seconds=policy.keep_failed),
        ),
        scalar,
    )
