"""File locks that the kernel drops when their last holder dies, however it dies (flock)."""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_STEP_SECONDS = 0.01

SHARED = fcntl.LOCK_SH
ALONE = fcntl.LOCK_EX


def open_lock(path: Path) -> int:
    """Descriptor of a lock file, created if absent. Programs that we start do not get it; our forks do."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int, kind: int) -> bool:
    """Take the lock now, or say that somebody is in the way."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_by(descriptor: int, kind: int, deadline: float) -> bool:
    """Take the lock before the monotonic `deadline`, or return False."""
    while not try_lock(descriptor, kind):
        if time.monotonic() > deadline:
            return False
        time.sleep(_STEP_SECONDS)
    return True


def lock(descriptor: int, kind: int) -> None:
    """Take the lock, for as long as it takes."""
    fcntl.flock(descriptor, kind)


def unlock(descriptor: int) -> None:
    """Let the lock go, for every process that shares this descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def release(descriptor: int) -> None:
    """Unlock and close. Closing alone would leave the lock to a fork made meanwhile by another thread."""
    unlock(descriptor)
    os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock alone at this moment."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor, SHARED)
    finally:
        release(descriptor)
