"""What people set on a queue."""

from __future__ import annotations

from fencerow.ops.base import Op, scalar


def pause(queue: str, by: str | None = None) -> Op[bool]:
    """Stop claims of a queue; False when it was paused already."""
    return Op("pause", "SELECT fencerow.pause(%s, %s)", (queue, by), scalar)


def resume(queue: str, by: str | None = None) -> Op[bool]:
    """Let a paused queue be claimed again; False when it was not paused."""
    return Op("resume", "SELECT fencerow.resume(%s, %s)", (queue, by), scalar)
