"""
What a command prints: one JSON document, or text for people.

JSON (``--json``): exactly one document on stdout, a list inside an object under its plural name. Times are ISO 8601 in
UTC with Z; durations are seconds in keys that end in ``_seconds``. Numbers are JSON numbers; an integer beyond
±(2^53 - 1), which readers with binary64 numbers would round, is a string, and a lease id always is. What users stored
(payload, headers, result) is printed as it was stored.

Text: stdout holds the answer, stderr the remarks. Whatever comes from the database or the command line is shown with
its control characters, terminal sequences and direction overrides escaped. Tables get colour on a terminal alone.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

import typer

SAFE_INTEGER_MAX = 2**53 - 1
_LONG = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_INTERVAL = re.compile(r"(?:(\d+) days?)? ?(?:(\d+):(\d\d):(\d\d(?:\.\d+)?))?")


def plain(text: str, *, limit: int | None = None) -> str:
    """
    *text* on one line, safe on a terminal: ``\\n`` and the like for control characters, code points for invisible ones.

    Args:
        limit: longest result in characters; what is cut off leaves an ellipsis.
    """
    shown = _LONG.sub(_escape, text)
    # Outside the ranges above, what Unicode calls control, format, surrogate or unassigned is rare: look only then.
    if not shown.isascii():
        shown = "".join(c if unicodedata.category(c) not in _HIDDEN else _code_point(c) for c in shown)
    return shown if limit is None or len(shown) <= limit else shown[: limit - 1] + "…"


_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


def _code_point(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _escape(match: re.Match[str]) -> str:
    return _NAMED.get(match[0]) or _code_point(match[0])


def first_line(text: str | None, *, limit: int = 120) -> str:
    """The first line of an error that says something, as plain text."""
    lines = (line.strip() for line in (text or "").splitlines())
    return plain(next((line for line in lines if line), ""), limit=limit)


def moment(at: datetime) -> str:
    """A time as ISO 8601 in UTC, to the microsecond where there are any."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def clock_time(at: datetime) -> str:
    """A time for people: UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def span(seconds: float) -> str:
    """A duration for people, in at most two units: ``0.4 s``, ``12 s``, ``3 m 20 s``, ``2 h 5 m``, ``3 d 4 h``."""
    seconds = abs(seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (whole % 60, "s")]
    first = next((i for i, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def seconds_of(interval: str | None) -> float | str | None:
    """Seconds of an interval that PostgreSQL wrote into JSON; its text where it has months."""
    if interval is None:
        return None
    found = _INTERVAL.fullmatch(interval)
    if not found or not interval:
        return interval
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def jsonable(value: Any) -> Any:
    """A value as this program writes it in JSON: see the top of this module."""
    match value:
        case bool() | None | float() | str():
            return value
        case int():
            return value if abs(value) <= SAFE_INTEGER_MAX else str(value)
        case datetime():
            return moment(value)
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return {str(key): jsonable(part) for key, part in value.items()}
        case Iterable():
            return [jsonable(part) for part in value]
    raise TypeError(f"no JSON form for {type(value).__name__}")


def document(value: Mapping[str, Any], *, verbatim: bool = False) -> None:
    """
    Print the one JSON document of a command. ASCII: terminals, pipes and locales of any kind carry it.

    Args:
        verbatim: its values are in JSON form already, and what a user stored in them stays as it is.
    """
    line(json.dumps(value if verbatim else jsonable(value), allow_nan=False))


def line(text: str) -> None:
    """Print to stdout. A reader that went away has had enough: the command ends well and quietly."""
    try:
        sys.stdout.write(_encodable(text, sys.stdout) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        hush()
        raise typer.Exit(0) from None


def remark(text: str) -> None:
    """Print to stderr."""
    try:
        sys.stderr.write(_encodable(text, sys.stderr) + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        pass


def hush() -> None:
    """Let what is still buffered for a closed stdout go nowhere, so that the interpreter's exit stays quiet too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """
    Print a table of plain texts.

    Args:
        right: indexes of columns that are aligned to the right.
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _drawn(columns, cells, right)
        return
    widths = [max(len(cell) for cell in column) for column in zip(columns, *cells, strict=True)]
    for row in (columns, *cells):
        padded = (
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        line("  ".join(padded).rstrip())


def _drawn(columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[int]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        drawn.add_column(column, justify="right" if index in right else "left", overflow="fold")
    for row in cells:
        # Text, not markup: brackets in a name are a name.
        drawn.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    Console(highlight=False).print(drawn)


_STYLES = {
    "done": "green",
    "running": "cyan",
    "ready": "blue",
    "scheduled": "magenta",
    "failed": "red",
    "cancelled": "yellow",
}
