"""
Every error that Fencerow raises, and the one table from SQLSTATE to error.

    FencerowError                 .code (stable), .hint (the cure)
    ├─ UsageError                 the caller's mistake; nothing was sent
    │  ├─ InvalidPayload          .path of the fault  ├─ PayloadTooLarge  └─ PayloadTooDeep
    │  ├─ InvalidName  InvalidValue  ConfigError
    │  ├─ UnknownTask  DuplicateTask  DuplicateInBatch
    │  ├─ StepMismatch            QF007  the handler's steps are not those that an earlier attempt kept
    ├─ IdempotencyConflict        a key was used before for something else
    ├─ Duplicate                  a unique key is held; .job_id of its holder
    ├─ SchemaError                NotInstalled  SchemaBehind  SchemaAhead  MigrationFailed
    ├─ ClaimLost                  the claim no longer gives authority; .verdict and what the database knows
    ├─ JobFailed  JobCancelled    of a job whose result is waited for; .job_id, .kind of a failure
    ├─ JobGone  ResultTimeout     it was purged, or never was; it has not ended in time (also a TimeoutError)
    ├─ InvalidInput               raised by handlers: no attempt can ever succeed
    ├─ Unavailable                raised by handlers: a dependency is away, try again later
    ├─ ServerError                the embedded server
    └─ StoreError                 the database or its connection; .sqlstate
       ├─ ResourceBusy            55P03  a lock was not had in time
       ├─ DeadlineExceeded        57014  a statement took too long, for whatever reason
       ├─ OperatorCancelled       57014  somebody cancelled the statement
       ├─ Deadlock                40P01  ├─ SerializationFailure  40001
       ├─ ReadOnly                25006  a standby, or a server that was demoted
       ├─ NotReadCommitted        QF001  the transaction's isolation forbids ownership decisions
       ├─ OutOfResources          53xxx  ├─ PermissionDenied  42501  └─ Rejected  22xxx 23xxx
       ├─ DatabaseUnavailable     08xxx 57P0x, no connection; nothing was done   (also an Unavailable)
       └─ CommitUncertain         the reply was lost: it may have been done or not
"""

from __future__ import annotations

from datetime import datetime


class FencerowError(Exception):
    """Base of all; ``code`` is stable, ``hint`` says what to do about it."""

    code = "error"
    hint = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        if hint:
            self.hint = hint

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} ({self.hint})" if self.hint else text


class UsageError(FencerowError):
    """The caller's mistake, found before anything was sent."""

    code = "usage"


class InvalidPayload(UsageError, ValueError):
    """The payload cannot be stored, or does not fit the task's parameters; ``path`` is where, as ``$.a[2]``."""

    code = "invalid_payload"

    def __init__(self, message: str, *, path: str = "$", hint: str = "") -> None:
        super().__init__(f"{message} at {path}", hint=hint)
        self.path = path


class PayloadTooLarge(InvalidPayload):
    """The encoded payload has more bytes than ``limits.PAYLOAD_BYTES_MAX``."""

    code = "payload_too_large"


class PayloadTooDeep(InvalidPayload):
    """The payload nests deeper than ``limits.PAYLOAD_DEPTH_MAX``."""

    code = "payload_too_deep"


class InvalidName(UsageError, ValueError):
    """A queue, task, schema, key or tag name breaks the one naming rule."""

    code = "invalid_name"


class InvalidValue(UsageError, ValueError):
    """A number, duration or time is outside its bounds, or of the wrong type."""

    code = "invalid_value"


class ConfigError(UsageError):
    """The configuration contradicts itself or is incomplete."""

    code = "config"


class UnknownTask(UsageError, LookupError):
    """No task of this name is registered in this app."""

    code = "unknown_task"


class DuplicateTask(UsageError):
    """Two functions claim the same task name."""

    code = "duplicate_task"


class DuplicateInBatch(UsageError):
    """One idempotency key stands for different payloads in one batch; ``indexes`` are their positions, from 0."""

    code = "duplicate_in_batch"

    def __init__(self, message: str, *, indexes: list[int]) -> None:
        super().__init__(message, hint="Give each piece of work a key of its own.")
        self.indexes = indexes


class StepMismatch(UsageError):
    """
    QF007: a step's name, order or function is not what an earlier attempt kept, so that its result may mean something
    else. The job ends failed at once (kind invalid): with the right code in place, redrive it.
    """

    code = "step_mismatch"
    hint = "Keep names, order and functions of steps while jobs are under way; give changed work a new name at the end."


class IdempotencyConflict(FencerowError):
    """QF004: an idempotency key was used before with another task or payload."""

    code = "idempotency_conflict"


