"""
What each hot statement reads, in shared buffers, on 20,000 ended jobs: bounded whatever history, backlog and statistics say.

A function hides its statements from EXPLAIN, so their reads are counted: the block hits and reads of the space's
tables and indexes before and after a call, from a session that does nothing else (C006, C008, C020, C068).
"""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from fencerow.ops import jobs, workers
from fencerow.ops.base import Op, Row
from fencerow.store.session import run_on
from fencerow.testing.space import Space
from fencerow.types import Claim, NewJob
from tests.sql.steps import A, B, claim, lease, settlement

ENDED, READY, AHEAD, LIVE = 20_000, 500, 2_000, 200
"""Jobs that ended, are ready, are scheduled for next week, and run under the lease of somebody else."""

FILL = f"""
INSERT INTO fencerow.job (id, created_at, priority, queue, task, payload, unique_key, unique_until)
  SELECT n, now(), 100, 'default', 't', '{{}}', CASE WHEN n % 100 = 0 THEN 'k' || n END, CASE WHEN n % 100 = 0 THEN 'finished' END
  FROM generate_series(1, {ENDED + READY + AHEAD + LIVE}) AS n;
INSERT INTO fencerow.ended (job_id, lease_id, claimed_at, ended_at, generation, attempt, outcome)
  SELECT n, 1, now(), now(), 1, 1, 'done' FROM generate_series(1, {ENDED}) AS n;
INSERT INTO fencerow.ready (since, job_id, generation, priority, attempt, queue)
  SELECT now(), n, 0, 100, 0, 'default' FROM generate_series({ENDED + 1}, {ENDED + READY}) AS n;
INSERT INTO fencerow.scheduled (run_at, job_id, generation, priority, attempt, queue)
  SELECT now() + interval '7 days', n, 0, 100, 0, 'default'
  FROM generate_series({ENDED + READY + 1}, {ENDED + READY + AHEAD}) AS n;
INSERT INTO fencerow.running (lease_id, job_id, claimed_at, generation, attempt)
  SELECT {B}, n, now(), 1, 1 FROM generate_series({ENDED + READY + AHEAD + 1}, {ENDED + READY + AHEAD + LIVE}) AS n;
SELECT setval('fencerow.job_id', {ENDED + READY + AHEAD + LIVE});
"""
READS = """
SELECT sum(coalesce(heap_blks_hit, 0) + coalesce(heap_blks_read, 0) + coalesce(idx_blks_hit, 0) + coalesce(idx_blks_read, 0)
           + coalesce(toast_blks_hit, 0) + coalesce(tidx_blks_hit, 0))::bigint
FROM pg_statio_all_tables WHERE schemaname = 'fencerow'
"""
HOSTILE = (
    "hashjoin",
    "mergejoin",
    "hashagg",
    "sort",
    "material",
    "bitmapscan",
    "indexscan",
    "indexonlyscan",
    "tidscan",
    "nestloop",
)


TABLES = (
    "job",
    "ended",
    "ready",
    "scheduled",
    "running",
    "lease",
    "attempt",
    "unique_key",
    "past_lease",
    "refusal",
    "idempotency_key",
)


@pytest.fixture(params=["never analysed", "analysed", "analysed when empty"])
def full(space: Space, request: pytest.FixtureRequest) -> Iterator[Space]:
    """A space with history, whose statistics are absent, right, or those of an empty one."""
    tables = ", ".join(f"fencerow.{name}" for name in TABLES)
    # Dead rows of earlier tests would be read too, and autovacuum's own reads would be counted.
    space.rows(f"TRUNCATE {tables}")
    for name in TABLES:
        space.rows(f"ALTER TABLE fencerow.{name} SET (autovacuum_enabled = off)")
    if request.param == "analysed when empty":
        space.rows(f"ANALYZE {tables}")
    lease(space, A, seconds=3600)
    lease(space, B, seconds=3600)
    space.rows(FILL)
    if request.param == "analysed":
        space.rows(f"VACUUM ANALYZE {tables}")
    yield space
    space.release()
    space.rows(f"TRUNCATE {tables}")
    for name in TABLES:
        space.rows(f"ALTER TABLE fencerow.{name} RESET (autovacuum_enabled)")


def reads(space: Space, connection: psycopg.Connection[Row], call: Callable[[], object]) -> int:
    """Buffers of the space's tables and indexes that one call touches."""
    before = settled(space, connection)
    call()
    return settled(space, connection) - before


def settled(space: Space, connection: psycopg.Connection[Row]) -> int:
    """The counters, once both sessions have handed in all that they counted."""
    for session in (space.connection, connection):
        session.execute("SELECT pg_stat_force_next_flush()")
        session.execute("SELECT 1")
    return int(space.value(READS))


def cost(space: Space, connection: psycopg.Connection[Row], op: Op[Any]) -> int:
    return reads(space, connection, lambda: run_on(connection, op))


def _claims(space: Space, count: int) -> list[Claim]:
    return claim(space, A, limit=count)


def _complete(space: Space) -> Op[Any]:
    return jobs.settle([settlement(held, "complete", result="1") for held in _claims(space, 10)])


def _retry(space: Space) -> Op[Any]:
    return jobs.settle([settlement(held, "retry", error="x", delay=5.0) for held in _claims(space, 10)])


def _stale(space: Space) -> Op[Any]:
    held = _claims(space, 1)[0]
    return jobs.settle([settlement(held._replace(generation=0), "complete")])


