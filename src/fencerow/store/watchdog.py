"""
The client's own deadline for a statement: it shuts the socket down, which wakes whoever waits on it.

Server-side timeouts do not fire on a half-open connection, during a wait for a synchronous standby, or behind a pooler.
Shutting the socket down (not closing it) makes libpq see end of file at once; a cancel request could hang likewise.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time


def shut(fd: int) -> None:
    """Shut down both directions of the socket behind a file descriptor that somebody else owns."""
    try:
        with socket.socket(fileno=os.dup(fd)) as twin:
            twin.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def watch_async(fd: int, seconds: float) -> asyncio.TimerHandle:
    """Arm the deadline on the running loop; cancel the handle when the statement is answered."""
    return asyncio.get_running_loop().call_later(seconds, shut, fd)


class ThreadWatchdog:
    """Deadlines of all synchronous sessions of a process, watched by one daemon thread that starts with the first."""

    TICK_SECONDS = 0.25

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deadlines: dict[int, tuple[float, int]] = {}
        self._next = 0
        self._owner: int | None = None

    def arm(self, fd: int, seconds: float) -> int:
        """Watch a descriptor; the token ends the watch."""
        with self._lock:
            if self._owner != os.getpid():
                self._deadlines.clear()
                self._owner = os.getpid()
                threading.Thread(target=self._watch, name="fencerow-watchdog", daemon=True).start()
            self._next += 1
            self._deadlines[self._next] = (time.monotonic() + seconds, fd)
            return self._next

    def disarm(self, token: int) -> None:
        """The statement was answered."""
        with self._lock:
            self._deadlines.pop(token, None)

    def _watch(self) -> None:
        while True:
            time.sleep(self.TICK_SECONDS)
            now = time.monotonic()
            with self._lock:
                over = [token for token, (deadline, _) in self._deadlines.items() if deadline <= now]
                for token in over:
                    shut(self._deadlines.pop(token)[1])


thread_watchdog = ThreadWatchdog()
