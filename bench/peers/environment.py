"""A folder of its own for each peer: a virtual environment or a node_modules, filled by the ecosystem's own client."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.peers.catalogue import Peer

ADAPTERS = Path(__file__).resolve().parent / "adapters"
SOURCES = Path(__file__).resolve().parents[2] / "src"


class NotInstalled(Exception):
    """The peer could not be installed; the text says why."""


class Unavailable(Exception):
    """This machine lacks what the peer runs on; the text names it."""


def prepare(peer: Peer, folder: Path) -> tuple[list[str], dict[str, str]]:
    """
    Install a peer, unless a marker says that it was.

    Returns:
        The command that runs its adapter, and environment variables for it.

    Raises:
        NotInstalled, Unavailable.
    """
    program = str(ADAPTERS / peer.program)
    match peer.ecosystem:
        case "here":
            return [sys.executable, program], {"PYTHONPATH": str(SOURCES)}
        case "pypi":
            python = folder / "bin" / "python"
            _once(
                folder,
                peer,
                [_interpreter(peer.python), "-m", "venv", str(folder)],
                [
                    str(python),
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    *peer.packages,
                ],
            )
            return [str(python), program], {}
        case "npm":
            if shutil.which("npm") is None:
                raise Unavailable("needs npm")
            modules = folder / "node_modules"
            folder.mkdir(parents=True, exist_ok=True)
            _once(
                folder,
                peer,
                [
                    "npm",
                    "install",
                    "--prefix",
                    str(folder),
                    "--no-audit",
                    "--no-fund",
                    "--silent",
                    *peer.packages,
                ],
            )
            return [str(modules / ".bin" / "node"), program], {"NODE_PATH": str(modules)}


def _interpreter(oldest: tuple[int, int]) -> str:
    """This Python, or a newer one on PATH that starts."""
    if sys.version_info >= oldest:
        return sys.executable
    for minor in range(oldest[1], oldest[1] + 3):
        found = shutil.which(f"python{oldest[0]}.{minor}")
        # A version switcher leaves names on PATH that start nothing.
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    raise Unavailable(f"needs Python {oldest[0]}.{oldest[1]}")


def _once(folder: Path, peer: Peer, *commands: list[str]) -> None:
    marker = folder / "installed"
    wanted = "\n".join(peer.packages)
    if marker.exists() and marker.read_text() == wanted:
        return
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, env=_plain(), check=False)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise NotInstalled(lines[-1] if lines else f"{command[0]} ended with {done.returncode}")
    marker.write_text(wanted)


def _plain() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
