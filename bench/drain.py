"""
W1: no-op jobs, preloaded, drained by worker processes.

The queue is paused while the workers start; the time runs from the resume to the last row in ``ended``, counted by SQL
from outside. Conservation is checked: every job done once.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass

import psycopg

from bench import measure
from fencerow.ops import jobs
from fencerow.store.session import SyncSession, Target
from fencerow.types import NewJob


@dataclass(frozen=True)
class Drain:
    """One round. CPU in microseconds per job: server = all PostgreSQL processes, worker = worker and renewer."""

    jobs: int
    processes: int
    jobs_per_second: float
    enqueue_per_second: float
    server_us: float
    worker_us: float
    wal_enqueue: float
    wal_drain: float


def one_round(cluster: measure.Cluster, *, count: int, processes: int, task: str, concurrency: int) -> Drain:
    """Fill, start the workers, drain."""
    dsn = measure.fresh(cluster)
    payload = '{"filler": "' + "x" * 130 + '"}'
    session = SyncSession(Target(dsn))
    with psycopg.connect(dsn, autocommit=True) as connection:
        before, began = measure.wal_position(connection), time.perf_counter()
        for start in range(0, count, 10_000):
            size = min(10_000, count - start)
            session.run(
                jobs.enqueue([NewJob(f"bench.tasks.{task}", payload, queue="bench", priority=100)] * size)
            )
        filled = time.perf_counter() - began
        wal_enqueue = (measure.wal_position(connection) - before) / count
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")
        connection.execute("SELECT fencerow.pause('bench')")
        arguments = ("--processes", str(processes), "--concurrency", str(concurrency))
        with measure.worker(dsn, *arguments) as process:
            live = "SELECT count(*) FROM fencerow.live_workers()"
            measure.until(
                lambda: connection.execute(live).fetchone() == (processes,), 30, "the workers did not start"
            )
            time.sleep(0.5)
            wal, server, worker = (
                measure.wal_position(connection),
                measure.cpu_seconds(cluster.pid or 0),
                measure.cpu_seconds(process.pid),
            )
            began = time.perf_counter()
            connection.execute("SELECT fencerow.resume('bench')")
            ended = "SELECT count(*) FROM fencerow.ended"
            measure.until(
                lambda: connection.execute(ended).fetchone() == (count,), 600, "the jobs did not end"
            )
            took = time.perf_counter() - began
            drain = Drain(
                count,
                processes,
                count / took,
                count / filled,
                (measure.cpu_seconds(cluster.pid or 0) - server) / count * 1e6,
                (measure.cpu_seconds(process.pid) - worker) / count * 1e6,
                wal_enqueue,
                (measure.wal_position(connection) - wal) / count,
            )
        row = connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE outcome = 'done'), max(generation) FROM fencerow.ended"
        ).fetchone()
        if row != (count, count, 1):
            raise AssertionError(f"not every job was done once: {row}")
    session.close()
    return drain


def run(
    *, count: int, processes: int, rounds: int, task: str = "noop", concurrency: int = 10
) -> dict[str, object]:
    """Rounds on one server; each figure's median, minimum and maximum."""
    with measure.server() as cluster:
        done = [
            asdict(one_round(cluster, count=count, processes=processes, task=task, concurrency=concurrency))
            for _ in range(rounds)
        ]
    figures = {
        key: {"median": statistics.median(values), "min": min(values), "max": max(values)}
        for key in done[0]
        if key not in ("jobs", "processes")
        for values in [[entry[key] for entry in done]]
    }
    return {"what": "drain", "task": task, "jobs": count, "processes": processes, "rounds": rounds, **figures}
