"""`fencerow job`: look at jobs, cancel them, redrive failed ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencerow import limits
from fencerow.cli import exits, facts, location, output, values

if TYPE_CHECKING:
    from fencerow.ops.inspect import JobRow

app = typer.Typer(
    name="job", no_args_is_help=True, help="Jobs: list, show, cancel, redrive.", rich_markup_mode=None
)

LIMIT_MAX = 10_000
ROUNDS_MAX = 50
"""How many pages a list reads when few jobs match: each looks at 10,000 jobs at most."""


class State(StrEnum):
    """States that a job of this release can be in."""

    scheduled = "scheduled"
    ready = "ready"
    running = "running"
    done = "done"
    failed = "failed"
    cancelled = "cancelled"


Id = Annotated[int, typer.Argument(metavar="ID", parser=values.job_id, help="The job's id.")]
Ids = Annotated[list[int], typer.Argument(metavar="ID...", parser=values.job_id, help="Ids of jobs.")]


@app.command("list")
def list_(
    state: Annotated[State | None, typer.Option("--state", help="Only jobs in this state.")] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", metavar="QUEUE", parser=values.queue_name, help="Only of this queue."),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TASK", parser=values.task_name, help="Only of this task.")
    ] = None,
    before: Annotated[
        int | None,
        typer.Option("--before", metavar="ID", parser=values.job_id, help="Only jobs below this id."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=LIMIT_MAX, help="At most so many.")] = 50,
    dsn: location.Dsn = None,
    app: location.AppRef = None,
    schema: location.Schema = None,
    as_json: location.Json = False,
    quiet: location.Quiet = False,
) -> None:
    """List jobs, newest first. More than one page: go on with --before and the last id."""
    asked = location.Asked(dsn, app, schema, quiet or as_json)
    with location.opened(asked) as space:
        rows, cursor = _walk(space, state and state.value, queue, task, before, limit)
    if as_json:
        output.document({"jobs": [asdict(row) for row in rows], "before": cursor})
        return
    if not rows:
        output.line("no job" if cursor is None else f"no job from id {cursor} on")
    else:
        output.table(
            ("id", "state", "task", "queue", "prio", "gen", "attempt", "enqueued", "about"),
            [_cells(row) for row in rows],
            right=(0, 4, 5, 6),
        )
    if cursor is not None and not asked.silent:
        output.remark(f"more: --before {cursor}")


def _walk(
    space: location.Space,
    state: str | None,
    queue: str | None,
    task: str | None,
    before: int | None,
    limit: int,
) -> tuple[list[JobRow], int | None]:
    from fencerow.ops import inspect

    found: list[JobRow] = []
    for _ in range(ROUNDS_MAX):
        page = space.run(
            inspect.job_page(state=state, queue=queue, task=task, before=before, limit=limit - len(found))
        )
        found += page.jobs
        if page.before is None or page.before <= 1:
            return found, None
        before = page.before
        if len(found) >= limit:
            break
    return found, before


def _cells(row: JobRow) -> tuple[str, ...]:
    about = output.first_line(row.error, limit=60)
    if row.state == "running" and row.lease_until is not None:
        about = f"{row.worker}, lease until {output.clock_time(row.lease_until)[11:]}"
    elif row.state == "scheduled" and row.run_at is not None:
        about = f"at {output.clock_time(row.run_at)}"
    return (
        str(row.id),
        row.state or "nowhere",
        row.task,
        row.queue,
        str(row.priority),
        str(row.generation if row.generation is not None else ""),
        f"{row.attempt}/{row.max_attempts}",
        output.clock_time(row.created_at),
        about,
    )


@app.command()
def show(
    job_id: Id,
    payload: Annotated[bool, typer.Option("--payload", help="With its payload, headers and result.")] = False,
    dsn: location.Dsn = None,
    app: location.AppRef = None,
    schema: location.Schema = None,
    as_json: location.Json = False,
    quiet: location.Quiet = False,
) -> None:
    """Show one job, its attempts, refused writes and interventions, and what it waits for."""
    from fencerow.ops import inspect

    with location.opened(location.Asked(dsn, app, schema, quiet or as_json)) as space:
        found = space.run(inspect.job_facts(job_id, payload=payload))
    if found is None:
        if as_json:
            output.document({"id": job_id, "state": None})
        output.remark(
            f"fencerow: there is no job {job_id} (It may have been purged: see its task's retention.)"
        )
        raise typer.Exit(exits.NO)
    told = facts.timed(found)
    if as_json:
        output.document(facts.document(told, payload=payload), verbatim=True)
    else:
        facts.show(told, payload=payload)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What became of one job: ``result`` is a word of the database, ``told`` a sentence, ``code`` an exit code."""

    id: int
    result: str
    told: str
    code: int


