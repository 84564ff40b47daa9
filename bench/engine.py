"""
Experiments on the engine's functions alone, one driver process, no worker: E1 (this layout against one table, pinned
snapshot or not, watermark or not), E3 (planner settings in the functions on and off), E4 (batch size and claimers).

``python -m bench.engine [e1|e3|e4 …]``
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench import measure
from fencerow.ops.base import int_array

PAYLOAD = '{"filler": "' + "x" * 130 + '"}'
LAG_SECONDS = 0.2
FULL_SECONDS = 0.25
PLANNER = ("plan_cache_mode", "enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
Connection = psycopg.Connection[tuple[object, ...]]
Step = Callable[[int], int]


def connect(dsn: str) -> Connection:
    """An autocommit connection."""
    return psycopg.connect(dsn, autocommit=True)


def fill(connection: Connection, count: int) -> None:
    """Preload and analyse."""
    for start in range(0, count, 10_000):
        size = min(10_000, count - start)
        connection.execute(
            "SELECT count(*) FROM fencerow.enqueue_many(array_fill('noop'::text, ARRAY[%(n)s]), "
            "array_fill(%(p)s::jsonb, ARRAY[%(n)s]), array_fill('bench'::text, ARRAY[%(n)s]), array_fill(100, ARRAY[%(n)s]))",
            {"n": size, "p": PAYLOAD},
        )
    connection.execute("VACUUM ANALYZE")
    connection.execute("CHECKPOINT")


@contextmanager
def pinned(dsn: str, wanted: bool) -> Iterator[None]:
    """An idle REPEATABLE READ session that holds its snapshot, or nothing."""
    if not wanted:
        yield
        return
    with psycopg.connect(dsn) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM pg_class")
        yield


def stepper(connection: Connection, batch: int, *, watermark: bool) -> Step:
    """One step claims a batch and completes it through the functions; the number of jobs."""
    lease = secrets.randbits(62)
    connection.execute("SELECT fencerow.open_lease(%s, 'bench', '1 hour')", (lease,))
    history: list[tuple[float, int]] = []
    full_at = 0.0

    def step(_: int) -> int:
        nonlocal full_at
        now = time.perf_counter()
        while len(history) > 1 and history[1][0] <= now - LAG_SECONDS:
            history.pop(0)
        mark = history[0][1] if watermark and history and history[0][0] <= now - LAG_SECONDS else None
        if now - full_at > FULL_SECONDS:
            mark, full_at = None, now
        rows = connection.execute(
            "SELECT job_id, generation, payload FROM fencerow.claim(%s, 'bench', %s, NULL, %s::smallint[], %s::bigint[])",
            (lease, batch, None if mark is None else "{100}", None if mark is None else int_array([mark])),
            binary=True,
        ).fetchall()
        if not rows:
            return 0
        history.append((time.perf_counter(), max(int(str(row[0])) for row in rows)))
        connection.execute(
            "SELECT verdict FROM fencerow.complete(%s, %s::bigint[], %s::bigint[])",
            (lease, int_array(int(str(row[0])) for row in rows), int_array(int(str(row[1])) for row in rows)),
            binary=True,
        ).fetchall()
        return len(rows)

    return step


def one_table_stepper(connection: Connection, batch: int) -> Step:
    """The same on the one-table alternative."""
    lease = secrets.randbits(62)

    def step(_: int) -> int:
        rows = connection.execute(
            "SELECT job_id, generation, payload FROM one.claim(%s, 'bench', %s)", (lease, batch), binary=True
        ).fetchall()
        if rows:
            connection.execute(
                "SELECT one.complete(%s, %s::bigint[], %s::int[])",
                (
                    lease,
                    int_array(int(str(row[0])) for row in rows),
                    int_array(int(str(row[1])) for row in rows),
                ),
                binary=True,
            ).fetchall()
        return len(rows)

    return step


def drain(step: Step, count: int) -> list[int]:
    """Drain; jobs per second in each fifth."""
    rates, done, began, mark = [], 0, time.perf_counter(), 0
    while done < count:
        done += step(done)
        if done - mark >= count // 5:
            rates.append(int((done - mark) / (time.perf_counter() - began)))
            began, mark = time.perf_counter(), done
    return rates


def e1(cluster: measure.Cluster, count: int) -> None:
    """This layout against one table, each with and without a pinned snapshot."""
    for pin in (False, True):
        for name in ("watermark", "from the start", "one table"):
            dsn = measure.fresh(cluster)
            with connect(dsn) as connection:
                if name == "one table":
                    connection.execute((Path(__file__).parent / "one_table.sql").read_bytes())
                    connection.execute(
                        "INSERT INTO one.job (queue, task, payload) SELECT 'bench', 'noop', %s::jsonb "
                        "FROM generate_series(1, %s)",
                        (PAYLOAD, count),
                    )
                    connection.execute("VACUUM ANALYZE")
                    connection.execute("CHECKPOINT")
                    step = one_table_stepper(connection, 200)
                else:
                    fill(connection, count)
                    step = stepper(connection, 200, watermark=name == "watermark")
                with pinned(dsn, pin):
                    wal = measure.wal_position(connection)
                    rates = drain(step, count)
                    wal = (measure.wal_position(connection) - wal) // count
            print(
                f"E1 {count} jobs {'pinned  ' if pin else 'unpinned'} {name:15} per fifth {rates}  WAL {wal} B/job",
                flush=True,
            )


def e3(cluster: measure.Cluster, count: int) -> None:
    """Planner settings in the functions on and off: never analysed, and analysed while nothing runs."""
    for analysed in (False, True):
        for pins in (True, False):
            dsn = measure.fresh(cluster)
            with connect(dsn) as connection:
                if not pins:
                    for function in ("claim", "complete"):
                        found = connection.execute(
                            "SELECT oid::regprocedure::text FROM pg_proc "
                            "WHERE proname = %s AND pronamespace = 'fencerow'::regnamespace",
                            (function,),
                        ).fetchone()
                        for setting in PLANNER:
                            connection.execute(
                                f"ALTER FUNCTION {found and found[0]} RESET {setting}".encode()
                            )
                fill(connection, count)
                if not analysed:
                    connection.execute(
                        "DELETE FROM pg_statistic WHERE starelid::regclass::text LIKE 'fencerow.%'"
                    )
                step = stepper(connection, 500, watermark=True)
                rates = drain(step, 100_000)
            print(
                f"E3 backlog {count} {'analysed' if analysed else 'no statistics'} "
                f"pins {'on ' if pins else 'off'} per fifth {rates}",
                flush=True,
            )


def e4(cluster: measure.Cluster, count: int) -> None:
    """Batch size against the number of claimers (threads of one process, so the driver shares one core)."""
    for batch in (1, 10, 100, 500):
        for claimers in (1, 4, 16):
            dsn = measure.fresh(cluster)
            total = min(count, batch * claimers * 400)
            with connect(dsn) as connection:
                fill(connection, total)
            waits: list[float] = []
            began = time.perf_counter()
            threads = [threading.Thread(target=_claimer, args=(dsn, batch, waits)) for _ in range(claimers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took = time.perf_counter() - began
            p50, p99 = statistics.median(waits), statistics.quantiles(waits, n=100)[-1]
            print(
                f"E4 batch {batch:4} claimers {claimers:3}  {int(total / took):7} jobs/s"
                f"  claim+complete p50 {p50 * 1e3:.2f} ms p99 {p99 * 1e3:.2f} ms",
                flush=True,
            )


def _claimer(dsn: str, batch: int, waits: list[float]) -> None:
    with connect(dsn) as connection:
        step = stepper(connection, batch, watermark=True)
        while True:
            began = time.perf_counter()
            if not step(0):
                return
            waits.append(time.perf_counter() - began)


def main() -> None:
    """Run the experiments that are named."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine")
    parser.add_argument("which", nargs="*", default=["e1", "e3", "e4"])
    chosen = parser.parse_args()
    with measure.server({"max_connections": "100"}) as cluster:
        for name, experiment, count in (("e1", e1, 200_000), ("e3", e3, 1_000_000), ("e4", e4, 100_000)):
            if name in chosen.which:
                experiment(cluster, count)


if __name__ == "__main__":
    main()
