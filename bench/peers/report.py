"""The table and the JSON document of what was played, and the part of docs/peers.md that is made from them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.peers.scenario import Played

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "peers.md"
BEGIN, END = "<!-- measured: made by the command -->\n", "<!-- /measured -->\n"


def document(played: list[Played], skipped: dict[str, str], *, postgresql: str, on: str) -> dict[str, Any]:
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


def measured(found: dict[str, Any]) -> str:
    """The document as Markdown."""
    lines = [
        f"Measured on {found['measured_on']} on PostgreSQL {found['postgresql']}.",
        "",
        "| peer | version | A's late success | record while B works | after A's success | after B's failure |",
        "|---|---|---|---|---|---|",
    ]
    for peer in found["peers"]:
        cells = (peer[key] for key in ("name", "version", "result", "both_at_work", "after_a", "after_b"))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines += ["", "How each peer's own recovery was brought about:", ""]
    lines += [f"- {peer['name']}: {peer['recovery']}. Source: {peer['source']}." for peer in found["peers"]]
    lines += [f"- {name}: skipped, {reason}." for name, reason in found["skipped"].items()]
    return "\n".join(lines) + "\n"


def with_measured(page: str, found: dict[str, Any]) -> str:
    """The page with its measured part made anew; ValueError when it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no measured part")
    return before + begin + measured(found) + end + after


def write(found: dict[str, Any]) -> None:
    """Replace the stored results and the part of the page that is made from them."""
    RESULTS.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    PAGE.write_text(with_measured(PAGE.read_text(), found))