@app.command()
def cancel(
    job_ids: Ids,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why, for the record and the job's error.")
    ] = None,
    dsn: location.Dsn = None,
    app: location.AppRef = None,
    schema: location.Schema = None,
    as_json: location.Json = False,
    quiet: location.Quiet = False,
) -> None:
    """
    Cancel jobs. One that runs is asked to stop: its worker learns it with the next renewal.

    Exit code 1 when one of them had ended otherwise before, or does not exist.
    """
    from fencerow.ops import jobs

    if reason is not None:
        values.name(reason, "reason", limits.REASON_CHARACTERS_MAX)
    by = location.person()

    def one(space: location.Space, job_id: int) -> _Answer:
        result = space.run(jobs.cancel(job_id, by, reason))
        match result:
            case "cancelled":
                return _Answer(job_id, result, "is cancelled", exits.OK)
            case "requested":
                return _Answer(job_id, result, "runs and is asked to stop", exits.OK)
            case "unknown":
                return _Answer(job_id, result, "does not exist", exits.NO)
        return _Answer(job_id, result, f"is {result} already", exits.NO)

    _each(location.Asked(dsn, app, schema, quiet or as_json), job_ids, one, as_json=as_json)


@app.command()
def redrive(
    job_ids: Ids,
    dsn: location.Dsn = None,
    app: location.AppRef = None,
    schema: location.Schema = None,
    as_json: location.Json = False,
    quiet: location.Quiet = False,
) -> None:
    """
    Make failed jobs ready again, with a fresh budget of attempts.

    Exit code 1 when one of them is not failed, does not exist, or another job holds its unique key.
    """
    from fencerow.ops import inspect, jobs

    by = location.person()

    def one(space: location.Space, job_id: int) -> _Answer:
        # redrive() itself answers "ready" both for what it did and for a job that was ready before.
        found = space.run(inspect.job_facts(job_id))
        if found is None:
            return _Answer(job_id, "unknown", "does not exist", exits.NO)
        if found["state"] != "failed":
            return _Answer(job_id, str(found["state"]), f"is {found['state']}, not failed", exits.NO)
        result = space.run(jobs.redrive(job_id, by))
        if result == "ready":
            return _Answer(job_id, result, "is ready again", exits.OK)
        return _Answer(job_id, result, f"is {result}, not failed", exits.NO)

    _each(location.Asked(dsn, app, schema, quiet or as_json), job_ids, one, as_json=as_json)


def _each(
    asked: location.Asked,
    job_ids: list[int],
    one: Callable[[location.Space, int], _Answer],
    *,
    as_json: bool,
) -> None:
    """Do it for each id in order; what stands in the way of one job does not stop the others."""
    from fencerow import errors

    answers: list[_Answer] = []
    with location.opened(asked) as space:
        try:
            for job_id in dict.fromkeys(job_ids):
                try:
                    answer = one(space, job_id)
                except (errors.Duplicate, errors.ResourceBusy) as error:
                    answer = _Answer(job_id, error.code, str(error), exits.code_of(error))
                answers.append(answer)
                if not as_json:
                    output.line(f"job {job_id}: {output.plain(answer.told)}")
        finally:
            if as_json:
                output.document({"jobs": [_told(answer) for answer in answers]})
    worst = max((answer.code for answer in answers), default=exits.OK)
    if worst:
        raise typer.Exit(worst)


def _told(answer: _Answer) -> dict[str, Any]:
    return {"id": answer.id, "result": answer.result, "ok": answer.code == exits.OK}
