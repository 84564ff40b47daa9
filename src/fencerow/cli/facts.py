"""One job for people: as JSON with this program's times and numbers, as text, and what it waits for in one line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fencerow.cli import output
from fencerow.cli.output import clock_time, first_line, plain, span

Facts = Mapping[str, Any]
"""What `fencerow.ops.inspect.job_facts` answers: times are ISO 8601 texts there."""

ON_REQUEST = ("payload", "headers", "result")
"""What may hold what a log must not: shown when asked for, as it was stored."""

_TIMES = frozenset(
    {"created_at", "run_at", "ready_since", "claimed_at", "ended_at", "lease_until", "now", "paused_at", "at"}
)

_LISTS = frozenset({"attempts", "refusals", "interventions"})


def timed(facts: Facts) -> dict[str, Any]:
    """The facts with datetimes for texts, ``timeout_seconds`` for ``timeout``, lease ids as texts."""
    found: dict[str, Any] = {}
    for key, value in facts.items():
        if key in _TIMES and isinstance(value, str):
            found[key] = datetime.fromisoformat(value)
        elif key == "timeout":
            found["timeout_seconds"] = output.seconds_of(value)
        elif key == "lease_id" and value is not None:
            found[key] = str(value)
        elif key in _LISTS:
            found[key] = [timed(entry) for entry in value or ()]
        else:
            found[key] = value
    return found


def document(facts: Facts, *, payload: bool) -> dict[str, Any]:
    """The JSON form, with ``waits_for``: the line that the text form ends with."""
    told = output.jsonable({key: value for key, value in facts.items() if key not in ON_REQUEST})
    told["waits_for"] = waits_for(facts)
    if payload:
        told.update({key: facts[key] for key in ON_REQUEST})
    return dict(told)


def waits_for(facts: Facts) -> str:
    """One line: what a job waits for, or who runs it and until when, or how it ended."""
    match facts["state"]:
        case "scheduled":
            return _scheduled(facts)
        case "ready":
            return _ready(facts)
        case "running":
            return _running(facts)
        case "done":
            late = ", after a cancel was asked for" if facts["cancel_requested"] else ""
            return f"ended done at {clock_time(facts['ended_at'])}, {_attempts(facts)}{late}"
        case "failed":
            return (
                f"ended failed at {clock_time(facts['ended_at'])}, {_attempts(facts)}: {first_line(facts['error'])} "
                f"(again: fencerow job redrive {facts['id']})"
            )
        case "cancelled":
            return f"ended cancelled at {clock_time(facts['ended_at'])}: {first_line(facts['error'])}"
    return "is nowhere: it has no ticket and has not ended; this must not be, please report it"


def _attempts(facts: Facts) -> str:
    return f"attempt {facts['attempt']} of {facts['max_attempts']}"


def _scheduled(facts: Facts) -> str:
    left = (facts["run_at"] - facts["now"]).total_seconds()
    if left > 0:
        why = " (its retry)" if facts["attempts"] else ""
        return f"waits for its time{why}: {clock_time(facts['run_at'])}, in {span(left)}"
    return f"its time came {span(left)} ago: " + (
        obstacle(facts) or "the next sweep of a worker makes it ready"
    )


def _ready(facts: Facts) -> str:
    stopped = obstacle(facts)
    if stopped:
        return stopped
    if facts["suspect"]:
        return (
            "waits to be run alone: it was lost together with others, so a process of its own takes it next"
        )
    served = facts["task_workers"]
    who = "the live worker that serves" if served == 1 else f"one of {served} live workers that serve"
    since = f", ready for {span((facts['now'] - facts['ready_since']).total_seconds())}"
    return f"waits for a free slot of {who} queue {plain(facts['queue'])} and knows its task{since}"


def obstacle(facts: Facts) -> str:
    """Why no worker takes a ready job, as a sentence without its subject; empty when nothing is in the way."""
    queue = plain(facts["queue"])
    if facts["paused_at"] is not None:
        by, since = plain(str(facts["paused_by"])), clock_time(facts["paused_at"])
        return f"waits: queue {queue} is paused by {by} since {since}"
    if not facts["queue_workers"]:
        return f"waits for a worker: no live worker serves queue {queue}"
    if not facts["task_workers"]:
        count = facts["queue_workers"]
        those = (
            "the live worker that serves" if count == 1 else f"none of the {count} live workers that serve"
        )
        does = "does not know" if count == 1 else "knows"
        return f"waits for a worker: {those} queue {queue} {does} task {plain(facts['task'])}"
    return ""


def _running(facts: Facts) -> str:
    left = (facts["lease_until"] - facts["now"]).total_seconds()
    asked = ", asked to stop" if facts["cancel_requested"] else ""
    where = f"generation {facts['generation']} under worker {plain(facts['worker'])}{asked}"
    if left > 0:
        return f"runs: {where}; its lease ends at {clock_time(facts['lease_until'])}, in {span(left)}, unless renewed"
    return f"lost: {where}; its lease ended {span(left)} ago and the next sweep of any worker takes it back"


def show(facts: Facts, *, payload: bool) -> None:
    """Print one job as text; the last line is waits_for()."""
    output.line(f"job {facts['id']}: {facts['state'] or 'nowhere'}")
    for name, value in _lines(facts):
        output.line(f"  {name:<16} {plain(value)}")
    if payload:
        for key in ON_REQUEST:
            output.line(f"  {key:<16} {plain(_json(facts[key]))}")
    for title, rows in (
        ("attempts that did not complete", [_attempt(entry) for entry in facts["attempts"]]),
        ("refused writes", [_refusal(entry) for entry in facts["refusals"]]),
        ("interventions", [_intervention(entry) for entry in facts["interventions"]]),
    ):
        if rows:
            output.line(f"  {title}")
            for row in rows:
                output.line(f"    {row}")
    output.line(waits_for(facts))


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _lines(facts: Facts) -> list[tuple[str, str]]:
    def since(key: str) -> str:
        return f"{clock_time(facts[key])} ({span((facts['now'] - facts[key]).total_seconds())} ago)"

    limit = facts["timeout_seconds"]
    lines = [
        ("task", facts["task"]),
        ("queue", f"{facts['queue']}, priority {facts['priority']}"),
        ("enqueued", since("created_at")),
        ("attempts", f"{facts['attempt']} of {facts['max_attempts']}, generation {facts['generation']}"),
        ("when lost", "fails: a person decides" if facts["on_lost"] == "fail" else "runs again"),
        ("timeout", "none" if limit is None else limit if isinstance(limit, str) else span(limit)),
    ]
    if facts["state"] in ("running", "done", "failed", "cancelled") and facts["claimed_at"] is not None:
        lines.append(("claimed", since("claimed_at")))
    if facts["progress"] is not None:
        lines.append(("progress", f"{facts['progress']:.0%} {facts['note'] or ''}".rstrip()))
    for name, key in (
        ("unique key", "unique_key"),
        ("idempotency key", "idempotency_key"),
        ("child of job", "parent_id"),
    ):
        if facts[key] is not None:
            lines.append((name, str(facts[key])))
    if facts["tags"]:
        lines.append(("tags", ", ".join(facts["tags"])))
    return lines


def _attempt(entry: Facts) -> str:
    took = span((entry["ended_at"] - entry["claimed_at"]).total_seconds())
    return (
        f"generation {entry['generation']}, attempt {entry['attempt']}: {entry['kind']} after {took} at "
        f"{clock_time(entry['ended_at'])}, worker {plain(str(entry['worker']))}, lease {entry['lease_id']}"
        + (f": {first_line(entry['error'])}" if entry["error"] else "")
    )


def _refusal(entry: Facts) -> str:
    by = "" if entry["current_generation"] is None else f" (generation {entry['current_generation']} by then)"
    return (
        f"{clock_time(entry['at'])}: {entry['op']} of generation {entry['generation']} by worker "
        f"{plain(str(entry['worker']))} refused: {entry['verdict']}{by}"
    )


def _intervention(entry: Facts) -> str:
    note = f": {first_line(entry['note'])}" if entry["note"] else ""
    return f"{clock_time(entry['at'])}: {entry['verb']} by {plain(entry['by'])}{note}"
