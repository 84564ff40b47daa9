"""What may be said of a task or a job beside its arguments, checked in one place: types, bounds, contradictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final, Literal, get_args

from fencerow import codec, limits, names
from fencerow.errors import ConfigError, InvalidValue
from fencerow.policy import ErrorClasses
from fencerow.types import NewJob, OnConflict, OnLost, TaskPolicy, Unique

DURATION_MIN: Final = 0.001
BACKOFF_BASE_MAX: Final = 86400.0
BACKOFF_CAP_MAX: Final = 30 * 86400.0
KEEP_MAX: Final = 3650 * 86400.0
RUN_AT_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
RUN_AT_LAST: Final = datetime(9000, 1, 1, tzinfo=UTC)


class Unset(Enum):
    """Stands for an argument that was not given, where None means something."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


def seconds(value: object, what: str, *, least: float, most: float) -> float:
    """
    A duration as seconds.

    Raises:
        InvalidValue: neither a timedelta nor a number (a bool is none), or outside *least* … *most* seconds.
    """
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value) if abs(value) < 1e300 else math.inf
    else:
        raise InvalidValue(
            f"{what} is of type {type(value).__name__}", hint="Give a timedelta or a number of seconds."
        )
    if not least <= number <= most:
        raise InvalidValue(f"{what} is out of range", hint=f"Give {_shown(least)} to {_shown(most)} seconds.")
    return number


