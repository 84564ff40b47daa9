"""
How long jobs wait: short ones beside a long one, scheduled ones on an idle worker, any during a rolling deploy, and one
at a time. Times are the database's, or wall time of this machine, on which the database runs.
"""

from __future__ import annotations

import json
import random
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from bench import measure
from bench.soak import places, processes
from fencerow.ops import jobs
from fencerow.store.session import SyncSession, Target
from fencerow.types import NewJob

SHORT_JOBS, SHORT_SECONDS, LONG_SECONDS = 40, 0.1, 10.0
SHORT_MAX_SECONDS = 2.0
SCHEDULED_MAX_SECONDS = 0.05
DEPLOY_GRACE_SECONDS = 3.0
DEPLOY_WORKERS = 3
PICKUP_RATE = 20.0
Figures = dict[str, Any]


def percentile(values: Sequence[float], fraction: float) -> float:
    """By nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


@dataclass
class _Place:
    """A fresh space, and how to start workers on it."""

    dsn: str
    folder: Path
    mark: str

    @contextmanager
    def worker(self, *arguments: str) -> Iterator[processes.Fleet]:
        """One worker that serves the queue ``bench``, seen to be idle."""
        env = processes.environment(self.mark, self.dsn, self.folder)
        command = ["--queues", "bench", "--quiet", "--log-level", "warning", *arguments]
        before = self.serving()
        fleet = processes.Fleet(1, command, env=env, folder=self.folder, app=places.APP)
        try:
            measure.until(lambda: self.serving() > before, 60, "the worker did not start")
            yield fleet
        finally:
            codes = fleet.stop(30)
            if codes != [0]:
                raise AssertionError(f"the worker ended with {codes}")

    def serving(self) -> int:
        """Workers that sleep, waiting for a hint."""
        return int(self.rows("SELECT count(DISTINCT lease_id) FROM fencerow.asleep")[0][0])

    def rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """One statement."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(statement.encode(), parameters or None).fetchall()

    def drained(self, count: int, seconds: float) -> None:
        """Wait until *count* jobs ended, and check that each was done."""
        statement = "SELECT count(*), count(*) FILTER (WHERE outcome = 'done') FROM fencerow.ended"
        measure.until(lambda: self.rows(statement)[0][0] >= count, seconds, "the jobs did not end")
        if self.rows(statement)[0] != (count, count):
            raise AssertionError("not every job was done once")


def _wait_job(seconds: float, **more: Any) -> NewJob:
    return NewJob("wait", json.dumps({"seconds": seconds}), queue="bench", **more)


def mix(place: _Place, *, quick: bool) -> Figures:
    """40 jobs of 100 ms beside one of 10 s, concurrency 4: the time until the 40 have ended."""
    long = 3.0 if quick else LONG_SECONDS
    session = SyncSession(Target(place.dsn))
    with place.worker("--concurrency", "4"):
        session.run(jobs.enqueue([_wait_job(long)] + [_wait_job(SHORT_SECONDS) for _ in range(SHORT_JOBS)]))
        place.drained(SHORT_JOBS + 1, 60)
    session.close()
    rows = place.rows(
        "SELECT extract(epoch FROM e.ended_at - j.created_at)::float8 FROM fencerow.ended AS e "
        "JOIN fencerow.job AS j ON j.id = e.job_id ORDER BY 1"
    )
    took = rows[SHORT_JOBS - 1][0]
    return {
        "seconds_until_the_short_ended": took,
        "target": SHORT_MAX_SECONDS,
        "met": took <= SHORT_MAX_SECONDS,
    }


def scheduled(place: _Place, *, quick: bool) -> Figures:
    """200 scheduled jobs on an idle worker: start minus run_at."""
    count, spread = (30, 4.0) if quick else (200, 25.0)
    chance = random.Random(7)
    session = SyncSession(Target(place.dsn))
    with place.worker("--concurrency", "10"):
        first = datetime.now(UTC) + timedelta(seconds=2)
        times = [first + timedelta(seconds=spread * chance.random()) for _ in range(count)]
        session.run(jobs.enqueue([_wait_job(0.0, run_at=at) for at in times]))
        place.drained(count, spread + 60)
    session.close()
    rows = place.rows(
        "SELECT extract(epoch FROM e.claimed_at - j.run_at)::float8, "
        "e.result::float8 - extract(epoch FROM j.run_at)::float8 "
        "FROM fencerow.ended AS e JOIN fencerow.job AS j ON j.id = e.job_id"
    )
    claimed, started = [row[0] for row in rows], [row[1] for row in rows]
    p99 = percentile(started, 0.99)
    return {
        "claimed_p50": statistics.median(claimed),
        "claimed_p99": percentile(claimed, 0.99),
        "started_p50": statistics.median(started),
        "started_p99": p99,
        "earliest": min(started),
        "target": SCHEDULED_MAX_SECONDS,
        "met": p99 <= SCHEDULED_MAX_SECONDS and min(claimed) >= 0,
    }


_WAITS = """
SELECT extract(epoch FROM e.claimed_at - j.created_at - coalesce(
    (SELECT sum(a.ended_at - a.claimed_at) FROM fencerow.attempt AS a WHERE a.job_id = e.job_id), '0 s'))::float8
FROM fencerow.ended AS e JOIN fencerow.job AS j ON j.id = e.job_id
"""


