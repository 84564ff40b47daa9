"""From a driver error to one of ours: by SQLSTATE, by phase, and by whether the connection survived."""

from __future__ import annotations

import json
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from fencerow import errors
from fencerow.errors import (
    ClaimLost,
    CommitUncertain,
    DatabaseUnavailable,
    Duplicate,
    FencerowError,
    IdempotencyConflict,
    NotInstalled,
    OperatorCancelled,
    SchemaBehind,
    StepMismatch,
)

if TYPE_CHECKING:
    import psycopg


class Phase(Enum):
    """What a lost connection means: before anything was sent, inside a transaction, or when it was about to commit."""

    CONNECT = "connect"
    INSIDE = "inside"
    COMMIT = "commit"


CONFIGURATION_TEXTS = (
    "password authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "is not permitted to log in",
    "Ident authentication failed",
    "Peer authentication failed",
    "database is not currently accepting connections",
)
"""What libpq says when trying again cannot help; the driver gives no SQLSTATE at connect time."""


def is_configuration(error: FencerowError) -> bool:
    """True when waiting cannot cure it: wrong password, missing database or schema, missing right, wrong version."""
    if isinstance(error, errors.SchemaError | errors.PermissionDenied | errors.ConfigError):
        return True
    text = str(error)
    return isinstance(error, DatabaseUnavailable) and any(cause in text for cause in CONFIGURATION_TEXTS)


def is_lost(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], error: BaseException) -> bool:
    """True when the connection did not survive: libpq says so, or the server ended it (FATAL, PANIC) and that is to come."""
    diagnostic = getattr(error, "diag", None)
    severity = None if diagnostic is None else diagnostic.severity_nonlocalized
    return connection.closed or connection.broken or severity in ("FATAL", "PANIC")


def classify(error: psycopg.Error, *, name: str, phase: Phase, lost: bool) -> FencerowError:
    """
    The error to raise for a driver error.

    Args:
        name: operation, for the message; the server's context and detail are left out (they quote data).
        phase: what was under way.
        lost: True when the connection did not survive.
    """
    state = error.sqlstate
    text = error.diag.message_primary or str(error).split("\n")[0]
    if phase is Phase.CONNECT:
        return DatabaseUnavailable(f"no connection to the database: {_connect_text(error)}", sqlstate=state)
    if lost:
        if phase is Phase.COMMIT:
            return CommitUncertain(
                f"{name}: the connection was lost before the answer: {text}", sqlstate=state
            )
        return DatabaseUnavailable(f"{name}: the connection was lost: {text}", sqlstate=state)
    if state is not None and state.startswith("QF"):
        return _ours(error, state, f"{name}: {text}")
    if state in ("3F000", "42P01", "42883", "42704"):
        if state in ("3F000", "42P01"):
            return NotInstalled(f"{name}: {text}")
        return SchemaBehind(f"{name}: {text}")
    if state == "57014" and "user request" in text:
        return OperatorCancelled(f"{name}: {text}", sqlstate=state)
    return errors.error_class(state)(f"{name}: {text}", sqlstate=state)


def _connect_text(error: psycopg.Error) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [
        line for line in lines if not line.startswith("Is the server running")
    ] or lines  # a guess, not the cause
    return (lines[-1] if lines else type(error).__name__)[:300]


def _ours(error: psycopg.Error, state: str, text: str) -> FencerowError:
    detail = error.diag.message_detail or ""
    hint = error.diag.message_hint or ""
    match state:
        case "QF003":
            return claim_lost(json.loads(detail))
        case "QF004":
            return IdempotencyConflict(f"{text}, positions {detail}", hint=hint)
        case "QF005":
            return Duplicate(text, job_id=int(detail), hint=hint)
        case "QF007":
            return StepMismatch(text)
    return errors.error_class(state)(text, sqlstate=state, hint=hint)


def claim_lost(answer: dict[str, object]) -> ClaimLost:
    """ClaimLost from an answer row as JSON."""
    until, current = answer.get("lease_until"), answer.get("current")
    return ClaimLost(
        f"the claim of job {answer['job_id']} generation {answer['generation']} is lost: {answer['verdict']}",
        verdict=str(answer["verdict"]),
        current=current if isinstance(current, int) else None,
        state=None if answer.get("state") is None else str(answer["state"]),
        lease_until=datetime.fromisoformat(until) if isinstance(until, str) else None,
        owner=None if answer.get("owner") is None else str(answer["owner"]),
    )
