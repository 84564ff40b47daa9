"""
What the SQL promises, as a pure model: jobs, leases, keys and a clock in whole seconds. It knows nothing of the tables.

Two things are taken from the database, because nobody can foretell them: job ids and the random part of a back-off.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

LEASE = 30
DAY = 86400
KEEP = {"done": 7 * DAY, "cancelled": 7 * DAY, "failed": 30 * DAY}
ENDED = tuple(KEEP)
KINDS = {
    "complete": "done", "fail": "failed", "retry": "failed", "snooze": "snoozed", "release": "released", "lost": "lost",
    "cancelled": "cancelled",
}  # fmt: skip


@dataclass(slots=True)
class Job:
    id: int
    priority: int
    max_attempts: int
    on_lost: str
    key: str | None
    until: str | None
    state: str = "ready"
    generation: int = 0
    attempt: int = 0
    suspect: bool = False
    cancelling: bool = False
    lease: int | None = None
    run_at: float = 0
    ended_at: float = 0
    losses: int = 0
    keyed: bool = False
    records: dict[int, tuple[int, str, str]] = field(default_factory=dict)
    """generation → (lease, kind, error) of the attempts that did not complete."""
    done_by: tuple[int, int] | None = None
    """(lease, generation) of the completion."""

    @property
    def shown(self) -> tuple[int, str, int, int, bool, bool]:
        return self.id, self.state, self.generation, self.attempt, self.suspect, self.cancelling


@dataclass(slots=True)
class Lease:
    until: float
    alone: bool
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """A claim that was handed out once; it may be stale."""

    lease: int
    job: int
    generation: int


class Model:
    def __init__(self) -> None:
        self.now: float = 0
        self.jobs: dict[int, Job] = {}
        self.leases: dict[int, Lease] = {}
        self.keys: dict[str, int] = {}
        self.paused = False

    def alive(self, lease: int) -> bool:
        found = self.leases.get(lease)
        return found is not None and not found.gone and found.until > self.now

    def under(self, lease: int) -> list[Job]:
        return [job for job in self.jobs.values() if job.state == "running" and job.lease == lease]

    def key_holder(self, key: str | None) -> Job | None:
        return self.jobs[self.keys[key]] if key is not None and key in self.keys else None

    def add(self, job: Job) -> None:
        self.jobs[job.id] = job
        if job.key is not None:
            self.keys[job.key] = job.id
            job.keyed = True

    def free_key(self, job: Job) -> None:
        if job.keyed and job.key is not None and self.keys.get(job.key) == job.id:
            del self.keys[job.key]
        job.keyed = False

    def end(self, job: Job, outcome: str) -> None:
        job.state, job.ended_at, job.lease = outcome, self.now, None
        job.suspect = False
        self.free_key(job)

    def claimable(self, lease: int, limit: int) -> list[Job]:
        if not self.alive(lease) or self.paused:
            return []
        alone = self.leases[lease].alone
        if alone and self.under(lease):
            return []
        ready = [job for job in self.jobs.values() if job.state == "ready" and job.suspect == alone]
        return sorted(ready, key=lambda job: (job.priority, job.id))[: 1 if alone else limit]

    def claim(self, lease: int, jobs: Iterable[Job]) -> None:
        for job in jobs:
            job.state, job.lease = "running", lease
            job.generation += 1
            job.attempt += 1
            if job.until == "started":
                self.free_key(job)

    def holds(self, held: Held) -> bool:
        job = self.jobs.get(held.job)
        return (
            job is not None and job.state == "running" and job.lease == held.lease
            and job.generation == held.generation and self.alive(held.lease)
        )  # fmt: skip

    def verdict(self, held: Held, verb: str, error: str) -> str:
        job = self.jobs.get(held.job)
        if job is None:
            return "unknown"
        done = verb == "complete" and job.done_by == (held.lease, held.generation)
        if done or job.records.get(held.generation) == (held.lease, KINDS[verb], error):
            return "already"
        if job.generation > held.generation:
            return "superseded"
        if job.state in ENDED:
            return "cancelled" if job.state == "cancelled" else "settled"
        return "expired"

    def fate(self, job: Job, verb: str) -> str:
        if verb == "complete":
            return "done"
        if verb == "cancelled":
            return "cancelled"
        if verb == "fail":
            return "failed"
        if job.cancelling:
            return "cancelled"
        if verb in ("release", "snooze"):
            return "back"
        if job.attempt >= job.max_attempts or (verb == "lost" and job.on_lost == "fail"):
            return "failed"
        return "back"

    def settle(self, held: Held, verb: str, error: str, delay: float) -> None:
        """The ticket is held. A loss that is not the first waits for a time that only the database knows."""
        job = self.jobs[held.job]
        fate = self.fate(job, verb)
        if verb == "complete":
            job.done_by = (held.lease, held.generation)
        else:
            job.records[held.generation] = (held.lease, KINDS[verb], error)
        first_loss = verb == "lost" and job.losses == 0
        job.losses += verb == "lost"
        if fate != "back":
            self.end(job, fate)
            return
        job.lease = None
        job.attempt -= verb in ("release", "snooze")
        job.suspect = verb == "lost" or (verb == "release" and job.suspect)
        waits = delay > 0 if verb in ("retry", "snooze") else verb == "lost" and not first_loss
        job.state = "scheduled" if waits else "ready"
        job.run_at = self.now + delay

    def expire(self, error: str) -> dict[int, str]:
        """What becomes of each lost job."""
        fates = {}
        for lease_id, lease in self.leases.items():
            lease.until = min(lease.until, self.now + LEASE)
            if lease.gone or lease.until > self.now:
                continue
            for job in self.under(lease_id):
                self.settle(Held(lease_id, job.id, job.generation), "lost", error, 0)
                fates[job.id] = job.state
            lease.gone = True
        return fates

    def promote(self) -> int:
        due = [job for job in self.jobs.values() if job.state == "scheduled" and job.run_at <= self.now]
        for job in due:
            job.state = "ready"
        return len(due)

    def cancel(self, job_id: int) -> str:
        job = self.jobs.get(job_id)
        if job is None:
            return "unknown"
        if job.state in ENDED:
            return job.state
        job.cancelling = True
        if job.state == "running":
            return "requested"
        self.end(job, "cancelled")
        return "cancelled"

    def redrive(self, job_id: int) -> str | None:
        """The answer, or None when another job holds its key."""
        job = self.jobs.get(job_id)
        if job is None:
            return "unknown"
        if job.state != "failed":
            return job.state
        if job.key is not None:
            if job.key in self.keys:
                return None
            self.keys[job.key] = job.id
            job.keyed = True
        job.state, job.attempt, job.suspect, job.cancelling = "ready", 0, False, False
        return "ready"

    def purge(self) -> int:
        over = [
            j.id for j in self.jobs.values() if j.state in ENDED and j.ended_at <= self.now - KEEP[j.state]
        ]
        for job_id in over:
            del self.jobs[job_id]
        return len(over)
