"""JSON text: plain values come back as they were, all others are refused with their place."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencerow.codec import canonical, decode, encode
from fencerow.errors import InvalidPayload, PayloadTooDeep, PayloadTooLarge

LIMIT = 10_000
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=15,
)


class Color(enum.Enum):
    RED = "red"


class Word(str):
    __slots__ = ()


class Number(enum.IntEnum):
    ONE = 1


@dataclasses.dataclass
class Point:
    x: int


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@given(PLAIN)
def test_encode_and_decode_give_the_same_value_and_types(value: Any) -> None:
    """C117: what is enqueued is what the handler gets."""
    got = decode(encode(value, limit=10_000_000))

    assert got == value
    assert repr(got) == repr(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_encode_writes_floats_that_jsonb_gives_back_as_floats(value: float) -> None:
    """jsonb drops exponents: 1e22 would come back as an integer if it were written so."""
    text = encode(value, limit=LIMIT)

    assert float(text) == value
    assert "." in text or "e-" in text


@pytest.mark.parametrize(
    ("value", "path", "told"),
    [
        ({"a": "x\0"}, "$.a", "U+0000"),
        ({"k\0": 1}, '$["k\\u0000"]', "U+0000"),
        ({"a": [1, {"b": "\ud800"}]}, "$.a[1].b", "surrogate"),
        ({"\udfff": 1}, '$["\\udfff"]', "surrogate"),
        ({"x": float("nan")}, "$.x", "NaN"),
        ({"x": [float("inf")]}, "$.x[0]", "NaN or Infinity"),
        ({"x": [-float("inf")]}, "$.x[0]", "NaN or Infinity"),
        (2**63, "$", "64 bits"),
        ([-(2**63) - 1], "$[0]", "64 bits"),
        ({1: 2}, "$", "key of type int"),
        ({None: 2}, "$", "key of type NoneType"),
        ({Color.RED: 2}, "$", "key of type Color"),
        ((1, 2), "$", "type tuple"),
        ({"a": {1}}, "$.a", "type set"),
        (b"abc", "$", "type bytes"),
        (decimal.Decimal("1.5"), "$", "type Decimal"),
        (decimal.Decimal("NaN"), "$", "type Decimal"),
        (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "$", "type datetime"),
        (uuid.UUID(int=1), "$", "type UUID"),
        (Color.RED, "$", "type Color"),
        (Number.ONE, "$", "type Number"),
        (Point(1), "$", "type Point"),
        (object(), "$", "type object"),
        (1j, "$", "type complex"),
        ([{"a b": object()}], '$[0]["a b"]', "type object"),
        ({"k" * 100: object()}, '$["' + "k" * 40 + '"]', "type object"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else ascii(value)[1:-1],
)
def test_encode_refuses_with_the_path(value: Any, path: str, told: str) -> None:
    """C092, C093, C117 and bad inputs 1-4, 9."""
    with pytest.raises(InvalidPayload, match=told.replace("+", r"\+")) as caught:
        encode(value, limit=LIMIT)

    assert caught.value.path == path


def test_encode_leaves_emoji_and_backslashes_alone() -> None:
    """C092: U+1F600 and a literal backslash-u0000 are no faults."""
    value = {"a": "\U0001f600", "b": "\\u0000", "": "empty key"}

    assert decode(encode(value, limit=LIMIT)) == value


def test_encode_takes_subclasses_as_their_base() -> None:
    class Ten(int):
        pass

    class Half(float):
        pass

    assert decode(encode([Word("a"), Ten(10), Half(0.5)], limit=LIMIT)) == ["a", 10, 0.5]
    with pytest.raises(InvalidPayload, match="NaN"):
        encode(Half("nan"), limit=LIMIT)


def test_encode_refuses_more_than_64_levels() -> None:
    """C120: a stated depth, and a value that holds itself ends there too."""
    assert encode(nested(64), limit=LIMIT)
    for deep in (nested(65), nested(20_000)):
        with pytest.raises(PayloadTooDeep, match="64 levels"):
            encode(deep, limit=LIMIT)
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(PayloadTooDeep):
        encode(ring, limit=LIMIT)


def test_encode_refuses_too_much_before_it_serialises() -> None:
    """Bad input 7, C095, C120: 300 MB are counted, not copied; the exact size is told where it had to be made."""
    with pytest.raises(PayloadTooLarge, match="more than 10000 bytes at"):
        encode({"a": "x" * 300_000_000}, limit=LIMIT)
    with pytest.raises(PayloadTooLarge, match="more than 10000 bytes"):
        encode({str(n): n for n in range(100_000)}, limit=LIMIT)
    with pytest.raises(PayloadTooLarge, match="has 12002 bytes, at most 10000"):
        encode("é" * 6000, limit=LIMIT)
    assert len(encode("x" * 9998, limit=LIMIT)) == LIMIT


def test_encode_loosely_writes_what_nobody_reads_back_by_type() -> None:
    value = [(1, 2), {3, 1}, dt.date(2026, 1, 2), Point(4), Color.RED, b"x"]

    got = decode(encode({"v": value}, limit=LIMIT, loose=True))

    assert got == {"v": [[1, 2], [1, 3], "2026-01-02", {"x": 4}, "red", "eA=="]}
    with pytest.raises(InvalidPayload, match="NaN"):
        encode((float("nan"),), limit=LIMIT, loose=True)
    with pytest.raises(InvalidPayload, match="type object"):
        encode((object(),), limit=LIMIT, loose=True)


@pytest.mark.parametrize(
    "text", ['{"secret": "hunter2', "[hunter2]", "", "[" * 100_000, b'"\xff"'], ids=ascii
)
def test_decode_says_where_and_never_what(text: str | bytes) -> None:
    """Bad input 8: the content is not repeated."""
    with pytest.raises(InvalidPayload) as caught:
        decode(text)

    assert "hunter2" not in str(caught.value)


@given(PLAIN)
def test_canonical_does_not_depend_on_the_order_of_keys(value: Any) -> None:
    text = encode(value, limit=10_000_000)
    turned = json.dumps(json.loads(text, object_pairs_hook=lambda pairs: dict(reversed(pairs))))

    assert canonical(text) == canonical(turned)