class Duplicate(FencerowError):
    """QF005: a unique key is held by another job, whose id is ``job_id``."""

    code = "duplicate"

    def __init__(self, message: str, *, job_id: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.job_id = job_id


class SchemaError(FencerowError):
    """The schema in the database and this client do not fit."""

    code = "schema"


class NotInstalled(SchemaError):
    """The space does not exist in this database."""

    code = "not_installed"
    hint = "Run: fencerow migrate"


class SchemaBehind(SchemaError):
    """The schema is older than this client needs."""

    code = "schema_behind"
    hint = "Run: fencerow migrate"


class SchemaAhead(SchemaError):
    """The schema no longer serves clients as old as this one."""

    code = "schema_ahead"
    hint = "Upgrade the fencerow package."


class MigrationFailed(SchemaError):
    """A migration could not be applied; nothing of it remains."""

    code = "migration_failed"


class ClaimLost(FencerowError):
    """
    The claim no longer gives authority: stop, and send nothing more for it.

    Attributes:
        verdict: ``superseded``, ``expired``, ``cancelled``, ``settled``, ``unknown`` as the database answered, or
            ``untrusted`` when this process gave up before asking (its lease may be over).
        current: generation stored now, when known.  state: state of the job now.
        lease_until: end of the present holder's lease (UTC, database clock).  owner: its worker.
    """

    code = "claim_lost"

    def __init__(
        self,
        message: str,
        *,
        verdict: str,
        current: int | None = None,
        state: str | None = None,
        lease_until: datetime | None = None,
        owner: str | None = None,
    ) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.current = current
        self.state = state
        self.lease_until = lease_until
        self.owner = owner


class JobFailed(FencerowError):
    """
    The job whose result was asked for ended failed; ``kind`` of its last attempt: ``failed``, ``invalid``,
    ``unavailable``, ``timeout`` or ``lost``. ``error`` is all that the database keeps, the message has its first line.
    """

    code = "job_failed"

    def __init__(self, job_id: int, *, kind: str, error: str) -> None:
        super().__init__(f"job {job_id} ended failed ({kind}): {error.partition(chr(10))[0]}")
        self.job_id = job_id
        self.kind = kind
        self.error = error


class JobCancelled(FencerowError):
    """The job whose result was asked for ended cancelled; ``reason`` as it was given, or None."""

    code = "job_cancelled"

    def __init__(self, job_id: int, *, reason: str | None) -> None:
        super().__init__(f"job {job_id} ended cancelled" + (f": {reason}" if reason else ""))
        self.job_id = job_id
        self.reason = reason


class JobGone(FencerowError):
    """There is no such job: it was purged, or never was, or the transaction that enqueues it is still open."""

    code = "job_gone"
    hint = "Ask within the time that its task keeps ended jobs, and after your own commit."

    def __init__(self, job_id: int) -> None:
        super().__init__(f"there is no job {job_id}")
        self.job_id = job_id


class ResultTimeout(FencerowError, TimeoutError):
    """The job had not ended when the time to wait for its result was over; it goes on."""

    code = "result_timeout"

    def __init__(self, job_id: int, seconds: float) -> None:
        super().__init__(f"job {job_id} has not ended within {seconds:g} s")
        self.job_id = job_id


class InvalidInput(FencerowError):
    """Raise it in a handler: the input is wrong for good, the job ends failed at once."""

    code = "invalid_input"


class Unavailable(FencerowError):
    """Raise it in a handler: something it needs is away, the job is retried by back-off."""

    code = "unavailable"


class ServerError(FencerowError):
    """The embedded PostgreSQL could not be found, started or stopped."""

    code = "server"


class StoreError(FencerowError):
    """The database refused or its connection failed; ``sqlstate`` is None where the driver gives none."""

    code = "store"

    def __init__(self, message: str, *, sqlstate: str | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.sqlstate = sqlstate


class ResourceBusy(StoreError):
    """55P03: a lock was not had within lock_timeout, or NOWAIT found it taken. Nothing was done; try again."""

    code = "resource_busy"


class DeadlineExceeded(StoreError):
    """57014 by statement_timeout: it took too long; a lock wait is one possible cause among several."""

    code = "deadline_exceeded"


class OperatorCancelled(StoreError):
    """57014 by a cancel request of somebody else."""

    code = "operator_cancelled"


class Deadlock(StoreError):
    """40P01: this transaction was the victim of a wait cycle. The whole transaction may be run again."""

    code = "deadlock"


class SerializationFailure(StoreError):
    """40001: the transaction's snapshot is too old for what it does. The whole transaction may be run again."""

    code = "serialization_failure"


class ReadOnly(StoreError):
    """25006: the server accepts no writes now: a standby, or a primary that was demoted."""

    code = "read_only"


class NotReadCommitted(StoreError):
    """QF001: ownership is decided under READ COMMITTED only."""

    code = "not_read_committed"
    hint = "Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED."


class OutOfResources(StoreError):
    """53xxx: disk, memory or connections of the server are used up."""

    code = "out_of_resources"


class PermissionDenied(StoreError):
    """42501: the role lacks a right."""

    code = "permission_denied"


class Rejected(StoreError):
    """22xxx, 23xxx, QF002: the database refused the data."""

    code = "rejected"


class DatabaseUnavailable(StoreError, Unavailable):
    """No connection, or it was lost before anything was decided. Nothing was done."""

    code = "database_unavailable"


class CommitUncertain(StoreError):
    """The reply to a write was lost: it may have been committed or not. Inspect, or ask again with the same key."""

    code = "commit_uncertain"
    hint = "Give an idempotency_key, then the same enqueue can be sent again safely."


BY_SQLSTATE: dict[str, type[StoreError]] = {
    "55P03": ResourceBusy,
    "57014": DeadlineExceeded,
    "40P01": Deadlock,
    "40001": SerializationFailure,
    "25006": ReadOnly,
    "42501": PermissionDenied,
    "QF001": NotReadCommitted,
    "QF002": Rejected,
    "57P01": DatabaseUnavailable,
    "57P02": DatabaseUnavailable,
    "57P03": DatabaseUnavailable,
    "57P05": DatabaseUnavailable,
    "25P03": DatabaseUnavailable,
    "25P04": DeadlineExceeded,
    "40003": CommitUncertain,
    "08": DatabaseUnavailable,
    "53": OutOfResources,
    "22": Rejected,
    "23": Rejected,
    "54": Rejected,
}


def error_class(sqlstate: str | None) -> type[StoreError]:
    """The error of a SQLSTATE: the code itself, else its class (first two characters), else StoreError."""
    if sqlstate is None:
        return StoreError
    return BY_SQLSTATE.get(sqlstate) or BY_SQLSTATE.get(sqlstate[:2]) or StoreError
