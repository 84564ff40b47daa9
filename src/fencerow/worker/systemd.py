"""systemd's notification socket: READY, STOPPING, WATCHDOG. Silent where there is none."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> bool:
    """Tell the service manager, as ``READY=1``; False where nobody asked to be told."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address or address[0] not in "/@":
        return False
    name = "\0" + address[1:] if address[0] == "@" else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | getattr(socket, "SOCK_CLOEXEC", 0)) as channel:
            channel.connect(name)
            channel.sendall(state.encode())
    except OSError:
        return False
    return True


def watchdog_seconds() -> float | None:
    """How often WATCHDOG=1 is due: half of what the unit asks for; None when it asks for nothing."""
    micros, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not micros.isdecimal() or int(micros) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(micros) / 2e6
