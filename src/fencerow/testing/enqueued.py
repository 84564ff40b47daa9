"""Asking the database which jobs were enqueued, with an answer that shows what is there instead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fencerow import codec, limits
from fencerow.app import App
from fencerow.app.results import refuse_in_loop
from fencerow.ops.base import Op
from fencerow.task import Task
from fencerow.types import JobState

SHOWN = 20
CHARACTERS = 200

_JOBS = (
    "SELECT x.id, x.task, x.queue, x.priority, x.state, x.parent_id, x.tags, j.payload::text "
    "FROM fencerow.job AS j JOIN fencerow.jobs AS x ON x.id = j.id ORDER BY x.id"
)


@dataclass(frozen=True, slots=True)
class EnqueuedJob:
    """One job as the database has it now; ``payload`` decoded."""

    id: int
    task: str
    queue: str
    priority: int
    state: str
    parent: int | None
    tags: tuple[str, ...]
    payload: Any


def _job(
    number: int, task: str, queue: str, priority: int, state: str, parent: int | None, tags: Any, payload: str
) -> EnqueuedJob:
    return EnqueuedJob(number, task, queue, priority, state, parent, tuple(tags or ()), json.loads(payload))


def _all() -> Op[list[EnqueuedJob]]:
    return Op(
        "enqueued",
        _JOBS,
        (),
        lambda rows: [_job(*row) for row in rows],
        writes=False,
    )


def assert_enqueued(
    app: App,
    task: Task[..., Any] | str,
    *,
    count: int = 1,
    payload: Mapping[str, Any] | None = None,
    queue: str | None = None,
    priority: int | None = None,
    state: JobState | None = None,
    parent: int | None = None,
    tag: str | None = None,
) -> list[EnqueuedJob]:
    """
    Assert that exactly *count* jobs of a task are in the database, in whatever state unless *state* says; these jobs.

    Args:
        task: the task, or its name.
        payload: arguments that they have among others, by name; nested objects are compared in the same way.

    Raises:
        AssertionError: another number; it lists the jobs that are there, payloads included.
        UsageError: an event loop runs in this thread; await aassert_enqueued() there.
    """
    refuse_in_loop("assert_enqueued", "aassert_enqueued")
    wanted = _wanted(
        task, payload=payload, queue=queue, priority=priority, state=state, parent=parent, tag=tag
    )
    return _judge(app.store().run(_all()), wanted, count)


async def aassert_enqueued(
    app: App,
    task: Task[..., Any] | str,
    *,
    count: int = 1,
    payload: Mapping[str, Any] | None = None,
    queue: str | None = None,
    priority: int | None = None,
    state: JobState | None = None,
    parent: int | None = None,
    tag: str | None = None,
) -> list[EnqueuedJob]:
    """As assert_enqueued, in an event loop."""
    wanted = _wanted(
        task, payload=payload, queue=queue, priority=priority, state=state, parent=parent, tag=tag
    )
    return _judge(await (await app.ready()).run(_all()), wanted, count)


def _wanted(task: Task[..., Any] | str, **more: Any) -> dict[str, Any]:
    wanted = {"task": task if isinstance(task, str) else task.name}
    wanted |= {name: value for name, value in more.items() if value is not None}
    if "payload" in wanted:
        # As it would be stored: a date in the test is the text that the database has.
        text = codec.encode(dict(more["payload"]), limit=limits.PAYLOAD_BYTES_MAX, loose=True)
        wanted["payload"] = json.loads(text)
    return wanted


def _judge(there: list[EnqueuedJob], wanted: dict[str, Any], count: int) -> list[EnqueuedJob]:
    found = [job for job in there if _fits(job, wanted)]
    if len(found) == count:
        return found
    told = ", ".join(f"{name}={_short(value)}" for name, value in wanted.items())
    lines = [f"expected {count} enqueued with {told}, found {len(found)}; the database has"]
    lines += [f"  {_line(job)}" for job in there[:SHOWN]] or ["  no jobs"]
    if len(there) > SHOWN:
        lines.append(f"  and {len(there) - SHOWN} more")
    raise AssertionError("\n".join(lines))


def _fits(job: EnqueuedJob, wanted: dict[str, Any]) -> bool:
    for name, value in wanted.items():
        match name:
            case "payload":
                fits = _holds(job.payload, value)
            case "tag":
                fits = value in job.tags
            case _:
                fits = getattr(job, name) == value
        if not fits:
            return False
    return True


def _holds(value: Any, part: Any) -> bool:
    if isinstance(part, dict) and isinstance(value, dict):
        return all(key in value and _holds(value[key], entry) for key, entry in part.items())
    return bool(value == part) and isinstance(value, bool) == isinstance(part, bool)


def _line(job: EnqueuedJob) -> str:
    more = "" if job.parent is None else f" child of {job.parent}"
    return f"job {job.id} {job.task} {job.state} queue={job.queue} priority={job.priority}{more} {_short(job.payload)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= CHARACTERS else text[: CHARACTERS - 1] + "…"
