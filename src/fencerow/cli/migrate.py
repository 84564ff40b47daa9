"""`fencerow migrate`: install a space or bring it to this release."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from fencerow.cli import location, output

if TYPE_CHECKING:
    from fencerow.store.migrate import Report


def migrate(
    plan: Annotated[bool, typer.Option("--plan", help="List what would be done, and do nothing.")] = False,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print it as a script for psql, and do nothing.")
    ] = False,
    dsn: location.Dsn = None,
    app: location.AppRef = None,
    schema: location.Schema = None,
    as_json: location.Json = False,
    quiet: location.Quiet = False,
) -> None:
    """
    Install the schema, or bring it to this release. Idempotent, and safe with several at once.

    All of it happens in one transaction: a failure leaves nothing. No running worker has to be stopped.
    """
    if sql and as_json:
        raise typer.BadParameter("--sql prints a script, not JSON")
    from fencerow.store import migrate as store

    asked = location.Asked(dsn, app, schema, quiet or as_json)
    place = location.locate(asked)
    location.announce(asked, place)
    with location.served(place) as address:
        work = store.plan_dsn if plan or sql else store.migrate_dsn
        report = work(address, place.schema)
    if sql:
        output.line(store.script(report).rstrip("\n"))
    elif as_json:
        _document(report, planned=plan)
    else:
        _text(report, planned=plan)


def _document(report: Report, *, planned: bool) -> None:
    steps = [{"kind": step.kind, "name": step.name} for step in report.steps]
    output.document({"schema": report.schema, "planned": planned, "steps": steps})


def _text(report: Report, *, planned: bool) -> None:
    name = output.plain(report.schema)
    if report.idle:
        output.line(f"schema {name} is up to date")
        return
    if planned:
        for step in report.steps:
            output.line(f"{step.kind:<10} {output.plain(step.name)}")
    counts = Counter(step.kind for step in report.steps)
    parts = [
        f"{counts[kind]} {kind}{'s' if counts[kind] > 1 else ''}"
        for kind in ("migration", "routine", "index")
        if counts[kind]
    ]
    verb = "would apply" if planned else "applied"
    output.line(f"schema {name}: {verb} {', '.join(parts) or 'the function set'}")
