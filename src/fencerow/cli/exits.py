"""
The one table of exit codes.

    0    ok: what was asked is so, whether this call made it so or it was so before
    1    the command did its work and the answer is no: not found, refused in this state, a key is held
    2    usage: the command line or a value in it is wrong; nothing was sent
    3    database or configuration: unreachable, wrong password, schema missing, behind or ahead, app not found
    4    busy: another owner holds what is needed; the same command may succeed later
    5    the worker gave up (crash loop)
    130  interrupted
"""

from __future__ import annotations

from typing import Final

from fencerow import errors

OK: Final = 0
NO: Final = 1
USAGE: Final = 2
DATABASE: Final = 3
BUSY: Final = 4
GAVE_UP: Final = 5
INTERRUPTED: Final = 130

_BY_ERROR: Final[tuple[tuple[type[errors.FencerowError], int], ...]] = (
    (errors.ConfigError, DATABASE),
    (errors.UsageError, USAGE),
    (errors.Rejected, USAGE),
    (errors.IdempotencyConflict, NO),
    (errors.Duplicate, NO),
    (errors.ResourceBusy, BUSY),
    (errors.Deadlock, BUSY),
    (errors.SerializationFailure, BUSY),
)
"""The first class that fits; everything else is about the database or its configuration."""


def code_of(error: errors.FencerowError) -> int:
    """The exit code of an error that ends a command."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), DATABASE)


_CURES: Final[tuple[tuple[type[errors.FencerowError], str], ...]] = (
    (
        errors.DatabaseUnavailable,
        "See that the server runs, and that --dsn, the app or FENCEROW_DSN names it.",
    ),
    (errors.PermissionDenied, "Use a role that may do it, or have it granted."),
    (errors.ReadOnly, "Connect to the primary."),
    (errors.ResourceBusy, "Try again."),
    (errors.Deadlock, "Try again."),
    (errors.SerializationFailure, "Try again."),
    (errors.DeadlineExceeded, "Try again when the server is less busy."),
)
"""What to do about errors that bring no hint of their own."""


def sentence(error: errors.FencerowError) -> str:
    """Cause and cure of an error, on whatever lines its message has."""
    if error.hint:
        return str(error)
    cure = next((text for kind, text in _CURES if isinstance(error, kind)), "")
    return f"{error} ({cure})" if cure else str(error)
