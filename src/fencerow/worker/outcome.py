"""What a handler's return or exception means for its job: the settlement to send. Pure; used on the loop and in children."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fencerow import limits, policy
from fencerow.errors import InvalidPayload
from fencerow.job.hold import Hold
from fencerow.task import Task
from fencerow.types import Cancel, Claim, Fail, Retry, Settlement, Snooze, TaskPolicy


def seconds(delay: timedelta | float | int) -> float:
    """A delay that a handler asked for, within its bounds."""
    asked = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    return min(max(0.0, asked), limits.DELAY_SECONDS_MAX)


def text(reason: object) -> str:
    """A reason as it may be stored."""
    return policy.sanitise(str(reason), limits.ERROR_CHARACTERS_MAX)


def policy_of(claim: Claim, task: Task[Any, Any] | None) -> TaskPolicy:
    """The task's policy, or the defaults for a task that this process does not know."""
    return TaskPolicy(claim.task) if task is None else task.policy


def backoff(claim: Claim, task: Task[Any, Any] | None) -> float:
    """Seconds until the next attempt by the task's own back-off."""
    given = policy_of(claim, task)
    return policy.backoff(claim.attempt, base=given.backoff_base, cap=given.backoff_cap)


def returned(claim: Claim, task: Task[Any, Any], value: object) -> Settlement:
    """
    The settlement for what a handler returned.

    A result that cannot be stored ends the job failed (kind invalid): its work is done, and another attempt would do it
    again to fail in the same way.
    """
    match value:
        case None:
            return Settlement(claim, "complete")
        case Retry(delay, reason):
            pause = backoff(claim, task) if delay is None else seconds(delay)
            return Settlement(claim, "retry", error=text(reason or "retry asked for"), delay=pause)
        case Snooze(delay, reason):
            return Settlement(claim, "snooze", error=text(reason) or None, delay=seconds(delay))
        case Fail(reason):
            return Settlement(claim, "fail", error=text(reason or "failed by its handler"))
        case Cancel(reason):
            return Settlement(claim, "cancelled", error=text(reason or "cancelled by its handler"))
    try:
        return Settlement(claim, "complete", result=task.encode_result(value))
    except InvalidPayload as error:
        why = str(error)
    except Exception as error:  # noqa: BLE001 - reading a hostile object; running the job again would not help
        why = f"reading it raises {type(error).__name__}"
    return Settlement(claim, "fail", kind="invalid", error=text(f"the result cannot be stored: {why}"))


def raised(hold: Hold, task: Task[Any, Any] | None, error: BaseException) -> Settlement:
    """
    The settlement for what a handler raised by itself.

    A failure of Fencerow's own connection gives the attempt back (I13); after a refused write there is nothing to decide.
    """
    claim = hold.claim
    if hold.is_ours(error):
        return Settlement(claim, "snooze", error=policy.describe(error), delay=backoff(claim, task))
    if hold.lost is not None:
        return Settlement(claim, "lost", error=f"stopped because a write was refused: {hold.lost}")
    decision = policy.decide(
        error,
        attempt=claim.attempt,
        policy=policy_of(claim, task),
        retry_on=() if task is None else task.retry_on,
        fail_on=() if task is None else task.fail_on,
    )
    return Settlement(claim, decision.verb, kind=decision.kind, error=decision.error, delay=decision.delay)
