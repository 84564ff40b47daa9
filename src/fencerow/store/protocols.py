"""
Protocols of several operations, as generators that yield instructions and receive answers or errors. No I/O here.

An uncertain write is resolved by sending the same thing again, never by looking whether it is there: a look-up that finds
nothing proves nothing while the first transaction may still commit; the repeated write waits for it (I11).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from fencerow.errors import (
    ClaimLost,
    CommitUncertain,
    DatabaseUnavailable,
    DeadlineExceeded,
    FencerowError,
    OperatorCancelled,
    OutOfResources,
    ReadOnly,
    ResourceBusy,
    StoreError,
)
from fencerow.ops import jobs
from fencerow.ops.base import Op
from fencerow.types import Answer, Claim, Settlement

T = TypeVar("T")

RESOLVE_TRIES = 12
RESOLVE_PAUSE_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
MAY_PASS = (DatabaseUnavailable, ResourceBusy, DeadlineExceeded, CommitUncertain, ReadOnly)
"""Errors during which an earlier uncertain write stays undecided, so that asking again makes sense."""

INFRASTRUCTURE = (*MAY_PASS, OperatorCancelled, OutOfResources)
"""Errors that say nothing about a job: raised by Fencerow's own statements they are not charged to it (I13)."""

VERDICTS = ("unknown", "superseded", "cancelled", "settled", "expired")
"""Refusals that the database gave; other reasons were met before anything was sent, and leave no row."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait *seconds* before going on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Begin:
    """Open a READ COMMITTED transaction on the protocol's own connection."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit it; a lost reply is CommitUncertain."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """Roll it back; a lost connection has done that already."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The user's statements run now; an exception in them is thrown into the protocol."""


@dataclass(frozen=True, slots=True)
class Inside:
    """Run an operation inside the open transaction."""

    op: Op[Any]


Instruction = Op[Any] | Pause | Begin | Commit | Rollback | Turn | Inside
Protocol = Generator[Instruction, Any, T]


def resolved(op: Op[T]) -> Protocol[T]:
    """
    Run an operation; after a lost reply run it again until its answer is known.

    Raises:
        CommitUncertain: the reply was lost and the operation cannot be repeated, or the database stayed away.
    """
    try:
        return (yield op)  # type: ignore[no-any-return]
    except CommitUncertain as uncertain:
        if not op.again:
            raise
        return (yield from _ask_again(op, uncertain))


def _ask_again(op: Op[T], uncertain: CommitUncertain) -> Protocol[T]:
    for round_ in range(RESOLVE_TRIES):
        yield Pause(RESOLVE_PAUSE_SECONDS[min(round_, len(RESOLVE_PAUSE_SECONDS) - 1)])
        try:
            return (yield op)  # type: ignore[no-any-return]
        except MAY_PASS:
            continue
    raise CommitUncertain(f"{op.name}: still undecided after {RESOLVE_TRIES} tries") from uncertain


def ask_until_decided(op: Op[T]) -> Protocol[T]:
    """Ask while an open transaction holds the answer back or the database is away. Raises the last error of RESOLVE_TRIES."""
    for pause in range(RESOLVE_TRIES):
        try:
            return (yield op)  # type: ignore[no-any-return]
        except MAY_PASS:
            yield Pause(RESOLVE_PAUSE_SECONDS[min(pause, len(RESOLVE_PAUSE_SECONDS) - 1)])
    return (yield op)  # type: ignore[no-any-return]


def refused(claim: Claim, answer: Answer) -> ClaimLost:
    """The error for a refusing answer."""
    return ClaimLost(
        f"the claim of job {claim.job_id} generation {claim.generation} is lost: {answer.verdict}",
        verdict=answer.verdict,
        current=answer.current,
        state=answer.state,
        lease_until=answer.lease_until,
        owner=answer.owner,
    )


@dataclass(slots=True)
class CommitWish:
    """What ``job.commit()`` settles with; the user sets ``result`` (JSON text) during his turn."""

    claim: Claim
    result: str | None = None


def commit_job(wish: CommitWish) -> Protocol[None]:
    """
    ``job.commit()`` on a connection of our own: lock the ticket, let the user write, settle as the last statement.

    The refusal that aborts the transaction takes its own refusal row with it, so that row is written afterwards.

    Raises:
        ClaimLost: the claim was lost before, during or at the end; nothing of the transaction remains.
        CommitUncertain: COMMIT was sent and its effect could not be learnt.
    """
    claim = wish.claim
    yield Begin()
    try:
        yield Inside(jobs.enter(claim))
        yield Turn()
        answer: Answer = (yield Inside(jobs.settle([Settlement(claim, "complete", result=wish.result)])))[0]
        if not answer.accepted:
            raise refused(claim, answer)
    except GeneratorExit:
        raise
    except BaseException as error:
        yield Rollback()
        if isinstance(error, ClaimLost) and error.verdict in VERDICTS:
            yield from _keep_refusal(claim, error)
        raise
    try:
        yield Commit()
    except CommitUncertain as uncertain:
        yield from _learn_outcome(claim, uncertain)


def _keep_refusal(claim: Claim, lost: ClaimLost) -> Protocol[None]:
    try:
        yield jobs.refuse(claim, "commit", lost.verdict, lost.current)
    except FencerowError:
        pass  # the refusal stands without its row; the handler is told in any case


def _learn_outcome(claim: Claim, uncertain: CommitUncertain) -> Protocol[None]:
    try:
        state = yield from _ask_again(jobs.outcome(claim), uncertain)
    except StoreError as error:
        raise CommitUncertain("job.commit: COMMIT was sent and its effect could not be learnt") from error
    match state:
        case "accepted":
            return
        case "open":
            raise DatabaseUnavailable(
                "job.commit: the connection was lost and nothing was committed"
            ) from uncertain
        case _:
            raise ClaimLost(
                f"the claim of job {claim.job_id} generation {claim.generation} was lost while COMMIT was under way",
                verdict="expired",
            ) from uncertain
