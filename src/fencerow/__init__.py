"""Fencerow: a PostgreSQL job queue in which every claim is a fenced lease."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencerow.app import App as App
    from fencerow.errors import ClaimLost as ClaimLost
    from fencerow.errors import CommitUncertain as CommitUncertain
    from fencerow.errors import Duplicate as Duplicate
    from fencerow.errors import DuplicateInBatch as DuplicateInBatch
    from fencerow.errors import FencerowError as FencerowError
    from fencerow.errors import IdempotencyConflict as IdempotencyConflict
    from fencerow.errors import InvalidInput as InvalidInput
    from fencerow.errors import InvalidPayload as InvalidPayload
    from fencerow.errors import JobCancelled as JobCancelled
    from fencerow.errors import JobFailed as JobFailed
    from fencerow.errors import JobGone as JobGone
    from fencerow.errors import ResultTimeout as ResultTimeout
    from fencerow.errors import StepMismatch as StepMismatch
    from fencerow.errors import StoreError as StoreError
    from fencerow.errors import Unavailable as Unavailable
    from fencerow.errors import UsageError as UsageError
    from fencerow.handle import Handle as Handle
    from fencerow.job import AsyncJob as AsyncJob
    from fencerow.job import Job as Job
    from fencerow.task import Task as Task
    from fencerow.types import Cancel as Cancel
    from fencerow.types import Fail as Fail
    from fencerow.types import NewJob as NewJob
    from fencerow.types import Retry as Retry
    from fencerow.types import Snooze as Snooze
    from fencerow.types import Unique as Unique

    __version__: str

_WHERE = {
    "App": "app",
    "AsyncJob": "job",
    "Cancel": "types",
    "ClaimLost": "errors",
    "CommitUncertain": "errors",
    "Duplicate": "errors",
    "DuplicateInBatch": "errors",
    "Fail": "types",
    "FencerowError": "errors",
    "Handle": "handle",
    "IdempotencyConflict": "errors",
    "InvalidInput": "errors",
    "InvalidPayload": "errors",
    "Job": "job",
    "NewJob": "types",
    "Retry": "types",
    "Snooze": "types",
    "JobCancelled": "errors",
    "JobFailed": "errors",
    "JobGone": "errors",
    "ResultTimeout": "errors",
    "StepMismatch": "errors",
    "StoreError": "errors",
    "Task": "task",
    "Unavailable": "errors",
    "Unique": "types",
    "UsageError": "errors",
}
"""Public names and the modules that hold them, imported when first asked for: `import fencerow` loads no driver."""

__all__ = [
    "App",
    "AsyncJob",
    "Cancel",
    "ClaimLost",
    "CommitUncertain",
    "Duplicate",
    "DuplicateInBatch",
    "Fail",
    "FencerowError",
    "Handle",
    "IdempotencyConflict",
    "InvalidInput",
    "InvalidPayload",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobGone",
    "NewJob",
    "ResultTimeout",
    "Retry",
    "Snooze",
    "StepMismatch",
    "StoreError",
    "Task",
    "Unavailable",
    "Unique",
    "UsageError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        found: Any = version("fencerow")
    elif name in _WHERE:
        found = getattr(import_module(f"fencerow.{_WHERE[name]}"), name)
    else:
        raise AttributeError(f"module 'fencerow' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
