"""An argument goes through JSON and comes back as it was, by its annotation, or is refused before it is sent."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import types
import uuid
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencerow import App
from fencerow.codec import encode
from fencerow.errors import (
    InvalidPayload,
    PayloadTooDeep,
)
from fencerow.task import Task
from tests.unit.test_codec import PLAIN

SECRET = "hunter2"


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict, total=False):
    size: int


@dataclasses.dataclass
class Line:
    name: str
    price: decimal.Decimal
    at: dt.datetime | None = None


@dataclasses.dataclass(eq=False)
class Order:
    id: uuid.UUID
    lines: list[Line]
    meta: dict[str, Any] = dataclasses.field(default_factory=dict)


class Letter(msgspec.Struct):
    to: str
    on: dt.date


class Card(pydantic.BaseModel):
    number: int
    until: dt.date


@dataclasses.dataclass
class Node:
    name: str
    child: Node | None = None


@dataclasses.dataclass
class Positive:
    value: int

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ValueError(f"{self.value} {SECRET}")


def shown(value: object) -> str:
    """A test's id, the same in every process: no address and no order of a set."""
    if isinstance(value, str):
        return ascii(value)[1:40]
    return str(value)[:50] if isinstance(value, type | types.GenericAlias) else type(value).__name__


@pytest.fixture
def app() -> App:
    return App("host=/nowhere")


def taking(app: App, annotation: Any) -> Task[..., Any]:
    """A task with one parameter ``value`` of this type."""

    def handler(value: Any) -> None: ...

    handler.__annotations__["value"] = annotation
    handler.__qualname__ = f"handler{len(app.tasks)}"
    return app.task(handler)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Any, {"a": [1, 2.5, None, True, "x"]}),
        (int, 2**63 - 1),
        (float, 1e22),
        (float, 3),
        (str, "\U0001f600"),
        (bool, True),
        (int | None, None),
        (list[int], [1, 2]),
        (dict[str, list[float]], {"a": [0.1]}),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2, 3)),
        (set[str], {"b", "a"}),
        (frozenset[int], frozenset({1, 2})),
        (dict[int, str], {1: "one"}),
        (dict[Color, int], {Color.RED: 1}),
        (bytes, b"\0\xff"),
        (decimal.Decimal, decimal.Decimal("1.10")),
        (dt.datetime, dt.datetime(2026, 11, 30, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
        (dt.datetime, dt.datetime(2026, 11, 30, 12)),  # noqa: DTZ001
        (dt.date, dt.date(2026, 11, 30)),
        (dt.time, dt.time(12, 30)),
        (dt.timedelta, dt.timedelta(days=1, microseconds=5)),
        (uuid.UUID, uuid.UUID(int=7)),
        (Color, Color.BLUE),
        (Literal["a", 5], 5),
        (Annotated[int, msgspec.Meta(ge=0)], 0),
        (Point, Point(1, 2)),
        (Options, {"size": 3}),
        (Line, Line("a", decimal.Decimal("0.10"), dt.datetime(2026, 1, 1, tzinfo=dt.UTC))),
        (list[Line], [Line("a", decimal.Decimal(1))]),
        (Letter | None, Letter("you", dt.date(2026, 1, 1))),
        (Card, Card(number=1, until=dt.date(2026, 1, 1))),
        (list[Card], [Card(number=1, until=dt.date(2026, 1, 1))]),
    ],
    ids=shown,
)
def test_an_argument_comes_back_as_it_was_by_its_annotation(app: App, annotation: Any, value: Any) -> None:
    """C117: types survive where the annotation says so."""
    task = taking(app, annotation)
    args, kwargs = task.load(task.bind(value).payload)

    assert (args, kwargs) == ([], {"value": value})
    assert type(kwargs["value"]) is type(value) or (annotation is float and type(kwargs["value"]) is float)


