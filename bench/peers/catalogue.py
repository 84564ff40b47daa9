"""
The peers: which version, from where, how its own recovery is brought about, and how its tables are read.

``state`` is one statement over the single job of a fresh database. It answers three values: whether the job is held by
a running attempt, whether the peer's own record says that it was completed, and the record in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Ecosystem = Literal["pypi", "npm", "here"]

# The Node peers need 22; npm carries the program itself, so nothing is asked of the machine but npm.
NODE = "node@22.23.3"

PG_BOSS_SENT = r'"by": ?"A"'
PG_BOSS_STATE = """
    SELECT state = 'active', state = 'completed',
           format('state %s, retries %s of %s, output %s', state, retry_count, retry_limit,
                  coalesce(output->>'message', output->'value'->>'message', 'of ' || (output->>'by'), 'none'))
    FROM pgboss.job WHERE name = 'stale'"""


@dataclass(frozen=True, slots=True)
class Peer:
    """
    One peer.

    Args:
        packages: what is installed, with exact versions for what is measured.
        program: the file in ``adapters`` that speaks the peer's own interface.
        recovery: how its own recovery gives the job back, and which setting was shortened.
        source: where its documentation or its package says so.
        sent: a regular expression for the report of success in the server's log, so that a write that was refused is
            told from one that was never tried.
        calls_recovery: recovery is a call that the peer's documentation tells users to make.
        age: a statement that makes a lock look as old as the peer requires, where no setting shortens it.
        python: the oldest Python that runs it.
        environment: variables for its adapter.
    """

    name: str
    version: str
    ecosystem: Ecosystem
    packages: tuple[str, ...]
    program: str
    recovery: str
    source: str
    sent: str
    state: str
    calls_recovery: bool = False
    age: str = ""
    python: tuple[int, int] = (3, 11)
    environment: tuple[tuple[str, str], ...] = ()


PEERS: tuple[Peer, ...] = (
    Peer(
        name="fencerow",
        version="",
        ecosystem="here",
        packages=(),
        program="on_fencerow.py",
        recovery="`fencerow worker --lease 2s`; any live worker's sweep takes back what is past its lease",
        source="docs/state-machine.md (`expire`)",
        sent=r"fencerow\.complete\(",
        state="""
            SELECT j.state = 'running', j.state = 'done',
                   format('%s, generation %s, attempt %s', j.state, j.generation, j.attempt)
                   || coalesce('; refused: ' || (SELECT string_agg(f.op || ' of generation ' || f.generation || ' ('
                                                                   || f.verdict || ')', ', ' ORDER BY f.id)
                                                 FROM fencerow.refusal AS f WHERE f.job_id = j.id), '')
            FROM fencerow.jobs AS j""",
    ),
    Peer(
        name="procrastinate",
        version="3.10.0",
        ecosystem="pypi",
        packages=("procrastinate==3.10.0", "psycopg[binary]"),
        program="on_procrastinate.py",
        recovery="the documented recipe get_stalled_jobs(seconds_since_heartbeat=1) + retry_job(); workers with "
        "update_heartbeat_interval=0.3, stalled_worker_timeout=1",
        source="procrastinate: docs/howto/production/retry_stalled_jobs.md",
        sent=r"procrastinate_finish_job",
        calls_recovery=True,
        state="""
            SELECT status = 'doing', status = 'succeeded',
                   format('status %s, attempts %s', status, attempts)
            FROM procrastinate_jobs""",
    ),
    Peer(
        name="pgqueuer",
        version="1.6.0",
        ecosystem="pypi",
        packages=("pgqueuer[asyncpg]==1.6.0",),
        program="on_pgqueuer.py",
        recovery="QueueManager.run(heartbeat_timeout=1 s): a dequeue picks what has no fresh heartbeat",
        source="pgqueuer: docs/guides/heartbeat.md",
        sent=r"successful",
        state="""
            SELECT EXISTS (SELECT FROM pgqueuer WHERE status = 'picked'),
                   NOT EXISTS (SELECT FROM pgqueuer)
                   AND EXISTS (SELECT FROM pgqueuer_log WHERE status = 'successful'),
                   'queue: ' || coalesce((SELECT format('%s, attempts %s', status, attempts) FROM pgqueuer), 'no row')
                   || '; log: ' || (SELECT string_agg(status::text, ', ' ORDER BY id) FROM pgqueuer_log)""",
    ),
    Peer(
        name="chancy",
        version="0.26.0",
        ecosystem="pypi",
        packages=("chancy==0.26.0", "psycopg[binary]"),
        program="on_chancy.py",
        recovery="plugin Recovery(poll_interval=1), Worker(heartbeat_poll_interval=1, heartbeat_timeout=2)",
        source="chancy: docs/design.rst, docs/chancy.plugins.recovery.rst",
        sent=r"\$1 = 'succeeded'",
        state="""
            SELECT state = 'running', state = 'succeeded',
                   format('state %s, attempts %s of %s, errors %s', state, attempts, max_attempts,
                          coalesce(jsonb_array_length(errors::jsonb), 0))
            FROM chancy_jobs""",
    ),
    Peer(
        name="absurd",
        version="0.5.1",
        ecosystem="pypi",
        packages=("absurd-sdk==0.5.1", "absurdctl==0.5.1"),
        program="on_absurd.py",
        recovery="worker A with claim_timeout=1 s; the next claim_task() fails expired runs and starts new ones",
        source="absurd: docs/concepts.md, docs/sdks/python.md (claim_timeout)",
        sent=r"absurd\.complete_run\(",
        state="""
            SELECT EXISTS (SELECT FROM absurd.r_stale WHERE state = 'running'), t.state = 'completed',
                   format('task %s, runs: %s', t.state,
                          (SELECT string_agg(r.state, ', ' ORDER BY r.attempt) FROM absurd.r_stale AS r))
            FROM absurd.t_stale AS t""",
    ),
    Peer(
        name="pg-boss",
        version="12.38.0",
        ecosystem="npm",
        packages=(NODE, "pg-boss@12.38.0"),
        program="on_pgboss.cjs",
        recovery="work(); queue with expireInSeconds 4; superviseIntervalSeconds 1, monitorIntervalSeconds 1",
        source="pg-boss: docs/api/queues.md (expireInSeconds), docs/api/constructor.md (superviseIntervalSeconds)",
        sent=PG_BOSS_SENT,
        state=PG_BOSS_STATE,
    ),
    Peer(
        name="pg-boss-by-id",
        version="12.38.0",
        ecosystem="npm",
        packages=(NODE, "pg-boss@12.38.0"),
        program="on_pgboss.cjs",
        recovery="fetch() and complete(queue, id); queue and intervals as for pg-boss",
        source="pg-boss: docs/api/jobs.md (fetch, complete)",
        sent=PG_BOSS_SENT,
        state=PG_BOSS_STATE,
        environment=(("PEER_BY_ID", "1"),),
    ),
    Peer(
        name="graphile-worker",
        version="0.18.0",
        ecosystem="npm",
        packages=(NODE, "graphile-worker@0.18.0"),
        program="on_graphile.cjs",
        recovery="minResetLockedInterval and maxResetLockedInterval 500 ms; its 4 hours have no setting, so the lock "
        "is dated back by 5 hours instead of waiting",
        source="graphile-worker: website/docs/config.md (minResetLockedInterval), website/docs/error-handling.md",
        sent=r'delete from "graphile_worker"\._private_jobs',
        age="UPDATE graphile_worker._private_jobs SET locked_at = locked_at - interval '5 hours'",
        state="""
            SELECT EXISTS (SELECT FROM graphile_worker._private_jobs WHERE locked_by IS NOT NULL),
                   NOT EXISTS (SELECT FROM graphile_worker._private_jobs),
                   coalesce((SELECT format('attempts %s of %s, %s, last error %s', attempts, max_attempts,
                                           CASE WHEN locked_by IS NULL THEN 'not locked' ELSE 'locked' END,
                                           coalesce(last_error, 'none'))
                             FROM graphile_worker._private_jobs), 'no row (completed jobs are deleted)')""",
    ),
    Peer(
        name="oban",
        version="0.7.0",
        ecosystem="pypi",
        packages=("oban==0.7.0",),
        program="on_oban.py",
        recovery='Oban(lifeline={"interval": 1, "rescue_after": 8}) in B, which alone leads (leadership=False in A)',
        source="oban 0.7.0: oban/_lifeline.py, oban/queries/rescue_jobs.sql (the docstring of Oban names interval only)",
        sent=r"\$1 = 'completed'",
        python=(3, 12),
        state="""
            SELECT state = 'executing', state = 'completed',
                   format('state %s, attempt %s of %s, errors %s', state, attempt, max_attempts,
                          coalesce(jsonb_array_length(to_jsonb(errors)), 0))
            FROM oban_jobs""",
    ),
)
"""In the order of the table."""


def chosen(names: list[str]) -> list[Peer]:
    """The peers named, or all; ValueError for an unknown one."""
    known = {peer.name: peer for peer in PEERS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    return [known[name] for name in names] if names else list(PEERS)