def _over(space: Space) -> Op[Any]:
    _claims(space, 10)
    space.rows("UPDATE fencerow.lease SET until = fencerow.now() WHERE id = %s", (A,))
    return jobs.expire(10)


def _due(space: Space) -> Op[Any]:
    space.rows(
        "UPDATE fencerow.scheduled SET run_at = fencerow.now() WHERE job_id = %s", (ENDED + READY + 1,)
    )
    return jobs.promote()


PREPARE: dict[str, tuple[Callable[[Space], Op[Any]], int]] = {
    "claim of 10": (lambda space: jobs.claim(A, "default", limit=10), 200),
    "claim above a watermark": (lambda space: jobs.claim(A, "default", limit=10, marks={100: ENDED}), 200),
    "claim of nothing": (lambda space: jobs.claim(A, "other", limit=10), 12),
    "complete of 10": (_complete, 180),
    "retry of 10": (_retry, 320),
    "a refused completion": (_stale, 60),
    "progress": (lambda space: jobs.progress(_claims(space, 1)[0], 0.5, "x"), 20),
    "renew": (lambda space: workers.renew(B), 16),
    "expire of nothing": (lambda space: jobs.expire(), 12),
    "expire of 10": (_over, 280),
    "promote of nothing": (lambda space: jobs.promote(), 12),
    "promote of 1": (_due, 40),
    "purge of a page": (lambda space: jobs.purge(0, 100), 1000),
    "cancel": (lambda space: jobs.cancel(ENDED + READY), 60),
    "enqueue": (lambda space: jobs.enqueue([NewJob("t", "{}")]), 40),
}


def test_calls_read_a_bounded_number_of_buffers(full: Space) -> None:
    """Each call is made seven times, because a session may change to a generic plan at the sixth."""
    connection = full.connect()
    used: dict[str, int] = {}
    for name, (prepare, _) in PREPARE.items():
        for _ in range(7):
            op = prepare(full)
            used[name] = max(used.get(name, 0), cost(full, connection, op))
            full.rows(
                "INSERT INTO fencerow.lease (id, until, length, worker) VALUES (%s, now() + interval '1 h', '1 h', 'a') "
                "ON CONFLICT (id) DO UPDATE SET until = excluded.until",
                (A,),
            )
    assert all(used.values())
    assert {name: count for name, count in used.items() if count > PREPARE[name][1]} == {}


@pytest.mark.parametrize("off", [(), *((name,) for name in HOSTILE), HOSTILE])
def test_limits_hold_under_every_plan(space: Space, off: tuple[str, ...]) -> None:
    """C008: plans that run a subquery again must not make claim, sweep, promotion or purge exceed their limit."""
    options = " ".join(f"-c enable_{name}=off" for name in off) + " -c plan_cache_mode=force_custom_plan"
    connection = space.connect(options=options.strip())
    lease(space, A, seconds=3600)
    run_on(connection, jobs.enqueue([NewJob("t", "{}") for _ in range(20)]))
    run_on(connection, jobs.enqueue([NewJob("t", "{}", queue="later", run_in=1.0) for _ in range(20)]))

    held = run_on(connection, jobs.claim(A, "default", limit=1))
    assert len(held) == space.value("SELECT count(*) FROM fencerow.running") == 1
    held += [*run_on(connection, jobs.claim(A, "default", limit=3, marks={100: 0}))]
    held += [*run_on(connection, jobs.claim(A, "default", limit=16))]
    assert [c.job_id for c in held] == list(range(1, 21))
    answers = run_on(connection, jobs.settle([settlement(c, "complete") for c in held[:5]]))
    assert [answer.verdict for answer in answers] == ["accepted"] * 5
    space.rows("UPDATE fencerow.scheduled SET run_at = fencerow.now()")
    assert run_on(connection, jobs.promote(1)) == 1
    assert space.value("SELECT count(*) FROM fencerow.ready") == 1
    space.rows("UPDATE fencerow.ended SET ended_at = ended_at - interval '100 days'")
    assert run_on(connection, jobs.purge(0, 1)) == (1, 1)
    assert space.value("SELECT count(*) FROM fencerow.ended") == 4
    space.rows("UPDATE fencerow.lease SET until = fencerow.now()")
    assert len(run_on(connection, jobs.expire(1))) == 1
    assert space.value("SELECT count(*) FROM fencerow.running") == 14


def test_renewals_stay_in_the_page(space: Space) -> None:
    """C037: a renewal touches no index, so nearly all are HOT."""
    space.rows("TRUNCATE fencerow.lease")
    for number in range(20):
        space.rows("SELECT fencerow.open_lease(%s, 'w', '30 s')", (number + 1,))
    stat = (
        "SELECT coalesce(sum(n_tup_upd), 0), coalesce(sum(n_tup_hot_upd), 0) FROM pg_stat_user_tables "
        "WHERE relid = 'fencerow.lease'::regclass"
    )
    before = space.rows("SELECT pg_stat_force_next_flush()") and space.rows(stat)[0]
    for _ in range(50):
        for number in range(20):
            space.run(workers.renew(number + 1))
    space.rows("SELECT pg_stat_force_next_flush()")
    after = space.rows(stat)[0]
    updates, hot = after[0] - before[0], after[1] - before[1]
    assert updates == 1000
    assert hot >= 900
