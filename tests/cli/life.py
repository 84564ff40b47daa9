"""Jobs brought into each state by the product's own operations."""

from fencerow.ops import jobs, workers
from fencerow.testing.space import Space
from fencerow.types import Claim, NewJob, Settlement, Unique

LEASE = 7_000_000_000_000_000_001


def enqueue(
    space: Space, task: str = "mail.send", *, queue: str = "mail", payload: str = "{}", **more: object
) -> int:
    """A job's id."""
    job = NewJob(task=task, payload=payload, queue=queue, **more)  # type: ignore[arg-type]
    return space.run(jobs.enqueue([job]))[0].id


def worker(
    space: Space,
    name: str = "w1",
    *,
    queues: tuple[str, ...] = ("mail",),
    tasks: tuple[str, ...] = ("mail.send",),
) -> int:
    """A live worker: registered, with a lease of 30 s. The lease's id."""
    space.run(workers.register(name, host="here", pid=1, version="1", queues=queues, tasks=tasks, slots=1))
    lease = LEASE + sum(map(ord, name))
    assert space.run(workers.open_lease(lease, name, seconds=30)) is not None
    return lease


def claim(space: Space, lease: int, *, queue: str = "mail", alone: bool = False) -> Claim:
    """The next job of a queue."""
    (claimed,) = space.run(jobs.claim(lease, queue, limit=1, alone=alone))
    return claimed


def fail(space: Space, claimed: Claim, error: str = "SMTP 550\nsecond line") -> None:
    """End it failed."""
    (answer,) = space.run(jobs.settle([Settlement(claimed, "fail", error=error)]))
    assert answer.accepted


def settlement(claimed: Claim) -> Settlement:
    """A completion, to be sent late."""
    return Settlement(claimed, "complete")


def complete(space: Space, claimed: Claim) -> None:
    """End it done."""
    (answer,) = space.run(jobs.settle([Settlement(claimed, "complete", result='{"sent": true}')]))
    assert answer.accepted


__all__ = ["LEASE", "Unique", "claim", "complete", "enqueue", "fail", "settlement", "worker"]
