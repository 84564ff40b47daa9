"""What is settled for an exception, the back-off, and errors as bounded text."""

import math
import tracemalloc
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencerow import limits
from fencerow.errors import (
    DatabaseUnavailable,
    InvalidInput,
    InvalidPayload,
    ResourceBusy,
    Unavailable,
    UnknownTask,
)
from fencerow.policy import Decision, backoff, decide, describe, sanitise
from fencerow.types import TaskPolicy

POLICY = TaskPolicy("t", backoff_base=2.0, backoff_cap=100.0)


class Hostile(Exception):
    def __str__(self) -> NoReturn:
        raise SystemExit("from __str__")


class HostileArgument:
    def __repr__(self) -> NoReturn:
        raise RuntimeError("from __repr__")


class Declined(ValueError):
    pass


def judged(error: BaseException, **rules: tuple[type[Exception], ...]) -> tuple[str, str]:
    decision = decide(error, attempt=1, policy=POLICY, **rules)  # type: ignore[arg-type]
    return decision.verb, decision.kind


@given(
    attempt=st.integers(-5, 2**31),
    base=st.floats(0.001, 86400),
    cap=st.floats(0.001, 30 * 86400),
    fraction=st.none() | st.floats(0, 1),
)
def test_backoff_stays_between_base_and_cap(
    attempt: int, base: float, cap: float, fraction: float | None
) -> None:
    """C097: finite and capped for any attempt number, never earlier than the base."""
    delay = backoff(attempt, base=base, cap=cap, fraction=fraction)

    assert math.isfinite(delay)
    assert min(base, cap) <= delay <= cap


@given(attempt=st.integers(0, 200), fraction=st.floats(0, 1))
def test_backoff_never_falls_with_the_attempt(attempt: int, fraction: float) -> None:
    """C097: monotone."""
    here = backoff(attempt, base=0.5, cap=3600, fraction=fraction)

    assert here <= backoff(attempt + 1, base=0.5, cap=3600, fraction=fraction)


def test_backoff_spreads_between_a_quarter_and_the_whole() -> None:
    assert [backoff(4, base=2, cap=3600, fraction=fraction) for fraction in (0, 0.5, 1)] == [8, 20, 32]


@pytest.mark.parametrize(
    ("error", "rules", "expected"),
    [
        (ValueError("x"), {}, ("retry", "failed")),
        (TimeoutError("x"), {}, ("retry", "failed")),
        (KeyboardInterrupt(), {}, ("retry", "failed")),
        (InvalidInput("x"), {}, ("fail", "invalid")),
        (InvalidPayload("x"), {}, ("fail", "invalid")),
        (Unavailable("x"), {}, ("retry", "unavailable")),
        (DatabaseUnavailable("x"), {}, ("retry", "unavailable")),
        (UnknownTask("x"), {}, ("retry", "unavailable")),
        (ResourceBusy("x"), {}, ("retry", "failed")),
        (Declined("x"), {"fail_on": (Declined,)}, ("fail", "failed")),
        (Declined("x"), {"fail_on": (Exception,)}, ("fail", "failed")),
        (Declined("x"), {"fail_on": (Exception,), "retry_on": (ValueError,)}, ("retry", "failed")),
        (Declined("x"), {"fail_on": (ValueError,), "retry_on": (Declined,)}, ("retry", "failed")),
        (InvalidInput("x"), {"fail_on": (Exception,)}, ("fail", "invalid")),
        (InvalidInput("x"), {"retry_on": (InvalidInput,)}, ("retry", "failed")),
        (ExceptionGroup("g", [ValueError(), InvalidInput("x")]), {}, ("fail", "invalid")),
        (ExceptionGroup("g", [Unavailable("x"), Unavailable("y")]), {}, ("retry", "unavailable")),
        (ExceptionGroup("g", [Unavailable("x"), ValueError()]), {}, ("retry", "failed")),
        (
            ExceptionGroup("g", [ExceptionGroup("h", [Declined()])]),
            {"fail_on": (Declined,)},
            ("fail", "failed"),
        ),
    ],
    ids=lambda value: repr(value)[:60] if isinstance(value, BaseException) else None,
)
def test_decide_by_the_nearest_class(
    error: BaseException, rules: dict[str, tuple[type[Exception], ...]], expected: tuple[str, str]
) -> None:
    assert judged(error, **rules) == expected


def test_decide_gives_a_delay_to_retries_only() -> None:
    assert decide(ValueError("x"), attempt=2, policy=POLICY, fraction=1.0).delay == 8.0
    assert decide(InvalidInput("x"), attempt=2, policy=POLICY).delay == 0.0
    assert isinstance(decide(ValueError("x"), attempt=2**31, policy=POLICY), Decision)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001
        return caught


def test_describe_tells_class_message_place_and_cause() -> None:
    def inner() -> None:
        raise KeyError("missing")

    def outer() -> None:
        try:
            inner()
        except KeyError as cause:
            raise Declined("card") from cause

    with pytest.raises(Declined) as caught:
        outer()
    caught.value.add_note("order 7")

    lines = describe(caught.value).splitlines()
    assert lines[0].endswith("test_policy.Declined: card")
    assert lines[1] == "note: order 7"
    assert "test_policy.py:" in lines[3]
    assert any(line.startswith("caused by KeyError: 'missing'") for line in lines)
    assert lines[-1].endswith("inner")


@pytest.mark.parametrize(
    "error",
    [
        raised(ValueError("x" * 50_000_000)),
        raised(ValueError("\0" * 50_000_000)),
        raised(ValueError("a", "x" * 50_000_000, b"x" * 50_000_000)),
        raised(KeyError("x" * 50_000_000)),
        raised(OSError(2, "x" * 50_000_000)),
        raised(Hostile()),
        raised(ValueError(HostileArgument())),
        raised(ValueError(HostileArgument(), 1)),
        raised(ValueError("\ud800\x1b[31m\x85")),
        raised(type("X" * 100_000, (Exception,), {})("x")),
        raised(ExceptionGroup("g" * 100_000, [ValueError("x" * 100_000)] * 10_000)),
        raised(SystemExit(3)),
    ],
    ids=["huge", "nul", "args", "key", "os", "str", "repr", "reprs", "control", "name", "group", "exit"],
)
def test_describe_is_bounded_and_storable(error: BaseException) -> None:
    """Bad input 24: what a handler raises is told in at most 8 KiB of text that PostgreSQL takes."""
    tracemalloc.start()
    told = describe(error)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert 0 < len(told) <= limits.ERROR_CHARACTERS_MAX
    assert not {
        c
        for c in told
        if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000
    }
    assert told.encode()
    assert peak < 1_000_000  # the whole of a huge message is never copied


def test_describe_ends_when_errors_cause_each_other() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first

    assert describe(first) == "ValueError: first\ncaused by ValueError: second"


def test_describe_keeps_the_innermost_frames_of_a_deep_recursion() -> None:
    def deeper(n: int) -> None:
        if n == 0:
            raise ValueError("bottom")
        deeper(n - 1)

    with pytest.raises(ValueError, match="bottom") as caught:
        deeper(500)

    assert describe(caught.value).count("deeper") == 12


@given(st.text(), st.integers(1, 50))
def test_sanitise_never_exceeds_its_limit(text: str, limit: int) -> None:
    shown = sanitise(text, limit)

    assert len(shown) <= limit
    assert "\0" not in shown
