"""`fencerow worker`: run jobs."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

from fencerow import config, limits
from fencerow.cli import exits, location, values
from fencerow.errors import ConfigError
from fencerow.loading import load_app

NAME_CHARACTERS_MAX = 150
"""A worker adds to its name what makes it unlike any other start; the database takes 200 characters."""


class Level(StrEnum):
    """Levels of the worker's log."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def worker(
    ref: Annotated[
        str | None,
        typer.Argument(metavar="APP", help="The App as module:name; the same as --app. [env: FENCEROW_APP]"),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queues",
            metavar="NAME[:N],…",
            help="Queues in order of rank; N is a queue's own concurrency, the others share --concurrency. "
            "A backslash before a comma or colon makes it part of a name. [default: default]",
        ),
    ] = None,
    concurrency: Annotated[
        int,
        typer.Option("--concurrency", min=1, max=limits.CONCURRENCY_MAX, help="Jobs at once, per process."),
    ] = limits.CONCURRENCY_DEFAULT,
    processes: Annotated[
        int, typer.Option("--processes", min=1, max=limits.PROCESSES_MAX, help="Worker processes.")
    ] = 1,
    burst: Annotated[bool, typer.Option("--burst", help="End when nothing is due.")] = False,
    lease: Annotated[
        float | None,
        typer.Option(
            "--lease",
            metavar="DURATION",
            parser=values.lease_length,
            help="How long a worker that vanished keeps its jobs. [default: the app's, 30s unless it says otherwise]",
        ),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            "--grace",
            metavar="DURATION",
            parser=values.grace_length,
            help="Time that running jobs get to end on SIGTERM.",
        ),
    ] = limits.GRACE_SECONDS_DEFAULT,
    name: Annotated[
        str | None,
        typer.Option("--name", help="What this worker is called in lists and logs. [default: made up]"),
    ] = None,
    log_level: Annotated[Level, typer.Option("--log-level", help="What to log.")] = Level.info,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="One JSON object per log line.")] = False,
    alone: Annotated[bool, typer.Option("--alone", hidden=True)] = False,
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
