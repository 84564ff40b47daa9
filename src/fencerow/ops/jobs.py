"""The road of a job, as operations: enqueue, claim, adopt, settle, progress, and what people and sweeps do."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from fencerow.ops.base import Op, Row, int_array, nothing, scalar
from fencerow.types import Answer, Claim, End, Enqueued, KeptStep, Lost, NewJob, Settlement, Unique


def _given(values: list[Any]) -> list[Any] | None:
    return values if any(value is not None for value in values) else None


def _interval(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _unique(unique: Unique | None) -> tuple[str | None, str | None, timedelta | None, str | None]:
    if unique is None:
        return None, None, None, None
    if isinstance(unique.until, str):
        return unique.key, unique.until, None, unique.on_conflict
    held = unique.until if isinstance(unique.until, timedelta) else timedelta(seconds=unique.until)
    return unique.key, "time", held, unique.on_conflict


def _text(values: Iterable[Any]) -> list[str | None]:
    return [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]


_ARRAYS = (
    "%s::text[], %s::text[]::jsonb[], %s::text[], %s::int[], "
    "%s::timestamptz[], %s::interval[], %s::int[], %s::interval[], %s::text[], %s::text[]::jsonb[], "
    "%s::text[]::jsonb[], %s::text[], %s::text[], %s::text[], %s::interval[], %s::text[]"
)
"""Placeholders for what _arrays() gives, in the order of enqueue_many()."""


def _arrays(jobs: Sequence[NewJob]) -> list[Any]:
    unique = [_unique(job.unique) for job in jobs]
    return [
        [job.task for job in jobs],
        [job.payload for job in jobs],
        _given([job.queue for job in jobs]),
        _given([job.priority for job in jobs]),
        _given([job.run_at for job in jobs]),
        _given([_interval(job.run_in) for job in jobs]),
        _given([job.max_attempts for job in jobs]),
        _given([_interval(job.timeout) for job in jobs]),
        _given([job.on_lost for job in jobs]),
        _given(_text(job.tags for job in jobs)),
        _given(_text(job.headers for job in jobs)),
        _given([job.idempotency_key for job in jobs]),
        *(_given([entry[part] for entry in unique]) for part in range(4)),
    ]


def enqueue(jobs: Sequence[NewJob]) -> Op[list[Enqueued]]:
    """
    Enqueue jobs in one statement; the answers are aligned with them.

    It may be sent again after a lost reply only if every job has an idempotency key.
    """
    return Op(
        "enqueue",
        f"SELECT id, created FROM fencerow.enqueue_many({_ARRAYS})",
        _arrays(jobs),
        lambda rows: [Enqueued(*row) for row in rows],
        again=all(job.idempotency_key is not None for job in jobs),
    )


def enqueue_child(claim: Claim, job: NewJob) -> Op[tuple[Answer, Enqueued | None]]:
    """Enqueue a job as a child of the claimed one, under its fence; no child when the answer is a refusal."""
    return Op(
        "enqueue_child",
        "SELECT job_id, generation, verdict, current, state, lease_until, owner, id, created "
        f"FROM fencerow.enqueue_child(%s, %s, %s, {_ARRAYS})",
        [claim.lease, claim.job_id, claim.generation, *_arrays([job])],
        lambda rows: (Answer(*rows[0][:7]), None if rows[0][7] is None else Enqueued(*rows[0][7:])),
        again=job.idempotency_key is not None,
    )


def _claims(lease: int, queue: str, rows: list[Row]) -> list[Claim]:
    return [Claim(lease, queue, *row) for row in rows]


def claim(
    lease: int,
    queue: str,
    *,
    limit: int,
    slots: int | None = None,
    marks: Mapping[int, int] | None = None,
    careful: Sequence[str] = (),
    alone: bool = False,
) -> Op[list[Claim]]:
    """
    Claim up to *limit* jobs of a queue under a lease, in order of priority and age.

    Args:
        slots: How many of them may be jobs that must not wait in a buffer; None: all.
        marks: Watermarks, priority → job id above which to look; None scans the queue from its start.
        careful: Tasks whose jobs must not wait in a buffer.
        alone: Claim one suspect, under a lease opened for suspects.
    """
    order = sorted(marks) if marks else None
    return Op(
        "claim",
        "SELECT * FROM fencerow.claim(%s, %s, %s, %s, %s::smallint[], %s::bigint[], %s::text[], %s)",
        (
            lease,
            queue,
            limit,
            slots,
            int_array(order) if order else None,
            int_array(marks[priority] for priority in order) if order and marks else None,
            list(careful) or None,
            alone,
        ),
        partial(_claims, lease, queue),
        again=False,
    )


def adopt(lease: int, jobs: Sequence[int]) -> Op[list[Claim]]:
    """The claims of tickets that are under our lease and that we do not hold."""
    return Op(
        "adopt",
        "SELECT * FROM fencerow.adopt(%s, %s::bigint[])",
        (lease, int_array(jobs)),
        lambda rows: [Claim(lease, row[-1], *row[:-1]) for row in rows],
        writes=False,
    )


def _answers(rows: list[Row]) -> list[Answer]:
    return [Answer(*row) for row in rows]


_Column = Callable[[Settlement], Any]
_SETTLE_SQL: dict[str, tuple[str, tuple[_Column, ...]]] = {
    "complete": ("%s::text[]::jsonb[]", (lambda s: s.result,)),
    "fail": ("%s::text[], %s::text[]", (lambda s: s.kind, lambda s: s.error)),
    "retry": (
        "%s::text[], %s::text[], %s::interval[]",
        (lambda s: s.kind, lambda s: s.error, lambda s: timedelta(seconds=s.delay)),
    ),
    "snooze": ("%s::interval[], %s::text[]", (lambda s: timedelta(seconds=s.delay), lambda s: s.error)),
    "release": ("", ()),
    "lost": ("%s::text[]", (lambda s: s.error,)),
    "cancelled": ("%s::text[]", (lambda s: s.error,)),
}
"""For each verb: the placeholders after (lease, jobs, generations), and where their values come from."""


def settle(settlements: Sequence[Settlement]) -> Op[list[Answer]]:
    """
    Write outcomes of one verb under one lease; the answers are aligned with them.

    Repeating it exactly is safe: what was accepted is answered ``already``.
    """
    first = settlements[0]
    placeholders, columns = _SETTLE_SQL[first.verb]
    extra = [_given([column(entry) for entry in settlements]) for column in columns]
    return Op(
        first.verb,
        f"SELECT * FROM fencerow.{first.verb}(%s, %s::bigint[], %s::bigint[]{placeholders and ', ' + placeholders})",
        (
            first.claim.lease,
            int_array(entry.claim.job_id for entry in settlements),
            int_array(entry.claim.generation for entry in settlements),
            *extra,
        ),
        _answers,
    )


def by_verb(settlements: Iterable[Settlement]) -> list[list[Settlement]]:
    """Group settlements so that each group fits one settle(): one verb, one lease, in job order."""
    groups: dict[tuple[str, int], list[Settlement]] = defaultdict(list)
    for entry in settlements:
        groups[entry.verb, entry.claim.lease].append(entry)
    return [sorted(group, key=lambda entry: entry.claim.job_id) for group in groups.values()]


def progress(claim: Claim, fraction: float, note: str | None) -> Op[Answer]:
    """Store how far a running job is (0..1)."""
    return Op(
        "progress",
        "SELECT * FROM fencerow.progress(%s, %s, %s, %s::real, %s)",
        (claim.lease, claim.job_id, claim.generation, fraction, note),
        lambda rows: Answer(*rows[0]),
    )


def keep_step(claim: Claim, place: int, name: str, code: str, result: str) -> Op[Answer]:
    """Keep the result of a step (JSON text) for later attempts; raises StepMismatch when another step is kept there."""
    return Op(
        "keep_step",
        "SELECT * FROM fencerow.keep_step(%s, %s, %s, %s, %s, %s, %s)",
        (claim.lease, claim.job_id, claim.generation, place, name, code, result),
        lambda rows: Answer(*rows[0]),
    )


def kept_steps(job_id: int, *, after: int, limit: int) -> Op[list[KeptStep]]:
    """Steps that earlier attempts kept, in their order, above a place."""
    return Op(
        "kept_steps",
        "SELECT place, name, code, result FROM fencerow.kept_steps(%s, %s, %s)",
        (job_id, after, limit),
        lambda rows: [KeptStep(*row) for row in rows],
        writes=False,
    )


def how_ended(job_id: int) -> Op[End | None]:
    """How a job ended; outcome None while it lives, None when there is no such job."""
    return Op(
        "how_ended",
        "SELECT task, outcome, result, error, kind FROM fencerow.how_ended(%s)",
        (job_id,),
        lambda rows: End(*rows[0]) if rows else None,
        writes=False,
    )


def enter(claim: Claim) -> Op[None]:
    """Lock the ticket until the transaction ends; raises ClaimLost. The first statement of ``job.commit()``."""
    return Op(
        "enter", "SELECT fencerow.enter(%s, %s, %s)", (claim.lease, claim.job_id, claim.generation), nothing
    )


def outcome(claim: Claim) -> Op[str]:
    """What became of our settlement: ``accepted``, ``open`` (not settled, still ours) or ``lost``."""
    return Op(
        "outcome",
        "SELECT fencerow.outcome(%s, %s, %s)",
        (claim.lease, claim.job_id, claim.generation),
        scalar,
        writes=False,
    )


def refuse(claim: Claim, op: str, verdict: str, current: int | None) -> Op[None]:
    """Keep a refusal whose row was rolled back together with the transaction that met it."""
    return Op(
        "refuse",
        "SELECT fencerow.refuse(%s, %s, %s, %s, %s, %s)",
        (claim.lease, claim.job_id, claim.generation, op, verdict, current),
        nothing,
        again=False,
    )


def expire(limit: int = 1000) -> Op[list[Lost]]:
    """Take the jobs of ended leases back; any process may."""
    return Op(
        "expire", "SELECT * FROM fencerow.expire(%s)", (limit,), lambda rows: [Lost(*row) for row in rows]
    )


def promote(limit: int = 1000) -> Op[int]:
    """Make due scheduled jobs ready; any process may."""
    return Op("promote", "SELECT fencerow.promote(%s)", (limit,), scalar)


def cancel(job_id: int, by: str | None = None, reason: str | None = None) -> Op[str]:
    """Cancel a job: ``cancelled``, ``requested`` (it runs), the state it ended in before, or ``unknown``."""
    return Op("cancel", "SELECT fencerow.cancel(%s, %s, %s)", (job_id, by, reason), scalar)


def redrive(job_id: int, by: str | None = None) -> Op[str]:
    """failed → ready with a fresh budget: ``ready``, or its state when it is not failed, or ``unknown``."""
    return Op("redrive", "SELECT fencerow.redrive(%s, %s)", (job_id, by), scalar, again=False)


def purge(after: int = 0, limit: int = 1000) -> Op[tuple[int, int | None]]:
    """Delete ended jobs past their retention: (how many, the job id reached or None at the end)."""
    return Op(
        "purge",
        "SELECT purged, reached FROM fencerow.purge(%s, %s)",
        (after, limit),
        lambda rows: (rows[0][0], rows[0][1]),
    )
