"""`fencerow queue`: what waits in which queue, who serves it, pause and resume."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fencerow.cli import location, output, values

if TYPE_CHECKING:
    from fencerow.ops.inspect import QueueRow

app = typer.Typer(
    name="queue", no_args_is_help=True, help="Queues: list, pause, resume.", rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(metavar="QUEUE", parser=values.queue_name, help="The queue.")]


@app.command("list")
def list_(
    dsn: location.Dsn = None,
    app: location.AppRef = None,
    schema: location.Schema = None,
    as_json: location.Json = False,
    quiet: location.Quiet = False,
) -> None:
    """List the queues that have a live job, a setting or a live worker. Ended jobs are not counted."""
    from fencerow.ops import inspect

    with location.opened(location.Asked(dsn, app, schema, quiet or as_json)) as space:
        rows = space.run(inspect.queue_counts())
    if as_json:
        output.document({"queues": [asdict(row) for row in rows]})
        return
    if not rows:
        output.line("no queue has a live job, a setting or a live worker")
        return
    output.table(
        ("queue", "ready", "scheduled", "running", "suspects", "oldest", "workers", "remark"),
        [
            (
                row.queue,
                *(str(n) for n in (row.ready, row.scheduled, row.running, row.suspects)),
                "" if row.oldest_seconds is None else output.span(row.oldest_seconds),
                str(row.workers),
                _remark(row),
            )
            for row in rows
        ],
        right=(1, 2, 3, 4, 5, 6),
    )


def _remark(row: QueueRow) -> str:
    if row.paused_at is not None:
        return f"paused by {row.paused_by} at {output.clock_time(row.paused_at)}"
    if row.workers == 0 and (row.ready or row.scheduled):
        return "no live worker serves it"
    return ""


@app.command()
def pause(
    queue: Name,
    dsn: location.Dsn = None,
    app: location.AppRef = None,
    schema: location.Schema = None,
    as_json: location.Json = False,
    quiet: location.Quiet = False,
) -> None:
    """Stop claims of a queue; jobs that run finish. Pausing a paused queue changes nothing and is no error."""
    _switch(location.Asked(dsn, app, schema, quiet or as_json), queue, on=False, as_json=as_json)


@app.command()
def resume(
    queue: Name,
    dsn: location.Dsn = None,
    app: location.AppRef = None,
    schema: location.Schema = None,
    as_json: location.Json = False,
    quiet: location.Quiet = False,
) -> None:
    """Let a paused queue be claimed again. Resuming one that is not paused changes nothing and is no error."""
    _switch(location.Asked(dsn, app, schema, quiet or as_json), queue, on=True, as_json=as_json)


def _switch(asked: location.Asked, queue: str, *, on: bool, as_json: bool) -> None:
    from fencerow.ops import inspect, queues

    with location.opened(asked) as space:
        change = (queues.resume if on else queues.pause)(queue, location.person())
        changed = space.run(change)
        found = next((row for row in space.run(inspect.queue_counts()) if row.queue == queue), None)
    if as_json:
        output.document({"queue": queue, "paused": not on, "changed": changed})
        return
    shown = output.plain(queue)
    if on:
        output.line(f"queue {shown}: {'resumed' if changed else 'was not paused'}")
    elif changed or found is None:
        output.line(f"queue {shown}: paused")
    else:
        output.line(f"queue {shown}: {output.plain(_remark(found))} already")
    if not asked.silent and (
        found is None or not (found.ready or found.scheduled or found.running or found.workers)
    ):
        output.remark(f"remark: queue {shown} has no live job and no live worker; is the name right?")
