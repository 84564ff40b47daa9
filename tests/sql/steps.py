"""Short names for what every test of the SQL does: enqueue, lease, claim, settle, look."""

from collections.abc import Sequence
from typing import Any

from fencerow.ops import jobs, workers
from fencerow.testing.space import Space
from fencerow.types import Answer, Claim, NewJob, Settlement, TaskPolicy

A, B, C = 7001, 7002, 7003
"""Lease ids of the workers a, b and c."""
NAMES = {A: "a", B: "b", C: "c"}


def job(**fields: Any) -> NewJob:
    return NewJob(task=fields.pop("task", "t"), payload=fields.pop("payload", "{}"), **fields)


def enqueue(space: Space, count: int = 1, **fields: Any) -> list[int]:
    """The ids of *count* equal jobs."""
    return [entry.id for entry in space.run(jobs.enqueue([job(**fields) for _ in range(count)]))]


def lease(space: Space, lease_id: int = A, *, seconds: float = 30, alone: bool = False) -> int:
    space.run(workers.open_lease(lease_id, NAMES[lease_id], seconds=seconds, alone=alone))
    return lease_id


def claim(space: Space, lease_id: int = A, limit: int = 1, **options: Any) -> list[Claim]:
    return space.run(jobs.claim(lease_id, options.pop("queue", "default"), limit=limit, **options))


def running(space: Space, lease_id: int = A, **fields: Any) -> Claim:
    """One job, claimed under a lease of 30 s."""
    enqueue(space, **fields)
    lease(space, lease_id)
    return claim(space, lease_id, queue=fields.get("queue") or "default")[0]


def policy(space: Space, **fields: Any) -> None:
    space.run(workers.declare_task(TaskPolicy(name=fields.pop("name", "t"), **fields)))


def settlement(claim: Claim, verb: str, **fields: Any) -> Settlement:
    return Settlement(claim, verb, **fields)  # type: ignore[arg-type]


def settle(space: Space, claims: Claim | Sequence[Claim], verb: str = "complete", **fields: Any) -> list[str]:
    """The verdicts."""
    held = [claims] if isinstance(claims, Claim) else claims
    return [answer.verdict for answer in answers(space, held, verb, **fields)]


def answers(space: Space, claims: Sequence[Claim], verb: str, **fields: Any) -> list[Answer]:
    return space.run(jobs.settle([settlement(claim, verb, **fields) for claim in claims]))


def state(space: Space, job_id: int) -> tuple[str, int, int]:
    """(state, generation, attempt)."""
    rows = space.rows("SELECT state, generation, attempt FROM fencerow.jobs WHERE id = %s", (job_id,))
    return rows[0]


def forged(claim: Claim, **fields: Any) -> Claim:
    """The claim with other proof."""
    return claim._replace(**fields)


def end_lease(space: Space, lease_id: int = A) -> None:
    """Move a lease's end into the past, as the owner of the schema may."""
    space.rows(
        "UPDATE fencerow.lease SET until = fencerow.now() - interval '1 ms' WHERE id = %s", (lease_id,)
    )


def expire(space: Space, limit: int = 1000) -> dict[int, str]:
    """What became of each lost job."""
    return {lost.job_id: lost.fate for lost in space.run(jobs.expire(limit))}


def lose(space: Space, lease_id: int = A) -> dict[int, str]:
    """End a lease and sweep."""
    end_lease(space, lease_id)
    return expire(space)


def refusals(space: Space) -> list[tuple[Any, ...]]:
    """(job, generation, worker, op, verdict, current generation), oldest first."""
    return space.rows(
        "SELECT job_id, generation, worker, op, verdict, current_generation FROM fencerow.refusal ORDER BY id"
    )


def kinds(space: Space, job_id: int) -> list[str]:
    """Kinds of the attempts that did not complete, in order."""
    return [
        row[0]
        for row in space.rows(
            "SELECT kind FROM fencerow.attempt WHERE job_id = %s ORDER BY generation", (job_id,)
        )
    ]
