"""What is printed: safe on a terminal, exact in JSON."""

import json
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencerow.cli import output

HOSTILE = {
    "q\x1b[2J\x1b]0;x\x07": "q\\x1b[2J\\x1b]0;x\\x07",
    "a\nERROR forged": "a\\nERROR forged",
    "\u202egnp.exe": "\\u202egnp.exe",
    "\x9b31m": "\\x9b31m",
    "\u2066x\u2069": "\\u2066x\\u2069",
    "a\u200bb": "a\\u200bb",
    "\ud800": "\\ud800",
    "\U000e0041": "\\U000e0041",
    "tab\tnul\0": "tab\\tnul\\0",
    "É日本 <b>[red]": "É日本 <b>[red]",
}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.items(), ids=range(len(HOSTILE)))
def test_names_cannot_steer_a_terminal(text: str, shown: str) -> None:
    """C107: control characters, terminal sequences and direction overrides are shown escaped."""
    assert output.plain(text) == shown


@given(st.text())
def test_plain_text_is_one_printable_line(text: str) -> None:
    shown = output.plain(text)

    assert all(c.isprintable() or c.isspace() for c in shown)
    assert len(shown.splitlines()) <= 1


def test_plain_text_keeps_its_limit() -> None:
    assert output.plain("x" * 50, limit=10) == "x" * 9 + "…"


def test_the_first_line_that_says_something_is_shown() -> None:
    assert output.first_line("\n  \nValueError: \x1b[31mno\nmore") == "ValueError: \\x1b[31mno"
    assert output.first_line(None) == ""


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.04, "0.0 s"),
        (9.99, "10 s"),
        (59.6, "1 m"),
        (200, "3 m 20 s"),
        (7500, "2 h 5 m"),
        (273600, "3 d 4 h"),
        (3600, "1 h"),
    ],
)
def test_spans_have_two_units(seconds: float, shown: str) -> None:
    assert output.span(seconds) == shown


@pytest.mark.parametrize(
    ("interval", "seconds"),
    [
        ("01:00:00", 3600.0),
        ("00:00:00.5", 0.5),
        ("365 days", 365 * 86400.0),
        ("1 day 02:00:00", 93600.0),
        ("1 mon", "1 mon"),
    ],
)
def test_intervals_become_seconds(interval: str, seconds: float | str) -> None:
    assert output.seconds_of(interval) == seconds


def test_json_is_exact() -> None:
    at = datetime(2027, 1, 2, 3, 4, 5, 600, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    value = {
        "safe": 2**53 - 1,
        "large": 2**53,
        "least": -(2**62),
        "at": at,
        "for": timedelta(minutes=1),
        "yes": True,
    }

    assert output.jsonable(value) == {
        "safe": 9007199254740991,
        "large": "9007199254740992",
        "least": "-4611686018427387904",
        "at": "2027-01-01T21:34:05.000600Z",
        "for": 60.0,
        "yes": True,
    }
    assert output.moment(datetime(2027, 1, 2, tzinfo=UTC)) == "2027-01-02T00:00:00Z"


def test_a_document_is_one_line_of_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    output.document({"name": "\u202e日\x1b\n"})

    text = capsys.readouterr().out
    assert text.isascii()
    assert text.count("\n") == 1
    assert json.loads(text) == {"name": "\u202e日\x1b\n"}


def test_tables_in_a_pipe_are_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert not sys.stdout.isatty()
    output.table(("id", "name"), [("7", "a\x1b[2J"), ("1234", "b")], right=(0,))

    assert capsys.readouterr().out == "  id  name\n   7  a\\x1b[2J\n1234  b\n"
