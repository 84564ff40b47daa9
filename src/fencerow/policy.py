"""
From an exception to what is settled for it, the back-off between attempts, and an error as bounded text. Pure.

Whether a job is exhausted is decided in SQL (``fate``), for outcomes of a live handler and for losses alike.
"""

from __future__ import annotations

import random
import re
import reprlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from fencerow import limits
from fencerow.errors import InvalidInput, InvalidPayload, StepMismatch, Unavailable, UnknownTask
from fencerow.types import FailureKind, Seconds, TaskPolicy

EXPONENT_MAX = 40
FRAMES_MAX = 12
CHAIN_MAX = 5
GROUP_MAX = 8
LEAVES_MAX = 100
MESSAGE_CHARACTERS_MAX = 4000
NAME_CHARACTERS_MAX = 200

ErrorClasses = tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What to settle for an exception: ``verb`` fail or retry; ``delay`` seconds until the next attempt (retry)."""

    verb: Literal["fail", "retry"]
    kind: FailureKind
    delay: Seconds
    error: str


def backoff(attempt: int, *, base: Seconds, cap: Seconds, fraction: float | None = None) -> Seconds:
    """
    Seconds before the next attempt: between a quarter of ``base * 2**attempt`` and all of it, never over *cap*.

    The twin of sql/rules/backoff.sql. The exponent is bounded before it is used, so no attempt number can overflow.

    Args:
        fraction: point between the two ends, 0..1; None draws one at random.
    """
    if fraction is None:
        fraction = random.random()  # noqa: S311 (spreads load, guards nothing)
    high = min(cap, base * 2.0 ** min(max(attempt, 0), EXPONENT_MAX))
    low = min(high, max(base, high / 4))
    return low + (high - low) * min(max(fraction, 0.0), 1.0)


def decide(
    error: BaseException,
    *,
    attempt: int,
    policy: TaskPolicy,
    retry_on: ErrorClasses = (),
    fail_on: ErrorClasses = (),
    fraction: float | None = None,
) -> Decision:
    """
    What to settle when a handler raised *error* in its *attempt* (from 1).

    The class nearest to the error in its method resolution order decides: a class in *fail_on* fails, one in *retry_on*
    retries, InvalidInput, InvalidPayload, StepMismatch fail as ``invalid``, Unavailable and UnknownTask retry as
    ``unavailable``. All else is retried. An exception group is judged by what it holds: one failing member fails it, and
    it is unavailable when all of them are.
    """
    verb, kind = _judge(error, retry_on, fail_on)
    delay = 0.0
    if verb == "retry":
        delay = backoff(attempt, base=policy.backoff_base, cap=policy.backoff_cap, fraction=fraction)
    return Decision(verb, kind, delay, describe(error))


_Judgement = tuple[Literal["fail", "retry"], FailureKind]
_OTHERWISE: _Judgement = ("retry", "failed")


def _judge(error: BaseException, retry_on: ErrorClasses, fail_on: ErrorClasses) -> _Judgement:
    found = _judge_class(error, retry_on, fail_on)
    if found is not None or not isinstance(error, BaseExceptionGroup):
        return found or _OTHERWISE
    members = [_judge_class(leaf, retry_on, fail_on) or _OTHERWISE for leaf in _leaves(error)]
    for judgement in members:
        if judgement[0] == "fail":
            return judgement
    if members and all(judgement == ("retry", "unavailable") for judgement in members):
        return ("retry", "unavailable")
    return _OTHERWISE


def _judge_class(error: BaseException, retry_on: ErrorClasses, fail_on: ErrorClasses) -> _Judgement | None:
    for kind in type(error).__mro__:
        if kind in fail_on:
            return ("fail", "failed")
        if kind in retry_on:
            return ("retry", "failed")
        if kind in (InvalidInput, InvalidPayload, StepMismatch):
            return ("fail", "invalid")
        if kind in (Unavailable, UnknownTask):
            return ("retry", "unavailable")
    return None


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The members of a group and its subgroups, at most LEAVES_MAX steps, each once."""
    open_: list[BaseException] = [group]
    seen: set[int] = set()
    while open_ and len(seen) < LEAVES_MAX:
        error = open_.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        if isinstance(error, BaseExceptionGroup):
            open_.extend(reversed(error.exceptions[:LEAVES_MAX]))
        else:
            yield error


