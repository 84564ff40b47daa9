"""`fencerow worker`: run jobs."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from fencerow import config, limits
from fencerow.cli import exits, location, output, values
from fencerow.errors import ConfigError
from fencerow.loading import load_app

if TYPE_CHECKING:
    from fencerow.app import App

NAME_CHARACTERS_MAX = 150
"""A worker adds to its name what makes it unlike any other start; the database takes 200 characters."""


class Level(StrEnum):
    """Levels of the worker's log."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


Ref = Annotated[
    str | None,
    typer.Argument(metavar="APP", help="The App as module:name; the same as --app. [env: FENCEROW_APP]"),
]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queues",
        metavar="NAME[:N],...",
        help="Queues in order of rank; N is a queue's own concurrency, the others share --concurrency. "
        "A backslash before a comma or colon makes it part of a name. [default: default]",
    ),
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", min=1, max=limits.CONCURRENCY_MAX, help="Jobs at once, per process.")
]
Processes = Annotated[
    int, typer.Option("--processes", min=1, max=limits.PROCESSES_MAX, help="Worker processes.")
]
Burst = Annotated[bool, typer.Option("--burst", help="End when nothing is due.")]
Lease = Annotated[
    float | None,
    typer.Option(
        "--lease",
        metavar="DURATION",
        parser=values.lease_length,
        help="How long a worker that vanished keeps its jobs. [default: the app's, 30s unless it says otherwise]",
    ),
]
Grace = Annotated[
    float,
    typer.Option(
        "--grace",
        metavar="DURATION",
        parser=values.grace_length,
        help="Time that running jobs get to end on SIGTERM.",
    ),
]
Name = Annotated[
    str | None,
    typer.Option("--name", help="What this worker is called in lists and logs. [default: made up]"),
]
LogLevel = Annotated[Level, typer.Option("--log-level", help="What to log.")]
JsonLogs = Annotated[bool, typer.Option("--json-logs", help="One JSON object per log line.")]
Alone = Annotated[bool, typer.Option("--alone", hidden=True)]


def worker(
    ref: Ref = None,
    queues: Queues = None,
    concurrency: Concurrency = limits.CONCURRENCY_DEFAULT,
    processes: Processes = 1,
    burst: Burst = False,
    lease: Lease = None,
    grace: Grace = limits.GRACE_SECONDS_DEFAULT,
    name: Name = None,
    log_level: LogLevel = Level.info,
    json_logs: JsonLogs = False,
    alone: Alone = False,
    dsn: location.Dsn = None,
    app: location.AppRef = None,
    schema: location.Schema = None,
    quiet: location.Quiet = False,
) -> None:
    """
    Run the jobs of an app until SIGTERM, or with --burst until nothing is due.

    The first SIGTERM or Ctrl-C stops claiming and lets running jobs end; the second ends at once. Exit code 5 when
    worker processes die again and again, 3 when waiting cannot cure the database or the configuration.
    """
    if ref is not None and app is not None and ref != app:
        raise typer.BadParameter("APP and --app name different apps")
    named = ref or app or os.environ.get(config.APP_VARIABLE)
    if not named:
        raise ConfigError("no app is named", hint="Give module:name, as in: fencerow worker shop:app")
    asked = location.Asked(dsn, ref or app, schema, quiet or json_logs)
    served = values.queues(queues or ["default"])
    if name is not None:
        values.name(name, "worker name", NAME_CHARACTERS_MAX)
    place = location.locate(asked)
    known = place.app or load_app(named)
    location.announce(asked, place)
    if not asked.silent:
        for doubt in _doubts(known, [queue for queue, _ in served]):
            output.remark(f"remark: {output.plain(doubt)}")

    from fencerow import worker as engine

    settings = engine.WorkerSettings(
        app_ref=named,
        queues=served,
        concurrency=concurrency,
        processes=processes,
        burst=burst,
        lease=known.lease if lease is None else lease,
        grace=grace,
        name=name,
        alone=alone,
        dsn=place.dsn if place.app is None else dsn,
        schema=schema,
        log_level=log_level.value,
        json_logs=json_logs,
    )
    code = engine.main(settings)
    if code != exits.OK:
        raise typer.Exit(code)


def _doubts(app: App, served: list[str]) -> list[str]:
    """What looks like a typing error, without asking the database: queues and tasks that do not meet."""
    if not app.tasks:
        return [
            "the app has no task, so every job fails here; import the modules that define them where it is made"
        ]
    used = sorted({task.policy.queue for task in app.tasks.values()})
    return [
        f"queue {queue} is the queue of no task of this app; theirs: {', '.join(used)}"
        for queue in served
        if queue not in used
    ]
