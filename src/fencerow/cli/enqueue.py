"""`fencerow enqueue`: one job from the command line."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencerow import limits
from fencerow.cli import facts, location, output, values
from fencerow.errors import UnknownTask

if TYPE_CHECKING:
    from fencerow.app import App
    from fencerow.types import NewJob

_STDIN_CHARACTERS_MAX = 4 * limits.PAYLOAD_BYTES_MAX


TaskName = Annotated[str, typer.Argument(metavar="TASK", help="The task's name.")]
Payload = Annotated[
    str,
    typer.Argument(metavar="JSON", help="Its arguments by name, as one JSON object; - reads it from stdin."),
]
Queue = Annotated[str | None, typer.Option("--queue", help="[default: the task's]")]
Priority = Annotated[
    int | None,
    typer.Option("--priority", min=limits.PRIORITY_MIN, max=limits.PRIORITY_MAX, help="Lower runs sooner."),
]
RunIn = Annotated[
    float | None,
    typer.Option(
        "--run-in", metavar="DURATION", parser=values.delay, help="Not before 10m, 2h or so have passed."
    ),
]
RunAt = Annotated[
    datetime | None,
    typer.Option(
        "--run-at", metavar="TIME", parser=values.instant, help="Not before: ISO 8601 with its zone."
    ),
]
IdempotencyKey = Annotated[
    str | None, typer.Option("--idempotency-key", help="The same key again answers the same job.")
]
UniqueKey = Annotated[
    str | None, typer.Option("--unique", metavar="KEY", help="At most one live job holds this key.")
]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="May be given several times.")]


def enqueue(
    context: typer.Context,
    task: TaskName,
    payload: Payload = "{}",
    queue: Queue = None,
    priority: Priority = None,
    run_in: RunIn = None,
    run_at: RunAt = None,
    idempotency_key: IdempotencyKey = None,
    unique: UniqueKey = None,
    tag: Tags = None,
    dsn: location.Dsn = None,
    app: location.AppRef = None,
    schema: location.Schema = None,
    as_json: location.Json = False,
    quiet: location.Quiet = False,
) -> None:
    """
    Enqueue one job, and print its id.

    Where an app is known (--app, or FENCEROW_APP names the database), the payload must fit the task's parameters.
    Otherwise it is sent as it is, for any task, known here or not.
    """
    if context.args:
        raise typer.BadParameter(
            "there is more than one argument after TASK; quote the JSON as one", param_hint="JSON"
        )
    if run_in is not None and run_at is not None:
        raise typer.BadParameter("give --run-in or --run-at, not both")
    options = _options(queue, priority, run_in, run_at, idempotency_key, unique, tag)
    given = values.json_object(sys.stdin.read(_STDIN_CHARACTERS_MAX) if payload == "-" else payload)
    _send(location.Asked(dsn, app, schema, quiet or as_json), task, given, options, as_json=as_json)


def _options(
    queue: str | None,
    priority: int | None,
    run_in: float | None,
    run_at: datetime | None,
    idempotency_key: str | None,
    unique: str | None,
    tags: list[str] | None,
) -> dict[str, Any]:
    from fencerow import names
    from fencerow.types import Unique

    options: dict[str, Any] = {"priority": priority, "run_in": run_in, "run_at": run_at}
    options["queue"] = None if queue is None else names.check_queue(queue)
    options["idempotency_key"] = None if idempotency_key is None else names.check_key(idempotency_key)
    options["unique"] = None if unique is None else Unique(names.check_key(unique, "a unique key"))
    options["tags"] = list(names.check_tags(tags)) if tags else None
    return {name: value for name, value in options.items() if value is not None}


def _job(app: App | None, task: str, payload: dict[str, Any]) -> NewJob:
    from fencerow import codec, names
    from fencerow.types import NewJob

    text = codec.encode(payload, limit=limits.PAYLOAD_BYTES_MAX)
    if app is None:
        return NewJob(task=names.check_task(task), payload=text)
    try:
        known = app.tasks[task]
    except KeyError:
        raise UnknownTask(
            f"the app has no task {output.plain(task, limit=200)}",
            hint=f"It has: {', '.join(sorted(app.tasks)) or 'none'}.",
        ) from None
    positional, named = known.load(text)
    # The database knows a task's policy once a worker declared it; the app knows it before.
    return known.bind(*positional, **named)


def _send(
    asked: location.Asked, task: str, payload: dict[str, Any], options: dict[str, Any], *, as_json: bool
) -> None:
    from fencerow.ops import inspect, jobs

    with location.opened(asked) as space:
        job = replace(_job(space.location.app, task, payload), **options)
        done = space.run(jobs.enqueue([job]))[0]
        warn = not asked.silent and sys.stderr.isatty()
        found = space.run(inspect.job_facts(done.id)) if warn else None
    if as_json:
        output.document({"id": done.id, "created": done.created})
    else:
        output.line(f"job {done.id}" if done.created else f"job {done.id} (there before: its key is held)")
    if found is not None:
        _warn(facts.timed(found))


def _warn(told: facts.Facts) -> None:
    obstacle = facts.obstacle(told) if told["state"] in ("ready", "scheduled") else ""
    if obstacle:
        output.remark(f"remark: it {obstacle}")
