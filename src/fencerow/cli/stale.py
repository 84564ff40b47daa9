"""`fencerow stale`: claims past the end of their lease. It changes nothing."""

from __future__ import annotations

from dataclasses import asdict

from fencerow.cli import location, output

_FATES = {"back": "runs again", "failed": "fails", "cancelled": "ends cancelled"}


def stale(
    dsn: location.Dsn = None,
    app: location.AppRef = None,
    schema: location.Schema = None,
    as_json: location.Json = False,
    quiet: location.Quiet = False,
) -> None:
    """List claims past the end of their lease that no sweep has taken back yet, and what becomes of their jobs."""
    from fencerow.ops import inspect

    with location.opened(location.Asked(dsn, app, schema, quiet or as_json)) as space:
        rows = space.run(inspect.stale())
    if as_json:
        renamed = {"claim_age": "claim_age_seconds", "over_since": "over_since_seconds"}
        output.document({"stale": [{renamed.get(k, k): v for k, v in asdict(row).items()} for row in rows]})
    elif not rows:
        output.line("no claim is past the end of its lease")
    else:
        output.table(
            (
                "job",
                "gen",
                "attempt",
                "task",
                "queue",
                "worker",
                "claimed",
                "lease over",
                "on lost",
                "the next sweep",
            ),
            [
                (
                    str(row.job_id),
                    str(row.generation),
                    str(row.attempt),
                    row.task,
                    row.queue,
                    row.worker,
                    f"{output.span(row.claim_age.total_seconds())} ago",
                    f"{output.span(row.over_since.total_seconds())} ago",
                    row.policy,
                    f"it {_FATES.get(row.fate, row.fate)}",
                )
                for row in rows
            ],
            right=(0, 1, 2),
        )
