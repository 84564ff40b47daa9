"""What people look at: one job whole, pages of jobs, queues, live workers, stale claims. Nothing is changed."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fencerow.ops.base import Op, Row, int_array

INTEGER_DIGITS_MAX = 400
"""A longer number of a stored document stays text: Python refuses to convert it, and no reader could use it."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One line of a list of jobs; times by the database clock, ``lease_until`` and ``worker`` while it runs."""

    id: int
    state: str | None
    task: str
    queue: str
    priority: int
    generation: int | None
    attempt: int | None
    max_attempts: int
    created_at: datetime
    run_at: datetime | None
    claimed_at: datetime | None
    ended_at: datetime | None
    lease_until: datetime | None
    worker: str | None
    cancel_requested: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs, newest first, and the job id below which to look on; ``before`` None: the walk is at its end."""

    jobs: tuple[JobRow, ...]
    before: int | None


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue that has a live job, a setting or a live worker; ``oldest_seconds``: age of its oldest ready job."""

    queue: str
    ready: int
    scheduled: int
    running: int
    suspects: int
    oldest_seconds: float | None
    paused_at: datetime | None
    paused_by: str | None
    workers: int


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker process that holds a lease now."""

    name: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    slots: int
    started_at: datetime
    lease_until: datetime


@dataclass(frozen=True, slots=True)
class StaleRow:
    """A claim past the end of its lease that no sweep has taken yet; ``fate`` is what will become of its job."""

    job_id: int
    generation: int
    attempt: int
    task: str
    queue: str
    worker: str
    claim_age: timedelta
    over_since: timedelta
    policy: str
    fate: str


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """A write that was refused: who came too late, with what, and why."""

    id: int
    job_id: int
    generation: int
    lease_id: int
    worker: str | None
    op: str
    verdict: str
    current_generation: int | None
    at: datetime


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= INTEGER_DIGITS_MAX else text


def _fraction(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def _facts(rows: list[Row]) -> dict[str, Any] | None:
    if not rows:
        return None
    # Any client may have enqueued numbers that no Python number holds; one of them must not hide its job.
    facts: dict[str, Any] | None = json.loads(rows[0][0], parse_int=_integer, parse_float=_fraction)
    return facts


def job_facts(job_id: int, *, payload: bool = False) -> Op[dict[str, Any] | None]:
    """One job whole, as sql/inspect/job_facts.sql lists it, or None; the payload only when asked for."""
    return Op(
        "job_facts",
        "SELECT facts::text FROM fencerow.job_facts(%s, %s) AS facts WHERE facts IS NOT NULL",
        (job_id, payload),
        _facts,
        writes=False,
    )


def _page(rows: list[Row]) -> JobPage:
    # A row without an id carries the cursor of a stretch in which nothing matched.
    jobs = tuple(JobRow(*row[:-1]) for row in rows if row[0] is not None)
    return JobPage(jobs, rows[-1][-1] if rows else None)


def job_page(
    *,
    state: str | None = None,
    queue: str | None = None,
    task: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> Op[JobPage]:
    """
    Up to *limit* jobs below the id *before*, newest first.

    A page may be short, even empty, before the end: 10,000 jobs are looked at for it. Go on from its ``before``.
    """
    return Op(
        "job_page",
        "SELECT * FROM fencerow.job_page(%s, %s, %s, %s, %s)",
        (state, queue, task, before, limit),
        _page,
        writes=False,
    )


def queue_counts() -> Op[list[QueueRow]]:
    """All queues, in order of their names."""
    return Op(
        "queue_counts",
        "SELECT * FROM fencerow.queue_counts()",
        (),
        lambda rows: [QueueRow(*row) for row in rows],
        writes=False,
    )


def _worker(row: Row) -> WorkerRow:
    name, host, pid, version, queues, tasks, *rest = row
    return WorkerRow(name, host, pid, version, tuple(queues), tuple(tasks), *rest)


def live_workers() -> Op[list[WorkerRow]]:
    """Worker processes that hold a lease now, in order of their names."""
    return Op(
        "live_workers",
        "SELECT * FROM fencerow.live_workers() ORDER BY name",
        (),
        lambda rows: [_worker(row) for row in rows],
        writes=False,
    )


def stale() -> Op[list[StaleRow]]:
    """Claims past the end of their lease that no sweep has taken yet, the oldest claim first."""
    return Op(
        "stale",
        "SELECT * FROM fencerow.stale()",
        (),
        lambda rows: [StaleRow(*row) for row in rows],
        writes=False,
    )


def running_under(worker: str) -> Op[list[tuple[int, int, int]]]:
    """The jobs that a worker process holds now, as (job id, generation, lease id)."""
    return Op(
        "running_under",
        "SELECT job_id, generation, lease_id FROM fencerow.running_under(%s)",
        (worker,),
        lambda rows: [(row[0], row[1], row[2]) for row in rows],
        writes=False,
    )


def recent_refusals(after: int = 0, *, limit: int = 100) -> Op[Sequence[RefusalRow]]:
    """Refused writes above an id, oldest first."""
    return Op(
        "recent_refusals",
        "SELECT * FROM fencerow.recent_refusals(%s, %s)",
        (after, limit),
        lambda rows: [RefusalRow(*row) for row in rows],
        writes=False,
    )


@dataclass(frozen=True, slots=True)
class EndedRow:
    """How a job ended; ``result`` decoded, None when there is none."""

    job_id: int
    outcome: str
    generation: int
    result: Any
    error: str | None


def _ended(row: Row) -> EndedRow:
    job_id, outcome, generation, result, error = row
    return EndedRow(job_id, outcome, generation, None if result is None else json.loads(result), error)


def results(job_ids: Sequence[int]) -> Op[list[EndedRow]]:
    """How jobs ended; one that has not ended, or is unknown, has no entry."""
    return Op(
        "results",
        "SELECT * FROM fencerow.results(%s::bigint[])",
        (int_array(job_ids),),
        lambda rows: [_ended(row) for row in rows],
        writes=False,
    )
