"""
Bad inputs at the enqueue: each is refused in one line that says what is possible, before anything is sent, and never shows
the value. Numbers are those of the list of bad inputs in the tests' ids.
"""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from fencerow import App, Task, Unique
from fencerow.errors import (
    ConfigError,
    FencerowError,
    InvalidName,
    InvalidPayload,
    InvalidValue,
    PayloadTooDeep,
    PayloadTooLarge,
)
from fencerow.testing.space import Space

SECRET = "hunter2"
UTC = dt.UTC


def deep(levels: int) -> Any:
    value: Any = SECRET
    for _ in range(levels):
        value = {"a": value}
    return value


PAYLOADS: list[tuple[str, Any, type[InvalidPayload], str]] = [
    ("01-nul", f"{SECRET}\0", InvalidPayload, "$.value"),
    ("01-nul-in-key", {"k\0": SECRET}, InvalidPayload, '$.value["k\\u0000"]'),
    ("02-surrogate", {"a": [f"{SECRET}\ud800"]}, InvalidPayload, "$.value.a[0]"),
    ("03-nan", float("nan"), InvalidPayload, "$.value"),
    ("03-infinity", [float("-inf")], InvalidPayload, "$.value[0]"),
    ("03-nan-subclass", type("Score", (float,), {})("nan"), InvalidPayload, "$.value"),
    ("04-big-int", 10**200_000, InvalidPayload, "$.value"),
    ("04-past-int64", 2**63, InvalidPayload, "$.value"),
    ("06-nested", deep(20_000), PayloadTooDeep, "$.value"),
    ("07-huge", {"a": SECRET * 50_000_000}, PayloadTooLarge, "$.value.a"),
    ("07-over-the-limit", "x" * (256 * 1024), PayloadTooLarge, "$.value"),
    ("09-bytes", SECRET.encode(), InvalidPayload, "$.value"),
    ("09-datetime", {"at": dt.datetime(2026, 1, 1, tzinfo=UTC)}, InvalidPayload, "$.value.at"),
    ("09-decimal", Decimal("1.5"), InvalidPayload, "$.value"),
    ("09-object", [object()], InvalidPayload, "$.value[0]"),
    ("09-exception", ValueError(SECRET), InvalidPayload, "$.value"),
    ("C117-tuple", (1, 2), InvalidPayload, "$.value"),
    ("C117-int-key", {1: (1, 2)}, InvalidPayload, "$.value"),
]


@pytest.mark.parametrize(
    ("value", "kind", "path"), [pytest.param(*rest, id=name) for name, *rest in PAYLOADS]
)
def test_a_payload_that_cannot_be_stored_is_refused(
    space: Space, app: App, task: Task[..., None], value: Any, kind: type[InvalidPayload], path: str
) -> None:
    """C092, C093, C095, C117, C120: alone, and at any place of a batch, where it takes the others with it."""
    calls: list[Callable[[], object]] = [
        lambda: task.enqueue("x", value),
        lambda: app.enqueue_many([*[task.bind("x")] * 50, task.bind("x", value), *[task.bind("x")] * 50]),
        lambda: task.using(connection=space.connection).enqueue("x", value),
    ]
    for call in calls:
        with pytest.raises(kind) as caught:
            call()
        assert caught.value.path.startswith(path)
        assert_told(caught.value)
    assert stored(space) == 0


