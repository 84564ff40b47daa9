"""What postmaster.pid says, and whether it is true.

A pid alone proves nothing: after `kill -9` it may be a zombie, and after a reboot or in a new container it
may belong to anybody. Where /proc exists, a live server is a process that works *in* its data folder.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from fencerow.errors import ServerError

_STEP_SECONDS = 0.02


def recorded_pid(data: Path) -> int | None:
    """Pid in postmaster.pid; None if there is no file, or none that can be read."""
    try:
        first = (data / "postmaster.pid").read_bytes().split(b"\n", 1)[0]
        return abs(int(first))  # a single-user server records its pid negated
    except (OSError, ValueError):
        return None


def says_ready(data: Path) -> bool:
    """Whether the postmaster wrote that it accepts connections (last line of its file)."""
    try:
        return b"\nready" in (data / "postmaster.pid").read_bytes()
    except OSError:
        return False


def working_in(data: Path) -> list[int]:
    """Live processes whose working folder is `data`: postmaster and backends. Empty where /proc is absent."""
    try:
        wanted = data.stat()
        names = os.listdir("/proc")
    except OSError:
        return []
    found: list[int] = []
    for name in names:
        if not name.isdigit():
            continue
        try:
            place = os.stat(f"/proc/{name}/cwd")
        except OSError:  # gone, a zombie, or another account's
            continue
        if (place.st_dev, place.st_ino) == (wanted.st_dev, wanted.st_ino):
            found.append(int(name))
    return found


def live_pid(data: Path) -> int | None:
    """Pid of the postmaster that serves `data`, if one does."""
    pid = recorded_pid(data)
    if pid is None:
        return None
    if Path("/proc/self/cwd").exists():
        return pid if pid in working_in(data) else None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return pid
    return pid


def stop_orphan(data: Path, deadline: float) -> None:
    """Shut down a server of `data` whose starter is gone, cleanly, and wait until it is.

    Monotonic `deadline`.
    """
    pid = live_pid(data)
    if pid is not None:
        try:
            os.kill(pid, signal.SIGINT)
        except ProcessLookupError:
            return
        wait_until_gone(data, deadline)


def wait_until_gone(data: Path, deadline: float) -> None:
    """Wait for the last process of `data`: a new postmaster must not share files with old backends."""
    while left := working_in(data) or [pid for pid in (live_pid(data),) if pid is not None]:
        if time.monotonic() > deadline:
            raise ServerError(
                f"Processes {left} of an earlier server still work in {data}.",
                hint="End them, then start again.",
            )
        time.sleep(_STEP_SECONDS)


def clear_stale(data: Path, sockets: Path, deadline: float) -> None:
    """Remove what a killed server left, once none of its processes is left. ServerError if one is alive.

    PostgreSQL clears most of this itself, but takes any live process that got the old pid for the old server.
    """
    pid = live_pid(data)
    if pid is not None:
        raise ServerError(
            f"A server (pid {pid}) already serves {data}.", hint="Stop it, or use another folder."
        )
    wait_until_gone(data, deadline)
    if Path("/proc/self/cwd").exists():
        (data / "postmaster.pid").unlink(missing_ok=True)
        clear_sockets(sockets)


def clear_sockets(sockets: Path) -> None:
    """Remove the socket and the lock file of a server that is gone."""
    for name in (".s.PGSQL.5432", ".s.PGSQL.5432.lock"):
        (sockets / name).unlink(missing_ok=True)