def _shown(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def integer(value: object, what: str, *, least: int, most: int) -> int:
    """A whole number; a bool or a string is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidValue(f"{what} is of type {type(value).__name__}", hint="Give a whole number.")
    if not least <= value <= most:
        raise InvalidValue(f"{what} is out of range", hint=f"Give {least} to {most}.")
    return int(value)


def check_job_id(value: object) -> int:
    """A job's id: 1 … 2^63 - 1."""
    return integer(value, "the job's id", least=1, most=limits.INT64_MAX)


def one_of(value: object, what: str, choices: tuple[str, ...]) -> Any:
    """*value* if it is one of *choices*."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidValue(f"{what} is not possible", hint=f"Give one of {', '.join(choices)}.")
    return value


def check_priority(value: object) -> int:
    """A priority; lower runs sooner."""
    return integer(value, "priority", least=limits.PRIORITY_MIN, most=limits.PRIORITY_MAX)


def check_attempts(value: object) -> int:
    """max_attempts."""
    return integer(value, "max_attempts", least=1, most=limits.ATTEMPTS_MAX)


def check_timeout(value: object) -> float:
    """A timeout in seconds."""
    return seconds(value, "timeout", least=DURATION_MIN, most=limits.TIMEOUT_SECONDS_MAX)


def check_run_in(value: object) -> float:
    """A delay in seconds."""
    return seconds(value, "run_in", least=0, most=limits.DELAY_SECONDS_MAX)


def check_on_lost(value: object) -> Any:
    """on_lost."""
    return one_of(value, "on_lost", get_args(OnLost))


def check_run_at(value: object) -> datetime:
    """
    An instant in UTC.

    Raises:
        InvalidValue: it has no time zone (whose noon?), or lies outside the years 1970 … 8999.
    """
    if not isinstance(value, datetime):
        raise InvalidValue(
            f"run_at is of type {type(value).__name__}", hint="Give a datetime with a time zone."
        )
    # Years first: converting datetime.min or max to UTC may overflow, and so may the offset of a value that is no time.
    if not RUN_AT_FIRST.year - 1 <= value.year <= RUN_AT_LAST.year:
        raise InvalidValue("run_at is out of range", hint="Give a time between the years 1970 and 8999.")
    if value.utcoffset() is None:
        raise InvalidValue("run_at has no time zone", hint="Give one, as datetime.now(UTC) has.")
    moment = value.astimezone(UTC)
    if not RUN_AT_FIRST <= moment < RUN_AT_LAST:
        raise InvalidValue("run_at is out of range", hint="Give a time between the years 1970 and 8999.")
    return moment


def check_unique(value: object) -> Unique:
    """A Unique whose key, span and conflict rule are possible."""
    if not isinstance(value, Unique):
        raise InvalidValue(f"unique is of type {type(value).__name__}", hint='Give Unique("key").')
    names.check_key(value.key, "a unique key")
    one_of(value.on_conflict, "on_conflict of Unique", get_args(OnConflict))
    if isinstance(value.until, str):
        one_of(value.until, "until of Unique", ("finished", "started"))
    else:
        seconds(value.until, "until of Unique", least=DURATION_MIN, most=limits.DELAY_SECONDS_MAX)
    return value


def check_headers(value: object) -> Mapping[str, str]:
    """Headers: a mapping of strings to strings, at most HEADERS_BYTES_MAX as JSON."""
    if not isinstance(value, Mapping) or not all(isinstance(entry, str) for entry in value.values()):
        raise InvalidValue("headers are not a mapping of strings to strings", hint='Give {"name": "value"}.')
    plain = dict(value)
    codec.encode(plain, limit=limits.HEADERS_BYTES_MAX, what="headers")
    return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What ``using()`` adds to one job, checked. ``connection``: the caller's own, whose transaction decides."""

    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    run_in: float | None = None
    unique: Unique | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    on_lost: OnLost | None = None
    tags: Sequence[str] | None = None
    headers: Mapping[str, str] | None = None
    idempotency_key: str | None = None
    connection: object | None = None

    def job(self, policy: TaskPolicy, payload: str) -> NewJob:
        """The job that these options and a payload make; queue and priority are the task's own unless given here."""
        return NewJob(
            policy.name,
            payload,
            queue=policy.queue if self.queue is None else self.queue,
            priority=policy.priority if self.priority is None else self.priority,
            run_at=self.run_at,
            run_in=self.run_in,
            max_attempts=self.max_attempts,
            timeout=self.timeout,
            on_lost=self.on_lost,
            tags=self.tags,
            headers=self.headers,
            idempotency_key=self.idempotency_key,
            unique=self.unique,
        )


NONE = Options()


def given(**options: Any) -> Options:
    """
    Check the arguments of ``using()``; None or UNSET: not given.

    Raises:
        InvalidName, InvalidValue, InvalidPayload: which one, and what is possible.
    """
    if options.get("timeout", UNSET) is None:
        raise InvalidValue(
            "one job cannot lift its task's timeout",
            hint="Write timeout=None at @app.task, or give a duration.",
        )
    checks: dict[str, Callable[[object], object]] = {
        "queue": names.check_queue,
        "priority": check_priority,
        "run_at": check_run_at,
        "run_in": check_run_in,
        "unique": check_unique,
        "max_attempts": check_attempts,
        "timeout": check_timeout,
        "on_lost": check_on_lost,
        "tags": names.check_tags,
        "headers": check_headers,
        "idempotency_key": names.check_key,
    }
    checked: dict[str, Any] = {}
    for name, value in options.items():
        if value is not None and value is not UNSET:
            checked[name] = checks[name](value) if name in checks else value
    if "run_at" in checked and "run_in" in checked:
        raise InvalidValue("run_at and run_in were both given", hint="Give one of them.")
    return Options(**checked)


def policy(
    name: str,
    *,
    queue: object = "default",
    priority: object = limits.PRIORITY_DEFAULT,
    max_attempts: object = limits.ATTEMPTS_DEFAULT,
    timeout: object = limits.TIMEOUT_SECONDS_DEFAULT,
    on_lost: object = "retry",
    backoff: object = (limits.BACKOFF_BASE_SECONDS, limits.BACKOFF_CAP_SECONDS),
    keep: object = limits.KEEP_SECONDS_DEFAULT,
    keep_failed: object = limits.KEEP_FAILED_SECONDS_DEFAULT,
) -> TaskPolicy:
    """The policy of a task, checked; durations become seconds, a timeout of None stays: no limit."""
    if not isinstance(backoff, tuple) or len(backoff) != 2:
        raise InvalidValue("backoff is not a pair", hint="Give (base, cap), as (2, 3600).")
    base = seconds(backoff[0], "the base of backoff", least=DURATION_MIN, most=BACKOFF_BASE_MAX)
    cap = seconds(backoff[1], "the cap of backoff", least=DURATION_MIN, most=BACKOFF_CAP_MAX)
    if base > cap:
        raise InvalidValue("the base of backoff is above its cap", hint="Give (base, cap), as (2, 3600).")
    return TaskPolicy(
        names.check_task(name),
        queue=names.check_queue(queue),
        priority=check_priority(priority),
        max_attempts=check_attempts(max_attempts),
        on_lost=check_on_lost(on_lost),
        backoff_base=base,
        backoff_cap=cap,
        timeout=None if timeout is None else check_timeout(timeout),
        keep=seconds(keep, "keep", least=0, most=KEEP_MAX),
        keep_failed=seconds(keep_failed, "keep_failed", least=0, most=KEEP_MAX),
    )


Executor = Literal["async", "thread", "process"]


def check_executor(value: object, *, is_async: bool) -> Executor:
    """Where a handler runs; None: on the loop if it is async, else in a thread."""
    fitting: Literal["async", "thread"] = "async" if is_async else "thread"
    if value is None:
        return fitting
    one_of(value, "executor", get_args(Executor))
    if value == "process":
        return "process"
    if value != fitting:
        kind = "an async" if is_async else "a sync"
        raise ConfigError(
            f'executor="{value}" does not fit {kind} handler', hint=f'Use executor="{fitting}".'
        )
    return fitting


def check_memory(value: object, *, executor: Executor) -> int | None:
    """Bytes of address space that a job may use; None: no bound. Only a process can be bounded."""
    if value is None:
        return None
    if executor != "process":
        raise ConfigError("memory bounds a process", hint='Write executor="process" beside it.')
    return integer(value, "memory", least=limits.MEMORY_BYTES_MIN, most=limits.INT64_MAX)


def check_error_classes(value: object, what: str) -> ErrorClasses:
    """Exception classes as a tuple; one class may stand alone."""
    classes: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in classes):
        raise InvalidValue(f"{what} holds something that is no Exception class", hint="Give (ValueError, …).")
    return classes
