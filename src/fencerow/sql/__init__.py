"""The SQL of Fencerow as package data, and the one way to read it for a schema of another name."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files

from fencerow import limits
from fencerow.errors import InvalidName

SCHEMA = "fencerow"
"""The schema name that all SQL is written for."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_QUALIFIER = re.compile(r"'fencerow\.(\w+)'|\bfencerow\.(?=\w)")


def quote_identifier(name: str) -> str:
    """A schema name as an SQL identifier, in double quotes unless it is the default."""
    return '"' + name.replace('"', '""') + '"'


def check_schema_name(name: str) -> str:
    """
    The one rule for schema names: 1..63 bytes of UTF-8, no control character (a line break would end a comment of the
    script), no ``$`` (SQL bodies are dollar-quoted), not ``pg_…``.

    Raises:
        InvalidName: the name breaks the rule; nothing was sent.
    """
    size = len(name.encode("utf-8", "surrogatepass"))
    fits = 1 <= size <= limits.SCHEMA_NAME_BYTES_MAX
    if not fits or _CONTROL.search(name) or "$" in name or name.startswith("pg_"):
        raise InvalidName(
            f"schema name of {size} bytes is not possible",
            hint="Use 1 to 63 bytes without '$' or control characters that do not begin with pg_.",
        )
    return name


@lru_cache(maxsize=1024)
def requalify(text: str, schema: str, *, placeholders: bool = False) -> str:
    """
    The same SQL for another schema: only the qualifier changes, as an identifier or inside a regclass literal.

    Args:
        placeholders: True when the text is sent with ``%s`` parameters, so that a ``%`` in the name must be doubled.
    """
    if schema == SCHEMA:
        return text
    identifier = quote_identifier(schema)
    if placeholders:
        identifier = identifier.replace("%", "%%")

    def swap(match: re.Match[str]) -> str:
        if match[1] is not None:
            return "'" + (identifier + "." + match[1]).replace("'", "''") + "'"
        return identifier + "."

    return _QUALIFIER.sub(swap, text)


def migrations() -> list[tuple[int, str, str]]:
    """The numbered migrations as (version, name, text), in order."""
    found = []
    for entry in (files(__name__) / "schema").iterdir():
        if entry.name.endswith(".sql"):
            number, _, rest = entry.name[:-4].partition("_")
            found.append((int(number), rest, entry.read_text(encoding="utf-8")))
    return sorted(found)


def routines() -> list[tuple[str, str]]:
    """Every view and function as (folder/name, text), views first: functions are bound late, views are not."""
    found = []
    for folder in ("inspect", "rules", "jobs", "queues", "workers"):
        for entry in (files(__name__) / folder).iterdir():
            if entry.name.endswith(".sql"):
                found.append((f"{folder}/{entry.name[:-4]}", entry.read_text(encoding="utf-8")))
    return sorted(found, key=lambda item: ("CREATE OR REPLACE VIEW" not in item[1], item[0]))