def deploy(place: _Place, *, quick: bool) -> Figures:
    """Three workers are replaced one after the other, under load, the new one beside the old one."""
    seconds = 8.0 if quick else 30.0
    arguments = ("--concurrency", "6", "--grace", str(DEPLOY_GRACE_SECONDS))
    chance, sent = random.Random(11), 0
    session = SyncSession(Target(place.dsn))
    env = processes.environment(place.mark, place.dsn, place.folder)
    command = ["--queues", "bench", "--quiet", "--log-level", "warning", *arguments]

    def start() -> processes.Fleet:
        before = _live(place)
        fleet = processes.Fleet(1, command, env=env, folder=place.folder, app=places.APP)
        measure.until(lambda: _live(place) > before, 60, "the worker did not start")
        return fleet

    old = [start() for _ in range(DEPLOY_WORKERS)]
    codes: list[int | None] = []
    replaced = _Replacing(old, start, codes)
    replaced.begin(seconds / (DEPLOY_WORKERS + 1))
    began = time.monotonic()
    try:
        while time.monotonic() - began < seconds or not replaced.over:
            # Most are short; some outlive the grace and have to be given back.
            new = [_wait_job(5.0 if chance.random() < 0.03 else 0.3 * chance.random()) for _ in range(4)]
            session.run(jobs.enqueue(new))
            sent += len(new)
            time.sleep(0.1)
        place.drained(sent, 60)
    finally:
        replaced.end()
        session.close()
    waits = [row[0] for row in place.rows(_WAITS)]
    kinds = dict(place.rows("SELECT kind, count(*) FROM fencerow.attempt GROUP BY kind"))
    longest, target = max(waits), DEPLOY_GRACE_SECONDS + 1
    return {
        "jobs": sent,
        "longest_wait": longest,
        "wait_p99": percentile(waits, 0.99),
        "attempts": kinds,
        "exit_codes": codes,
        "target": target,
        "met": longest <= target and set(codes) == {0} and set(kinds) <= {"released"},
    }


def _live(place: _Place) -> int:
    return int(place.rows("SELECT count(*) FROM fencerow.live_workers()")[0][0])


class _Replacing:
    """Replaces workers one by one in a thread: starts the new one, then tells the old one to stop and waits for it."""

    def __init__(
        self, fleets: list[processes.Fleet], start: Callable[[], processes.Fleet], codes: list[int | None]
    ) -> None:
        import threading

        self._fleets = fleets
        self._start = start
        self._codes = codes
        self._pause = 0.0
        self._thread = threading.Thread(target=self._replace, name="deploy")

    @property
    def over(self) -> bool:
        """Whether all were replaced."""
        return not self._thread.is_alive()

    def begin(self, pause: float) -> None:
        """Replace one each *pause* seconds."""
        self._pause = pause
        self._thread.start()

    def _replace(self) -> None:
        for place, old in enumerate(list(self._fleets)):
            time.sleep(self._pause)
            self._fleets[place] = self._start()
            self._codes += old.stop(30)

    def end(self) -> None:
        """Stop those that run now."""
        self._thread.join()
        for fleet in self._fleets:
            self._codes += fleet.stop(30)


def pickup(place: _Place, *, quick: bool) -> Figures:
    """20 jobs a second, one at a time, on an idle worker: start of the handler minus the enqueue's return and its call."""
    count = 60 if quick else 600
    session = SyncSession(Target(place.dsn))
    called, returned = {}, {}
    with place.worker("--concurrency", "10"):
        began = time.monotonic()
        for n in range(count):
            time.sleep(max(0.0, began + n / PICKUP_RATE - time.monotonic()))
            at = time.time()
            number = session.run(jobs.enqueue([_wait_job(0.0)]))[0].id
            called[number], returned[number] = at, time.time()
        place.drained(count, 60)
    session.close()
    started = dict(place.rows("SELECT job_id, result::float8 FROM fencerow.ended"))
    after_return = [started[number] - at for number, at in returned.items()]
    after_call = [started[number] - at for number, at in called.items()]
    p99 = percentile(after_return, 0.99)
    return {
        "after_the_enqueue_returned_p50": statistics.median(after_return),
        "after_the_enqueue_returned_p99": p99,
        "after_the_enqueue_was_called_p50": statistics.median(after_call),
        "after_the_enqueue_was_called_p99": percentile(after_call, 0.99),
        "target": 0.005,
        "met": p99 <= 0.005,
    }


PARTS: dict[str, Callable[..., Figures]] = {
    "mix": mix,
    "scheduled": scheduled,
    "deploy": deploy,
    "pickup": pickup,
}


def run(only: Sequence[str] | None, *, quick: bool) -> dict[str, Figures]:
    """The parts asked for, each on a fresh space of one server."""
    found: dict[str, Figures] = {}
    with measure.server() as cluster, tempfile.TemporaryDirectory(prefix="fencerow-soak-") as name:
        for part, function in PARTS.items():
            if not only or part in only:
                folder = Path(name) / part
                (folder / "tmp").mkdir(parents=True)
                place = _Place(measure.fresh(cluster), folder, secrets.token_hex(8))
                found[part] = function(place, quick=quick)
    return found


def main(only: Sequence[str] | None, evidence: Path | None, *, quick: bool) -> int:
    """Run, print, write the evidence; 1 when a target was missed."""
    found = run(only, quick=quick)
    for part, figures in found.items():
        text = PARTS[part].__doc__ or part
        print(f"{part}: {text.strip()}")
        for name, value in figures.items():
            shown = f"{value:.4f}" if isinstance(value, float) else value
            print(f"  {name:36} {shown}")
    if evidence is not None:
        evidence.write_text(json.dumps({"what": "latency", **found}, indent=1) + "\n")
    return int(not all(figures["met"] for figures in found.values()))
