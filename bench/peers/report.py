"""The table and the JSON document of what was played."""

from __future__ import annotations

from dataclasses import asdict

from bench.peers.scenario import Played

RESULTS = "results.json"


def document(played: list[Played], skipped: dict[str, str], *, postgresql: str, on: str) -> dict[str, object]:
    """Everything that was seen; *on* is a date in ISO form."""
    return {
        "scenario": "stale",
        "measured_on": on,
        "postgresql": postgresql,
        "peers": [asdict(entry) for entry in played],
        "skipped": skipped,
    }


def table(played: list[Played], skipped: dict[str, str]) -> str:
    """Plain text: one line a peer, then its records."""
    lines = ["A stalled worker reports success after its job was given to another one:", ""]
    for entry in played:
        lines.append(f"{entry.name + ' ' + entry.version:28} {entry.result}")
        lines.append(f"    both at work   {entry.both_at_work}")
        lines.append(f"    A succeeded    {entry.after_a}")
        lines.append(f"    B failed       {entry.after_b}")
        lines.append(f"    recovery       {entry.recovery}")
        lines.append(f"    source         {entry.source}")
    lines += [f"{name:28} skipped: {reason}" for name, reason in skipped.items()]
    return "\n".join(lines)
