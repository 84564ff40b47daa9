"""What may be typed, and what is refused before anything is sent."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from fencerow.cli import values
from fencerow.errors import InvalidPayload, PayloadTooDeep


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("10s", 10),
        ("10m", 600),
        ("2h", 7200),
        ("1d", 86400),
        ("1.5h", 5400),
        ("0", 0),
        ("42", 42),
    ],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert values.duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-5s",
        "5 s",
        "10x",
        "1e3",
        "inf",
        "nan",
        "s",
        "1m30s",
        "٣s",
        "1_0",
        "10S",
        "9" * 40,
        "0x1",
        "+1",
        "1.",
    ],
)
def test_durations_refuse_nonsense(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="a duration is a number"):
        values.duration(text)


def test_a_delay_ends_within_a_year() -> None:
    assert values.delay("365d") == 365 * 86400
    with pytest.raises(typer.BadParameter, match="at most 365d"):
        values.delay("366d")


@pytest.mark.parametrize("text", ["0", "1ms", "999ms", "25h", "3650d"])
def test_a_lease_keeps_its_bounds(text: str) -> None:
    """Bad input 16: lease 0, 1 ms, 10 years."""
    with pytest.raises(typer.BadParameter, match="a lease is 1s to 24h"):
        values.lease_length(text)


def test_times_need_a_zone() -> None:
    """Bad input 13: a naive time means another instant on each machine."""
    assert values.instant("2027-01-31T08:00:00Z") == datetime(2027, 1, 31, 8, tzinfo=UTC)
    assert values.instant("2027-01-31 09:00+01:00").utcoffset() == timedelta(hours=1)
    with pytest.raises(typer.BadParameter, match="needs its zone"):
        values.instant("2027-01-31T08:00:00")


@pytest.mark.parametrize(
    "text", ["", "tomorrowish", "infinity", "300000-01-01T00:00Z", "9500-01-01T00:00Z", "now"]
)
def test_times_refuse_nonsense(text: str) -> None:
    """Bad input 14: year 300000, 'infinity', 'tomorrowish'."""
    with pytest.raises(typer.BadParameter, match="a time"):
        values.instant(text)


@pytest.mark.parametrize(
    "text", ["0", "-1", "1.0", "x", "", "9223372036854775808", "1 or 1=1", "²", "1" * 30]
)
def test_job_ids_refuse_what_is_none(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="a job id"):
        values.job_id(text)


@pytest.mark.parametrize(
    ("texts", "queues"),
    [
        (["mail"], (("mail", None),)),
        (["mail:10,default:4"], (("mail", 10), ("default", 4))),
        (["mail:10", "default"], (("mail", 10), ("default", None))),
        ([r"a\,b:3,c\:1"], (("a,b", 3), ("c:1", None))),
        (["x:y"], (("x:y", None),)),
        (["a:1:2"], (("a:1", 2),)),
        (["日本:2,A b"], (("日本", 2), ("A b", None))),
        ([r"back\\slash:1"], (("back\\slash", 1),)),
    ],
)
def test_queues_carry_their_concurrency(texts: list[str], queues: tuple[tuple[str, int | None], ...]) -> None:
    assert values.queues(texts) == queues


@pytest.mark.parametrize("text", ["", "a,", ",a", "a,a", "a:0", "a:99999", ":3", "a\\", "x" * 64, "a\x1b[2J"])
def test_queues_refuse_nonsense(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        values.queues([text])


_NAMES = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=63)


@given(
    st.lists(
        st.tuples(_NAMES, st.none() | st.integers(1, 10_000)), min_size=1, unique_by=lambda entry: entry[0]
    )
)
def test_queues_of_any_name_can_be_written(entries: list[tuple[str, int | None]]) -> None:
    def escaped(name: str) -> str:
        return "".join("\\" + c if c in "\\,:" else c for c in name)

    text = ",".join(escaped(name) + ("" if most is None else f":{most}") for name, most in entries)
    assert values.queues([text]) == tuple(entries)


@given(
    st.dictionaries(
        st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers())
    )
)
def test_json_objects_are_read_as_they_are(value: dict[str, Any]) -> None:
    assert values.json_object(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"token": "hunter2"', "line 1, column 20 of 19 characters"),
        ('{"token": "hunter2",, "b": 1}', "line 1, column 21"),
        ("hunter2", "line 1, column 1"),
        ('{"hunter2": 1, "hunter2": 2}', "key number 2 of an object stands in it twice"),
        ('[{"hunter2": 1, "hunter2": 2}]', "stands in it twice"),
        ('["hunter2"]', "no JSON object"),
        ('{"hunter2": NaN}', "NaN or Infinity"),
        ('{"hunter2": -Infinity}', "NaN or Infinity"),
        ('{"hunter2": ' + "1" * 5000 + "}", "too many digits"),
        ("", "line 1, column 1"),
    ],
    ids=[
        "truncated",
        "comma",
        "bare",
        "twice",
        "twice-inside",
        "array",
        "nan",
        "infinity",
        "digits",
        "empty",
    ],
)
def test_bad_json_is_refused_by_place_and_never_quoted(text: str, told: str) -> None:
    """Bad inputs 5 and 8: duplicate keys, truncated JSON on the command line."""
    with pytest.raises(InvalidPayload) as caught:
        values.json_object(text)

    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_json_that_nests_too_deep_is_refused() -> None:
    """Bad input 6: nesting 20,000."""
    with pytest.raises(PayloadTooDeep):
        values.json_object('{"a":' * 20_000 + "1" + "}" * 20_000)
