"""The values that travel between the parts: what is asked (NewJob), what is held (Claim), what is answered (Answer)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from fencerow import limits

Seconds = float
Duration = timedelta | float | int
JobState = Literal["scheduled", "waiting", "ready", "running", "done", "failed", "cancelled"]
Verdict = Literal["accepted", "already", "superseded", "expired", "cancelled", "settled", "unknown"]
OnLost = Literal["retry", "fail"]
OnConflict = Literal["existing", "replace", "extend", "raise"]
FailureKind = Literal["failed", "invalid", "unavailable", "timeout"]


@dataclass(frozen=True, slots=True)
class Unique:
    """
    At most one live job holds ``key`` in its space.

    Args:
        until: The key is held until the job ``"finished"`` or ``"started"``, or for a duration (timedelta or seconds,
            database clock, from the enqueue on), whether or not the job still lives.
        on_conflict: ``"existing"`` answers the holder; ``"replace"`` ends a holder that has not started as cancelled;
            ``"extend"`` gives such a holder the new time; ``"raise"`` raises Duplicate. A running holder is left alone.
    """

    key: str
    until: Literal["finished", "started"] | Duration = "finished"
    on_conflict: OnConflict = "existing"


@dataclass(frozen=True, slots=True)
class NewJob:
    """One job as it will be enqueued: validated, its payload encoded. ``run_in`` seconds from the enqueue."""

    task: str
    payload: str
    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    run_in: Seconds | None = None
    max_attempts: int | None = None
    timeout: Seconds | None = None
    on_lost: OnLost | None = None
    tags: Sequence[str] | None = None
    headers: Mapping[str, str] | None = None
    idempotency_key: str | None = None
    unique: Unique | None = None


class Enqueued(NamedTuple):
    """Answer to one enqueue: the job's id, and whether this call created it."""

    id: int
    created: bool


class Claim(NamedTuple):
    """Proof of ownership of one attempt: (lease, job_id, generation) fence every write. ``payload`` is JSON text."""

    lease: int
    queue: str
    job_id: int
    generation: int
    attempt: int
    fence: int
    priority: int
    task: str
    payload: str
    extra: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        """How a claim is printed: ``id|generation``."""
        return f"{self.job_id}|{self.generation}"


class Answer(NamedTuple):
    """What the database said to one fenced write. ``lease_until`` in UTC, database clock."""

    job_id: int
    generation: int
    verdict: str
    current: int | None
    state: str | None
    lease_until: datetime | None
    owner: str | None

    @property
    def accepted(self) -> bool:
        """True when the write is in, by this call or by an earlier identical one."""
        return self.verdict in ("accepted", "already")


class KeptStep(NamedTuple):
    """A step that an earlier attempt kept: ``place`` from 1, ``code`` the function that made it, ``result`` JSON text."""

    place: int
    name: str
    code: str
    result: str


class End(NamedTuple):
    """How a job ended; ``outcome`` None while it lives. ``result`` JSON text, ``kind`` of its last attempt if it failed."""

    task: str
    outcome: Literal["done", "failed", "cancelled"] | None
    result: str | None
    error: str | None
    kind: str | None


class Renewal(NamedTuple):
    """Answer to a renewal: seconds left, jobs asked to cancel, and all tickets (job → generation) if they differ."""

    seconds: Seconds
    cancelling: tuple[int, ...]
    tickets: Mapping[int, int] | None


class Lost(NamedTuple):
    """A job whose lease ended unsettled, and where its ticket went."""

    job_id: int
    generation: int
    fate: str


@dataclass(frozen=True, slots=True)
class TaskPolicy:
    """What the database must know of a task. Durations in seconds; ``timeout`` None: no limit."""

    name: str
    queue: str = "default"
    priority: int = limits.PRIORITY_DEFAULT
    max_attempts: int = limits.ATTEMPTS_DEFAULT
    on_lost: OnLost = "retry"
    backoff_base: Seconds = limits.BACKOFF_BASE_SECONDS
    backoff_cap: Seconds = limits.BACKOFF_CAP_SECONDS
    timeout: Seconds | None = limits.TIMEOUT_SECONDS_DEFAULT
    keep: Seconds = limits.KEEP_SECONDS_DEFAULT
    keep_failed: Seconds = limits.KEEP_FAILED_SECONDS_DEFAULT

    @property
    def careful(self) -> bool:
        """True when a job of this task must never wait in a buffer: being lost there would end it."""
        return self.on_lost == "fail" or self.max_attempts == 1


@dataclass(frozen=True, slots=True)
class Retry:
    """Outcome: this attempt failed, run it again after ``delay`` (None: the task's back-off)."""

    delay: Duration | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Snooze:
    """Outcome: not now; run it again after ``delay``. The attempt is not charged."""

    delay: Duration
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Fail:
    """Outcome: end as failed, kept for people; no further attempt."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Outcome: end as cancelled."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Settlement:
    """
    What is sent for one attempt, exactly once in meaning: repeating it is answered ``already``.

    ``verb`` is the SQL function: complete, fail, retry, snooze, release, lost, cancelled.
    """

    claim: Claim
    verb: Literal["complete", "fail", "retry", "snooze", "release", "lost", "cancelled"]
    result: str | None = None
    kind: FailureKind = "failed"
    error: str | None = None
    delay: Seconds = field(default=0.0)
