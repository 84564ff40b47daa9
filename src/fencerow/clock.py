"""The local clock for deadlines and trust: it goes on while the machine is suspended, unlike CLOCK_MONOTONIC on Linux."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime() -> float:
    """Seconds since boot, suspends included. Never compared with another machine's or the database's clock."""
    return time.clock_gettime(_CLOCK)
