"""
`fencerow`: the program. Commands live in one file per group; what is heavy is imported when a command runs.

Every error ends in one line on stderr and a code of the table in exits.py. FENCEROW_TRACEBACK=1 shows where it arose.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from fencerow.cli import db, demo, enqueue, exits, jobs, migrate, output, queues, stale, worker
from fencerow.errors import FencerowError

EPILOG = """\b
Exit codes: 0 ok, 1 the answer is no (not found, refused), 2 usage, 3 database or
configuration, 4 busy, 5 worker gave up, 130 interrupted.
--json prints one document: times in UTC, durations in seconds, integers beyond
2^53 and lease ids as strings.
"""

app = typer.Typer(
    name="fencerow",
    help="A PostgreSQL job queue in which every claim is a fenced lease.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    # Plain help: drawing it with rich would more than double the time until it is there.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            output.line(f"fencerow {version('fencerow')}")
        except PackageNotFoundError:
            output.line("fencerow, run from its sources without being installed")
        raise typer.Exit(exits.OK)


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """A PostgreSQL job queue in which every claim is a fenced lease."""


app.command("demo")(demo.demo)
app.command("migrate")(migrate.migrate)
app.command("enqueue", context_settings={"allow_extra_args": True})(enqueue.enqueue)
app.command("worker")(worker.worker)
app.command("stale")(stale.stale)
app.add_typer(jobs.app, name="job")
app.add_typer(queues.app, name="queue")
app.add_typer(db.app, name="db")


def main(arguments: list[str] | None = None) -> int:
    """Run the program with *arguments* (None: those of the process); the exit code."""
    try:
        app(arguments, prog_name="fencerow")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else exits.OK if end.code is None else exits.NO
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        output.hush()
        return exits.OK
    except FencerowError as error:
        if os.environ.get("FENCEROW_TRACEBACK") == "1":
            raise
        output.remark(f"fencerow: {output.plain(exits.sentence(error), limit=2000)}")
        return exits.code_of(error)
    return exits.OK


if __name__ == "__main__":
    sys.exit(main())