def test_a_dataclass_that_does_not_compare_comes_back_part_by_part(app: App) -> None:
    order = Order(uuid.UUID(int=1), [Line("a", decimal.Decimal("1.0"))], {"n": [1]})
    task = taking(app, Order)
    got = task.load(task.bind(order).payload)[1]["value"]

    assert (got.id, got.lines, got.meta) == (order.id, order.lines, order.meta)


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (int, "7", "$.value"),
        (int, 7.0, "$.value"),
        (int, True, "$.value"),
        (int, None, "$.value"),
        (str, 7, "$.value"),
        (str, Color.RED, "$.value"),
        (bool, 1, "$.value"),
        (float, "1", "$.value"),
        (float, decimal.Decimal(1), "$.value"),
        (list[int], (1, 2), "$.value"),
        (list[int], [1, "x"], "$.value[1]"),
        (dict[str, int], {"a": "x"}, "$.value[...]"),
        (dict, {1: 2}, "$.value"),
        (Any, (1,), "$.value"),
        (Any, Line("a", decimal.Decimal(1)), "$.value"),
        (Any, {"a": dt.date(2026, 1, 1)}, "$.value.a"),
        (tuple[int, ...], [1], "$.value"),
        (dt.date, dt.datetime(2026, 1, 1), "$.value"),  # noqa: DTZ001
        (dt.datetime, "2026-01-01", "$.value"),
        (uuid.UUID, SECRET, "$.value"),
        (Color, "green", "$.value"),
        (Color, "red", "$.value"),
        (Literal["a"], SECRET, "$.value"),
        (decimal.Decimal, decimal.Decimal("NaN"), "$.value"),
        (Order, Order(uuid.UUID(int=1), [], {"at": dt.date(2026, 1, 1)}), "$.value.meta.at"),
        (Order, Order(uuid.UUID(int=1), [], {"x": float("nan")}), "$.value.meta.x"),
        (Line, Line("x\0", decimal.Decimal(1)), "$.value.name"),
        (Line, Card(number=1, until=dt.date(2026, 1, 1)), "$.value"),
        (Line, {"name": "a", "price": "1"}, "$.value"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, "$.value"),
        (Card, {"number": 1, "until": "2026-01-01"}, "$.value"),
        (Card, Card.model_construct(number=SECRET, until=dt.date(2026, 1, 1)), "$.value"),
    ],
    ids=shown,
)
def test_an_argument_that_would_change_is_refused_with_its_path(
    app: App, annotation: Any, value: Any, path: str
) -> None:
    """C117, bad input 9: same value or an error at the enqueue, and the value is not told."""
    task = taking(app, annotation)
    with pytest.raises(InvalidPayload) as caught:
        task.bind(value)

    assert caught.value.path == path
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "payload", "path"),
    [
        (int, '{"value": "hunter2"}', "$.value"),
        (int, '{"value": 1, "other": "hunter2"}', "$"),
        (int, "{}", "$"),
        (int, "[]", "$"),
        (int, '{"value": 1', "$"),
        (Any, '{"value": ' + "[" * 100_000 + "]" * 100_000 + "}", "$"),
        (Color, '{"value": "hunter2"}', "$.value"),
        (dt.datetime, '{"value": "hunter2"}', "$.value"),
        (Positive, '{"value": {"value": -5}}', "$.value"),
        (Card, '{"value": {"number": "hunter2", "until": "2026-01-01"}}', "$.value"),
        (
            Card,
            '{"value": {"number": 1, "until": "2026-01-01", "more": {"deep": "hunter2"}, "number": "x"}}',
            "$.value",
        ),
        (list[Line], '{"value": [{"name": "a", "price": "1"}, {"name": "hunter2"}]}', "$.value[1]"),
        (Line, '{"value": {"name": "a", "price": "hunter2"}}', "$.value.price"),
    ],
    ids=shown,
)
def test_load_refuses_what_the_handler_cannot_take(
    app: App, annotation: Any, payload: str, path: str
) -> None:
    """I12, I14: a payload sent by SQL or before a deploy is refused with its path and without its value."""
    task = taking(app, annotation)
    with pytest.raises(InvalidPayload) as caught:
        task.load(payload)

    assert caught.value.path == path
    assert SECRET not in str(caught.value)


def test_equal_sets_give_equal_payloads(app: App) -> None:
    """An idempotency key compares payloads, so the order in which a set happens to be must not matter."""
    task = taking(app, set[str])
    words = [f"word{n}" for n in range(50)]
    other: set[str] = set()
    for word in reversed(words):
        other.add(word)

    assert task.bind(set(words)).payload == task.bind(other).payload


def test_a_value_that_holds_itself_is_refused(app: App) -> None:
    ring: list[Any] = []
    ring.append(ring)
    for annotation in (Any, tuple[Any, ...]):
        with pytest.raises(PayloadTooDeep):
            taking(app, annotation).bind(ring)


def chain(length: int) -> Node:
    node = Node("last")
    for _ in range(length - 1):
        node = Node("n", node)
    return node


def test_a_class_that_holds_itself_is_taken_down_to_the_limit(app: App) -> None:
    task = taking(app, Node)

    assert task.load(task.bind(chain(63)).payload)[1] == {"value": chain(63)}
    for length in (64, 900):
        with pytest.raises(PayloadTooDeep):
            task.bind(chain(length))


EVERY = (
    int,
    str,
    list[Line],
    Order,
    Letter | None,
    Card,
    dict[int, Color],
    tuple[int, dt.date],
    Positive,
    Node,
    Options,
)


@given(
    st.sampled_from(EVERY),
    st.text(max_size=30) | PLAIN.map(lambda value: encode({"value": value}, limit=10**7)),
)
def test_load_answers_anything_with_arguments_or_a_refusal(annotation: Any, payload: str) -> None:
    """I12: no payload harms the worker that reads it."""
    task = taking(App("host=/nowhere"), annotation)
    try:
        args, kwargs = task.load(payload)
    except InvalidPayload:
        return
    assert (args, set(kwargs)) == ([], {"value"})
