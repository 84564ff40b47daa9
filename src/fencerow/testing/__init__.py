"""
Testing against a real PostgreSQL of one's own; nothing here touches an existing server.

drain, assert_enqueued: run due jobs in the test's process, ask which were enqueued. plugin: fixtures for pytest, loaded
through its entry point. space: what they give. clock: a clock that tests move. sessions: sessions that wait for locks while
the test looks on.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencerow.testing.draining import Drained as Drained
    from fencerow.testing.draining import DrainTimeout as DrainTimeout
    from fencerow.testing.draining import adrain as adrain
    from fencerow.testing.draining import drain as drain
    from fencerow.testing.enqueued import EnqueuedJob as EnqueuedJob
    from fencerow.testing.enqueued import aassert_enqueued as aassert_enqueued
    from fencerow.testing.enqueued import assert_enqueued as assert_enqueued

__all__ = [
    "DrainTimeout",
    "Drained",
    "EnqueuedJob",
    "aassert_enqueued",
    "adrain",
    "assert_enqueued",
    "drain",
]


def __getattr__(name: str) -> Any:
    # Imported when asked for: pytest loads this package in every project where Fencerow is installed.
    if name not in __all__:
        raise AttributeError(f"module 'fencerow.testing' has no attribute {name!r}")
    module = "enqueued" if "enqueued" in name.lower() else "draining"
    found = globals()[name] = getattr(import_module(f"fencerow.testing.{module}"), name)
    return found
