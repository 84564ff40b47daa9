"""Values on the command line: durations, times, ids, queues with their concurrency, JSON objects."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, NoReturn

import typer

from fencerow import limits
from fencerow.errors import InvalidPayload, PayloadTooDeep

_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)?")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}
_UNESCAPED = re.compile(r"(?:[^\\,]|\\.)*", re.DOTALL)


def duration(text: str | float) -> float:
    """Seconds of ``500ms``, ``10s``, ``10m``, ``2h``, ``1d`` or a plain number of seconds."""
    if isinstance(text, int | float):
        return float(text)  # a default value
    found = _DURATION.fullmatch(text)
    if found is None:
        raise typer.BadParameter(
            "a duration is a number with ms, s, m, h or d, as 500ms, 10s, 10m, 2h, 1d; alone: seconds"
        )
    return float(found[1]) * _UNIT_SECONDS[found[2]]


def delay(text: str | float) -> float:
    """A duration of at most a year."""
    seconds = duration(text)
    if seconds > limits.DELAY_SECONDS_MAX:
        raise typer.BadParameter(f"at most {limits.DELAY_SECONDS_MAX / 86400:.0f}d")
    return seconds


def lease_length(text: str | float) -> float:
    """A duration that a lease may have."""
    seconds = duration(text)
    if not limits.LEASE_SECONDS_MIN <= seconds <= limits.LEASE_SECONDS_MAX:
        raise typer.BadParameter(
            f"a lease is {limits.LEASE_SECONDS_MIN:.0f}s to {limits.LEASE_SECONDS_MAX / 3600:.0f}h: "
            "shorter ones end while their worker is alive, longer ones keep the jobs of a dead one"
        )
    return seconds


def grace_length(text: str | float) -> float:
    """A duration of at most a day."""
    seconds = duration(text)
    if seconds > 86400:
        raise typer.BadParameter("at most 1d")
    return seconds


def instant(text: str | datetime) -> datetime:
    """An ISO 8601 time with a time zone, as 2027-01-31T08:00:00Z or 2027-01-31 09:00+01:00."""
    if isinstance(text, datetime):
        return text
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter("a time is ISO 8601, as 2027-01-31T08:00:00Z") from None
    if at.tzinfo is None:
        raise typer.BadParameter("a time needs its zone: end it in Z for UTC or in an offset as +01:00")
    if not 1970 < at.year < 9000:
        raise typer.BadParameter("a time lies in the years 1971 to 8999")
    return at


def job_id(text: str | int) -> int:
    """A job id: 1 .. 2^63 - 1."""
    digits = str(text)
    if not (
        digits.isascii() and digits.isdigit() and len(digits) <= 19 and 1 <= int(digits) <= limits.INT64_MAX
    ):
        raise typer.BadParameter("a job id is a whole number from 1 on")
    return int(digits)


def name(text: str, what: str, longest: int) -> str:
    """A name as the database accepts it: 1 to *longest* characters without control characters."""
    if not 1 <= len(text) <= longest or any(
        ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in text
    ):
        raise typer.BadParameter(f"a {what} has 1 to {longest} characters, none of them a control character")
    return text


def queue_name(text: str) -> str:
    """The name of a queue."""
    return name(text, "queue name", limits.QUEUE_NAME_MAX)


def task_name(text: str) -> str:
    """The name of a task."""
    return name(text, "task name", limits.TASK_NAME_MAX)


def queues(texts: list[str]) -> tuple[tuple[str, int | None], ...]:
    """
    Queues with their concurrency, from ``mail:10,default:4`` or a repeated option.

    A comma separates, and the last colon with digits after it is the concurrency; without it the queue shares the
    worker's. A backslash takes the meaning from what follows it: ``a\\,b`` is the queue a,b and ``c\\:1`` is c:1.
    """
    found: dict[str, int | None] = {}
    for text in texts:
        for entry in _entries(text):
            queue, most = _entry(entry)
            if queue in found:
                raise typer.BadParameter("a queue is named twice")
            found[queue] = most
    return tuple(found.items())


def _entries(text: str) -> list[str]:
    entries, at = [], 0
    while True:
        found = _UNESCAPED.match(text, at)
        end = at if found is None else found.end()
        entries.append(text[at:end])
        if end == len(text):
            return entries
        if text[end] != ",":
            raise typer.BadParameter("a backslash at the end escapes nothing")
        at = end + 1


def _entry(entry: str) -> tuple[str, int | None]:
    counted = re.fullmatch(r"((?:[^\\]|\\.)*):([0-9]+)", entry, re.DOTALL)
    queue = queue_name(re.sub(r"\\(.)", r"\1", counted[1] if counted else entry, flags=re.DOTALL))
    if counted is None:
        return queue, None
    most = int(counted[2][:10])
    if not 1 <= most <= limits.CONCURRENCY_MAX:
        raise typer.BadParameter(f"the concurrency of a queue is 1 to {limits.CONCURRENCY_MAX}")
    return queue, most


def json_object(text: str) -> dict[str, Any]:
    """
    A payload typed on the command line.

    Raises:
        InvalidPayload: it is no JSON object, or a key stands twice in one object. The message has the position and
            never the content.
    """
    try:
        value = json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidPayload(
            f"the payload is no JSON: {error.msg}, {place} of {len(text)} characters",
            hint="Give one JSON object, quoted.",
        ) from None
    except RecursionError:
        raise PayloadTooDeep(f"the payload nests deeper than {limits.PAYLOAD_DEPTH_MAX}") from None
    except ValueError as error:
        if isinstance(error, InvalidPayload):
            raise
        raise InvalidPayload(
            "the payload holds a number with too many digits", hint="Send it as a string."
        ) from None
    if not isinstance(value, dict):
        raise InvalidPayload("the payload is no JSON object", hint="Give the task's arguments by name.")
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for index, (word, value) in enumerate(pairs):
        if word in found:
            # Key names may be data too, so the message counts instead of quoting.
            raise InvalidPayload(
                f"key number {index + 1} of an object stands in it twice", hint="Remove one of them."
            )
        found[word] = value
    return found


def _constant(_: str) -> NoReturn:
    raise InvalidPayload(
        "the payload holds NaN or Infinity, which JSON has not", hint="Send null or a string."
    )
