"""
Makes .venv hold exactly what requirements.lock says, and the project itself, editable.

Runs first in every make target, on the bare `python3` of the machine, so it needs nothing but the standard
library and runs on Python 3.9, if only to say what is missing. When the stamp in .venv fits, it returns at
once and writes nothing: a second user can work with an environment that the first one made.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
STAMP = VENV / ".fencerow-stamp"
OLDEST = (3, 11)
KEPT = {"pip", "setuptools", "wheel", "fencerow"}  # not in the lock, and not to be removed
NO_PYTHON = (
    "Fencerow needs Python 3.11 or newer and none was found. "
    "Install one, or say where it is: make PYTHON=/path/to/python3 …"
)
NO_VENV = (
    "{python} cannot make virtual environments. "
    "Install its venv module (Debian: apt install python3-venv) or put uv on PATH."
)
NOT_MINE = (
    "{path} is of another lock or of a Python that this user cannot run, and this user may not change it. "
    "Run make as its owner once, or work in a clone of your own."
)


def main() -> int:
    wanted = _fingerprint()
    if _stamp() == wanted:
        return 0
    os.chdir(ROOT)
    turn = os.open(ROOT, os.O_RDONLY)
    fcntl.flock(turn, fcntl.LOCK_EX)  # two makes at once: the second waits and then finds the stamp
    if _stamp() == wanted:
        return 0
    target = VENV if VENV.exists() else ROOT
    if not os.access(target, os.W_OK):
        raise SystemExit(NOT_MINE.format(path=target))

    python = _python()
    uv = shutil.which("uv")
    if not _usable():
        print(f"make: creating .venv with {python}", flush=True)
        _create(python, uv)
    STAMP.unlink(missing_ok=True)
    print("make: installing requirements.lock into .venv", flush=True)
    _install(uv)
    STAMP.write_text(wanted)
    return 0


def _fingerprint() -> str:
    """Lock, metadata and place: in a moved or copied tree the scripts of .venv point elsewhere."""
    seen = hashlib.sha256()
    for part in (LOCK.read_bytes(), (ROOT / "pyproject.toml").read_bytes(), os.fsencode(VENV)):
        seen.update(hashlib.sha256(part).digest())
    return seen.hexdigest()


def _stamp() -> str | None:
    try:
        return STAMP.read_text() if _usable() else None
    except OSError:
        return None


def _usable() -> bool:
    """False when .venv is absent, half made, copied from elsewhere, or its interpreter was removed."""
    try:
        first = (VENV / "bin" / "activate").read_text()
    except OSError:
        return False
    return str(VENV) in first and os.access(VENV / "bin" / "python", os.X_OK)


def _python() -> str:
    asked = os.environ.get("PYTHON")
    names = [asked] if asked else ["python3", "python3.14", "python3.13", "python3.12", "python3.11"]
    probe = f"import sys; sys.exit(sys.version_info < {OLDEST})"
    for name in names:
        found = shutil.which(name)
        if found and subprocess.run([found, "-c", probe], check=False).returncode == 0:
            return found
    raise SystemExit(NO_PYTHON)


def _create(python: str, uv: str | None) -> None:
    shutil.rmtree(VENV, ignore_errors=True)
    if subprocess.run([python, "-m", "venv", str(VENV)], check=False, capture_output=True).returncode == 0:
        return
    shutil.rmtree(VENV, ignore_errors=True)
    if not uv:
        raise SystemExit(NO_VENV.format(python=python))
    _run([uv, "venv", "--quiet", "--seed", "--python", python, str(VENV)])


def _install(uv: str | None) -> None:
    python = str(VENV / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    locked = ["--require-hashes", "-r", str(LOCK)]
    if not (uv and _install_by_uv([uv, "pip", "install", "--quiet", "--python", python, *locked])):
        _run([*pip, *locked])
    extra = _installed(python) - _locked() - KEPT
    if extra:
        _run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *sorted(extra)])
    # The build backend is in the lock: nothing is fetched here and no dependency is resolved again.
    _run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)])


def _install_by_uv(command: list[str]) -> bool:
    """uv is several times faster, but has an index and certificates of its own: where it fails, pip may not."""
    settings = {"UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "true", **os.environ}
    if subprocess.run(command, env=settings, check=False).returncode == 0:
        return True
    print("make: uv could not install the lock (above); trying pip", flush=True)
    return False


def _installed(python: str) -> set[str]:
    listing = "import importlib.metadata as m; print(*{d.name for d in m.distributions()})"
    answer = subprocess.run([python, "-c", listing], check=True, capture_output=True, text=True)
    return {_normal(name) for name in answer.stdout.split()}


def _locked() -> set[str]:
    return {_normal(line.split("==")[0]) for line in LOCK.read_text().splitlines() if "==" in line}


def _normal(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(".", "-")


def _run(command: list[str]) -> None:
    if subprocess.run(command, check=False).returncode != 0:
        raise SystemExit(f"make: this step of making .venv failed: {' '.join(command)}")


if __name__ == "__main__":
    sys.exit(main())
