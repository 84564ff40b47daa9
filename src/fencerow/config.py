"""Where to connect, and how to show it without its password."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from fencerow.errors import ConfigError

DSN_VARIABLE = "FENCEROW_DSN"
APP_VARIABLE = "FENCEROW_APP"
EMBEDDED = "embedded"

_SCHEMES = ("postgresql://", "postgres://")
_PAIR = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)(?=\s|$)", re.DOTALL)
_SECRET = re.compile(r"password|secret|token", re.IGNORECASE)
_EMBEDDED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Location:
    """A DSN and where it came from, as ``--dsn`` or ``FENCEROW_DSN``. Printed, it shows no password."""

    dsn: str
    source: str

    def __str__(self) -> str:
        return f"{redact(self.dsn)} (from {self.source})"

    def __repr__(self) -> str:
        return f"Location({str(self)!r})"


def locate(dsn: str | None = None, *, environ: Mapping[str, str] | None = None) -> Location | None:
    """
    The database that is meant: *dsn* if given, else FENCEROW_DSN, else None.

    Raises:
        ConfigError: it is not a DSN.
    """
    variables = os.environ if environ is None else environ
    if dsn is not None:
        return Location(check_dsn(dsn), "--dsn")
    if variables.get(DSN_VARIABLE):
        return Location(check_dsn(variables[DSN_VARIABLE]), DSN_VARIABLE)
    return None


def check_dsn(dsn: object) -> str:
    """
    A DSN as libpq reads it, ``embedded`` or ``embedded:NAME``. The message never repeats it: it may hold a password.

    Raises:
        ConfigError: it is none of these.
    """
    if not isinstance(dsn, str):
        raise ConfigError(
            f"a DSN is a string, not {type(dsn).__name__}", hint='Give "postgresql://user@host/database".'
        )
    if embedded_name(dsn) is None and not _readable(dsn):
        raise ConfigError(
            "this is not a DSN",
            hint='Give "postgresql://user@host/database", "host=… dbname=…" or "embedded"; in a URI write '
            "@ : / ? # % of a user or password as %40 %3A %2F %3F %23 %25.",
        )
    return dsn


def embedded_name(dsn: str) -> str | None:
    """
    The name of the embedded server that a DSN means (``default`` without one); None when it means another server.

    Raises:
        ConfigError: a name with other characters than letters, digits, ``_`` and ``-``.
    """
    kind, colon, name = dsn.partition(":")
    if kind != EMBEDDED:
        return None
    if not colon:
        return "default"
    if not _EMBEDDED_NAME.fullmatch(name):
        raise ConfigError(
            "this cannot be the name of an embedded server",
            hint="Use 1 to 63 letters, digits, _ or -, as in embedded:shop.",
        )
    return name


def _readable(dsn: str) -> bool:
    if "\0" in dsn or not dsn.strip():
        return False
    if dsn.startswith(_SCHEMES):
        return _readable_uri(dsn)
    position = 0
    while position < len(dsn.rstrip()):
        found = _PAIR.match(dsn, position)
        if found is None:
            return False
        position = found.end()
    return True


def _readable_uri(dsn: str) -> bool:
    try:
        parts = urlsplit(dsn)
    except ValueError:
        return False
    if parts.netloc.count("@") > 1 or re.search(r"%(?![0-9A-Fa-f]{2})|%00", dsn):
        return False  # libpq would take a part of the password for the host, or quote it in its message
    hosts = parts.netloc.rpartition("@")[2]
    return all(re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*)(:\d{0,5})?", host) for host in hosts.split(","))


def redact(dsn: str) -> str:
    """*dsn* with every password and secret replaced by ``***``; a text that is no DSN is not shown at all."""
    if dsn == EMBEDDED or dsn.startswith(EMBEDDED + ":"):
        return dsn
    if not _readable(dsn):
        return "(unreadable DSN)"
    if not dsn.startswith(_SCHEMES):
        return " ".join(
            f"{name}={'***' if _SECRET.search(name) else value}" for name, value in _PAIR.findall(dsn)
        )
    scheme, _, rest = dsn.partition("://")
    place, mark, query = rest.partition("?")
    authority, slash, path = place.partition("/")
    if "@" in path + query:
        return f"{scheme}://(unreadable DSN)"  # a password with an unescaped / or ? would be shown
    user, at, host = authority.rpartition("@")
    if ":" in user:
        user = user.partition(":")[0] + ":***"
    shown = "&".join(
        pair.partition("=")[0] + "=***" if _SECRET.search(pair.partition("=")[0]) else pair
        for pair in query.split("&")
    )
    return f"{scheme}://{user}{at}{host}{slash}{path}{mark}{shown}"