OPTIONS: list[tuple[str, dict[str, Any], type[FencerowError], str]] = [
    ("10-queue-empty", {"queue": ""}, InvalidName, "letters, digits"),
    ("10-queue-64", {"queue": "q" * 64}, InvalidName, "1 to 63"),
    ("10-queue-control", {"queue": "a\x1b[31m"}, InvalidName, "U[+]001B at position 1"),
    ("10-queue-quote", {"queue": '"; drop'}, InvalidName, "letters, digits"),
    ("10-queue-nul", {"queue": "a\0"}, InvalidName, "U[+]0000"),
    ("10-queue-space", {"queue": "a b"}, InvalidName, "letters, digits"),
    ("10-queue-list", {"queue": "mail:10,default"}, InvalidName, "letters, digits"),
    ("10-queue-surrogate", {"queue": "a\ud800"}, InvalidName, "U[+]D800"),
    ("10-queue-bytes", {"queue": b"mail"}, InvalidName, "type bytes"),
    ("12-priority-40000", {"priority": 40000}, InvalidValue, "-32768 to 32767"),
    ("12-priority-2^31", {"priority": 2**31}, InvalidValue, "-32768 to 32767"),
    ("12-priority-min", {"priority": -(2**31)}, InvalidValue, "-32768 to 32767"),
    ("12-priority-bool", {"priority": True}, InvalidValue, "type bool"),
    ("12-priority-text", {"priority": "5"}, InvalidValue, "type str"),
    ("12-priority-float", {"priority": 5.0}, InvalidValue, "type float"),
    ("13-run_at-naive", {"run_at": dt.datetime(2030, 1, 1, 12)}, InvalidValue, "no time zone"),  # noqa: DTZ001
    ("14-run_at-date", {"run_at": dt.date(2030, 1, 1)}, InvalidValue, "type date"),
    ("14-run_at-text", {"run_at": "tomorrowish"}, InvalidValue, "type str"),
    ("14-run_at-infinity", {"run_at": float("inf")}, InvalidValue, "type float"),
    ("14-run_at-9999", {"run_at": dt.datetime.max.replace(tzinfo=UTC)}, InvalidValue, "1970 and 8999"),
    ("14-run_at-9000", {"run_at": dt.datetime(9000, 1, 1, tzinfo=UTC)}, InvalidValue, "1970 and 8999"),
    ("14-run_at-1", {"run_at": dt.datetime.min.replace(tzinfo=UTC)}, InvalidValue, "1970 and 8999"),
    ("14-run_at-1969", {"run_at": dt.datetime(1969, 12, 31, tzinfo=UTC)}, InvalidValue, "1970 and 8999"),
    ("15-run_in-negative", {"run_in": -5}, InvalidValue, "0 to 31536000 seconds"),
    ("15-run_in-1e12", {"run_in": 10**12}, InvalidValue, "0 to 31536000 seconds"),
    ("15-run_in-2^70", {"run_in": 2**70}, InvalidValue, "0 to 31536000 seconds"),
    ("15-run_in-10^400", {"run_in": 10**400}, InvalidValue, "0 to 31536000 seconds"),
    ("15-run_in-nan", {"run_in": float("nan")}, InvalidValue, "0 to 31536000 seconds"),
    ("15-run_in-bool", {"run_in": True}, InvalidValue, "type bool"),
    ("15-run_in-text", {"run_in": "10m"}, InvalidValue, "type str"),
    ("15-run_in-timedelta", {"run_in": dt.timedelta(seconds=-1)}, InvalidValue, "0 to"),
    (
        "15-run_in-and-run_at",
        {"run_in": 1, "run_at": dt.datetime(2030, 1, 1, tzinfo=UTC)},
        InvalidValue,
        "one of",
    ),
    ("17-attempts-0", {"max_attempts": 0}, InvalidValue, "1 to 1000"),
    ("17-attempts-negative", {"max_attempts": -1}, InvalidValue, "1 to 1000"),
    ("17-attempts-10^9", {"max_attempts": 10**9}, InvalidValue, "1 to 1000"),
    ("C121-timeout-1e308", {"timeout": 1e308}, InvalidValue, "0.001 to 31536000"),
    ("C121-timeout-0", {"timeout": 0}, InvalidValue, "0.001 to"),
    ("C121-timeout-1e-9", {"timeout": 1e-9}, InvalidValue, "0.001 to"),
    ("C121-timeout-none", {"timeout": None}, InvalidValue, "at @app.task"),
    ("on_lost", {"on_lost": "hold"}, InvalidValue, "retry, fail"),
    ("tags-21", {"tags": ["t"] * 21}, InvalidName, "At most 20"),
    ("tags-text", {"tags": SECRET}, InvalidName, "list of strings"),
    ("tags-number", {"tags": [1]}, InvalidName, "type int"),
    ("tags-nul", {"tags": ["a", "b\0"]}, InvalidName, "U[+]0000"),
    ("tags-long", {"tags": ["t" * 101]}, InvalidName, "1 to 100"),
    ("headers-list", {"headers": ["a"]}, InvalidValue, "mapping of strings"),
    ("headers-number", {"headers": {"a": 1}}, InvalidValue, "mapping of strings"),
    ("headers-key", {"headers": {1: "a"}}, InvalidPayload, "key of type int"),
    ("headers-nul", {"headers": {"a": "b\0"}}, InvalidPayload, "U[+]0000"),
    ("headers-large", {"headers": {"a": "b" * 20_000}}, PayloadTooLarge, "16384"),
    ("key-empty", {"idempotency_key": ""}, InvalidName, "1 to 200"),
    ("key-long", {"idempotency_key": "k" * 201}, InvalidName, "1 to 200"),
    ("key-nul", {"idempotency_key": "k\0"}, InvalidName, "U[+]0000"),
    ("key-space", {"idempotency_key": "k "}, InvalidName, "begins or ends with a space"),
    ("key-number", {"idempotency_key": 7}, InvalidName, "type int"),
    ("unique-text", {"unique": SECRET}, InvalidValue, "Give Unique"),
    ("unique-empty", {"unique": Unique("")}, InvalidName, "a unique key"),
    ("unique-until", {"unique": Unique("u", until="done")}, InvalidValue, "finished, started"),  # type: ignore[arg-type]
    ("unique-until-0", {"unique": Unique("u", until=0)}, InvalidValue, "0.001 to"),
    ("unique-until-bool", {"unique": Unique("u", until=True)}, InvalidValue, "type bool"),
    ("unique-conflict", {"unique": Unique("u", on_conflict="skip")}, InvalidValue, "existing, replace"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(
    ("options", "kind", "told"), [pytest.param(*rest, id=name) for name, *rest in OPTIONS]
)
def test_an_option_that_is_not_possible_is_refused(
    space: Space, task: Task[..., None], options: dict[str, Any], kind: type[FencerowError], told: str
) -> None:
    """C047, C048, C112, C121: at using(), before there is a call."""
    with pytest.raises(kind, match=told) as caught:
        task.using(**options)
    assert_told(caught.value)
    assert stored(space) == 0


APPS: list[tuple[str, dict[str, Any], type[FencerowError]]] = [
    ("16-lease-0", {"lease": 0}, InvalidValue),
    ("16-lease-1ms", {"lease": dt.timedelta(milliseconds=1)}, InvalidValue),
    ("16-lease-10-years", {"lease": dt.timedelta(days=3650)}, InvalidValue),
    ("16-lease-bool", {"lease": True}, InvalidValue),
    ("16-lease-text", {"lease": "30s"}, InvalidValue),
    ("22-dsn", {"dsn": f"password {SECRET}"}, ConfigError),
    ("22-dsn-scheme", {"dsn": f"mysql://u:{SECRET}@h/db"}, ConfigError),
    ("22-dsn-number", {"dsn": 5}, ConfigError),
    ("schema-empty", {"schema": ""}, InvalidName),
    ("schema-dollar", {"schema": "a$b"}, InvalidName),
    ("schema-system", {"schema": "pg_x"}, InvalidName),
    ("schema-number", {"schema": 5}, InvalidName),
    ("pooler-text", {"pooler": "no"}, InvalidValue),
]


@pytest.mark.parametrize(("options", "kind"), [pytest.param(*rest, id=name) for name, *rest in APPS])
def test_an_app_that_is_not_possible_is_refused(options: dict[str, Any], kind: type[FencerowError]) -> None:
    with pytest.raises(kind) as caught:
        App(**{"dsn": "host=/x", **options})
    assert_told(caught.value)


@pytest.mark.parametrize("job_id", [True, "1 or 1=1", 1.0, 0, -1, 2**63, None], ids=repr)
def test_an_id_that_is_none_is_refused(app: App, job_id: Any) -> None:
    """Bad inputs 19 and 25: the driver never sees it."""
    for call in (app.cancel, app.redrive):
        with pytest.raises(InvalidValue, match="the job's id") as caught:
            call(job_id)
        assert_told(caught.value)


def assert_told(error: FencerowError) -> None:
    """One line, a cause and a cure, no value."""
    text = str(error)
    assert "\n" not in text
    assert error.hint
    assert SECRET not in text
    assert text.isprintable()


def stored(space: Space) -> int:
    return int(space.value("SELECT count(*) FROM fencerow.job"))
