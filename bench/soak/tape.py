"""What a campaign left behind: the producers' notes, the calls of handlers, and the rows of the database, as values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg


@dataclass(frozen=True, slots=True)
class Sent:
    """One batch of a producer. ``was``: acknowledged, uncertain, refused or rolled back."""

    numbers: tuple[int, ...]
    how: str
    was: str
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A row of ``job``; ``n`` from its payload."""

    id: int
    n: int
    task: str
    key: str | None = None
    max_attempts: int = 20


@dataclass(frozen=True, slots=True)
class Ended:
    """A row of ``ended``. Times: wall clock of this machine, seconds."""

    job: int
    generation: int
    attempt: int
    outcome: str
    claimed_at: float
    at: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """A row of ``attempt``."""

    job: int
    generation: int
    attempt: int
    kind: str
    claimed_at: float
    at: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row of ``refusal``."""

    job: int
    generation: int
    op: str
    verdict: str
    at: float


@dataclass(slots=True)
class Call:
    """One call of a handler. ``ended``, ``outcome``, ``effect``, ``applied`` are None where its process did not get so far."""

    job: int
    generation: int
    attempt: int
    key: str
    pid: int
    began: float
    ended: float | None = None
    outcome: str | None = None
    phase: str | None = None
    effect: float | None = None
    applied: bool | None = None


@dataclass(slots=True)
class Tape:
    """
    Everything that the checker reads.

    Attributes:
        orders: numbers in the business table of the producers who had a transaction.
        business: (job, generation) of each row that ``job.commit()`` wrote.
        ledger: keys whose effect the destination applied.
        live: jobs that have not ended.
        stopped: calls that came too late and were stopped at their beginning.
    """

    sent: list[Sent] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    business: list[tuple[int, int]] = field(default_factory=list)
    ledger: set[str] = field(default_factory=set)
    live: set[int] = field(default_factory=set)
    stopped: int = 0


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    """Every whole line below a folder; the last one of a killed process may be cut."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield json.loads(line)


def read_sent(folder: Path) -> list[Sent]:
    """The producers' notes."""
    return [Sent(tuple(line["n"]), line["how"], line["was"], tuple(line["ids"])) for line in _lines(folder)]


def read_calls(lines: Iterable[dict[str, Any]]) -> tuple[list[Call], int]:
    """Calls from the lines of effect logs, and how many were stopped at their beginning."""
    calls: list[Call] = []
    open_: dict[tuple[int, int, int], Call] = {}
    stopped = 0
    for line in lines:
        place = (line["job"], line["gen"], line["pid"])
        if line["e"] == "stopped":
            stopped += 1
        elif line["e"] == "begin":
            call = Call(line["job"], line["gen"], line["attempt"], line["key"], line["pid"], line["w"])
            calls.append(call)
            open_[place] = call
        else:
            call = open_[place]
            call.ended, call.outcome, call.phase = line["w"], line["outcome"], line["phase"]
            call.effect, call.applied = line.get("effect"), line.get("applied")
    return calls, stopped


def _epoch(column: str) -> str:
    return f"extract(epoch FROM {column})::float8"


def read(folder: Path, connection: psycopg.Connection[Any]) -> Tape:
    """The whole tape of a campaign that has drained."""

    def rows(statement: str) -> list[tuple[Any, ...]]:
        return connection.execute(statement.encode()).fetchall()

    calls, stopped = read_calls(_lines(folder / "effects"))
    live = rows(
        "SELECT job_id FROM fencerow.ready UNION ALL SELECT job_id FROM fencerow.scheduled "
        "UNION ALL SELECT job_id FROM fencerow.running"
    )
    claimed, at = _epoch("claimed_at"), _epoch("ended_at")
    return Tape(
        sent=read_sent(folder / "sent"),
        jobs=[
            Job(*row)
            for row in rows(
                "SELECT j.id, (j.payload->>'n')::bigint, j.task, j.idempotency_key, "
                "coalesce(j.max_attempts, t.max_attempts, 20) FROM fencerow.job AS j "
                "LEFT JOIN fencerow.task AS t ON t.name = j.task"
            )
        ],
        ended=[
            Ended(*row)
            for row in rows(
                f"SELECT job_id, generation, attempt, outcome, {claimed}, {at} FROM fencerow.ended"
            )
        ],
        attempts=[
            Attempt(*row)
            for row in rows(
                f"SELECT job_id, generation, attempt, kind, {claimed}, {at}, left(error, 200) FROM fencerow.attempt"
            )
        ],
        refusals=[
            Refusal(*row)
            for row in rows(f"SELECT job_id, generation, op, verdict, {_epoch('at')} FROM fencerow.refusal")
        ],
        calls=calls,
        orders=[row[0] for row in rows("SELECT n FROM public.soak_orders")],
        business=[(row[0], row[1]) for row in rows("SELECT job_id, generation FROM public.soak_business")],
        ledger={path.name for path in (folder / "ledger").glob("*/*")},
        live={row[0] for row in live},
        stopped=stopped,
    )