def describe(error: BaseException) -> str:
    """
    An exception as text of at most ERROR_CHARACTERS_MAX characters: what, where (innermost frame last), caused by what.

    The first line is ``Class: message``. NUL, lone surrogates and control characters except newline and tab are written
    as escapes. Its cost is bounded whatever the error holds: hostile ``__str__``, cycles, huge messages and groups.
    """
    lines: list[str] = []
    seen: set[int] = set()
    link: BaseException | None = error
    head = ""
    while link is not None and id(link) not in seen and len(seen) < CHAIN_MAX:
        _tell(link, lines, seen, head=head, indent="")
        if link.__cause__ is not None:
            link, head = link.__cause__, "caused by "
        elif link.__suppress_context__:
            link = None
        else:
            link, head = link.__context__, "while handling "
    return sanitise("\n".join(lines), limits.ERROR_CHARACTERS_MAX)


def _tell(error: BaseException, lines: list[str], seen: set[int], *, head: str, indent: str) -> None:
    if id(error) in seen:
        return
    seen.add(id(error))
    message = _message(error)
    lines.append(f"{indent}{head}{_class_name(error)}" + (f": {message}" if message else ""))
    lines.extend(f"{indent}note: {note}" for note in _notes(error))
    lines.extend(f"{indent}  at {place}" for place in _places(error.__traceback__))
    if isinstance(error, BaseExceptionGroup) and len(indent) < 6:
        for member in error.exceptions[:GROUP_MAX]:
            _tell(member, lines, seen, head="- ", indent=indent + "  ")
        if len(error.exceptions) > GROUP_MAX:
            lines.append(f"{indent}  and {len(error.exceptions) - GROUP_MAX} more")


def _class_name(error: BaseException) -> str:
    kind = type(error)
    module, name = str(kind.__module__), str(kind.__qualname__)[:NAME_CHARACTERS_MAX]
    return name if module in ("builtins", "__main__") else f"{module[:NAME_CHARACTERS_MAX]}.{name}"


class _Bounded(reprlib.Repr):
    """repr() that reads at most a few hundred characters of strings and bytes, and a few entries of containers."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 200

    def repr_bytes(self, value: bytes, level: int) -> str:  # noqa: ARG002 (reprlib calls it with both)
        return repr(value[:50]) + ("…" if len(value) > 50 else "")

    repr_bytearray = repr_bytes


_bounded = _Bounded()


def _message(error: BaseException) -> str:
    """Like str(error), but the built-in forms, which would copy the whole of a huge argument, are made from cut parts."""
    try:
        form, arguments = type(error).__str__, error.args
        if form is OSError.__str__ and isinstance(error, OSError) and error.errno is not None:
            place = "" if error.filename is None else f": {_bounded.repr(error.filename)}"
            return f"[Errno {error.errno}] {_text(error.strerror)}{place}"
        if form not in (BaseException.__str__, KeyError.__str__, OSError.__str__):
            return str.__getitem__(str(error), slice(MESSAGE_CHARACTERS_MAX))
        if len(arguments) == 1 and form is not KeyError.__str__:
            return _text(arguments[0])
        return ", ".join(_bounded.repr(argument) for argument in arguments[:10])[:MESSAGE_CHARACTERS_MAX]
    except BaseException:  # noqa: BLE001 (whatever a hostile __str__ raises says nothing about the worker)
        return "(its message cannot be shown: __str__ raises)"


def _text(argument: object) -> str:
    shown = argument if type(argument) is str else _bounded.repr(argument)
    return shown[:MESSAGE_CHARACTERS_MAX]


def _notes(error: BaseException) -> list[str]:
    notes = getattr(error, "__notes__", None)
    if not isinstance(notes, list):
        return []
    return [note[:NAME_CHARACTERS_MAX] for note in notes[:3] if type(note) is str]


def _places(trace: TracebackType | None) -> Sequence[str]:
    """The innermost FRAMES_MAX frames of a traceback, outermost first."""
    found: deque[tuple[TracebackType, int]] = deque(maxlen=FRAMES_MAX)
    while trace is not None:
        found.append((trace, trace.tb_lineno))
        trace = trace.tb_next
    return [
        f"{code.co_filename[-NAME_CHARACTERS_MAX:]}:{line} in {code.co_qualname[:NAME_CHARACTERS_MAX]}"
        for code, line in ((part.tb_frame.f_code, line) for part, line in found)
    ]


_UNSTORABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def sanitise(text: str, limit: int) -> str:
    """*text* as PostgreSQL can store it and a terminal can show it, cut to *limit* characters, with a mark if cut."""
    shown = _UNSTORABLE.sub(_escape, text[:limit])
    return shown if len(shown) <= limit and len(text) <= limit else shown[: limit - 1] + "…"
