"""
Claiming: how much, from where in the queue, and when to look again.

A lane is a set of slots and the queues they serve, in order. It claims what can start soon: free slots, plus what run
times say will free within a quarter of a second. It claims above a watermark, the job id it had reached a fifth of a second
ago, so that dead index entries below cost nothing; it looks at a queue from its start at an interval that adapts to what
such a look costs, and always before it goes to sleep, so that late commits, returned jobs and new priorities are found.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence

from fencerow import limits
from fencerow.clock import boottime
from fencerow.ops import jobs
from fencerow.store.stores import AsyncStore
from fencerow.types import Claim
from fencerow.worker.keep import Lease

AHEAD_SECONDS = 0.25
STALL_SECONDS = 1.0
Marks = dict[int, int]


class Watermark:
    """Where a process stands in one queue: the highest job id it claimed, per priority, now and a lag ago."""

    def __init__(self) -> None:
        self._reached: Marks = {}
        self._history: deque[tuple[float, Marks]] = deque()
        self._full_at = float("-inf")
        self._full_cost = 0.0

    def marks(self, now: float) -> Marks | None:
        """Above which ids to claim; None: look from the start of the queue."""
        if now - self._full_at >= max(
            limits.FULL_SCAN_SECONDS_MIN, limits.FULL_SCAN_COST_FACTOR * self._full_cost
        ):
            return None
        while len(self._history) > 1 and self._history[1][0] <= now - limits.WATERMARK_LAG_SECONDS:
            self._history.popleft()
        if self._history and self._history[0][0] <= now - limits.WATERMARK_LAG_SECONDS:
            return self._history[0][1]
        return None

    def claimed(self, claims: Sequence[Claim], now: float) -> None:
        """Note what a claim brought."""
        if not claims:
            return
        reached = dict(self._reached)
        for claim in claims:
            if claim.job_id > reached.get(claim.priority, 0):
                reached[claim.priority] = claim.job_id
        self._reached = reached
        self._history.append((now, reached))

    def scanned(self, began: float, now: float) -> None:
        """Note a look from the start, and what it cost."""
        self._full_at = now
        self._full_cost = now - began


class RunTimes:
    """A moving mean of run times, for how far ahead to claim."""

    WEIGHT = 0.02

    def __init__(self) -> None:
        self.mean: float | None = None

    def add(self, seconds: float) -> None:
        """One handler returned."""
        self.mean = seconds if self.mean is None else self.mean + self.WEIGHT * (seconds - self.mean)

    def ahead(self, slots: int, lease_seconds: float) -> int:
        """How many jobs beyond the free slots will find one soon: a quarter of a second's worth, within lease/4."""
        if self.mean is None:
            return 0
        horizon = min(AHEAD_SECONDS, lease_seconds / 4)
        return int(min(limits.CLAIM_BATCH_MAX, slots * horizon / max(self.mean, 1e-6)))


class Lane:
    """
    Slots, the queues they serve, and what was claimed for them but has not started.

    Args:
        careful: tasks whose jobs must not wait in the buffer.

    Attributes:
        moved_at: when a job was last started from the buffer, or put into the empty one (CLOCK_BOOTTIME).
    """

    def __init__(
        self, slots: int, queues: Sequence[str], *, careful: Sequence[str], alone: bool, lease_seconds: float
    ) -> None:
        self.slots = slots
        self._lease_seconds = lease_seconds
        self.queues = tuple(queues)
        self.buffer: deque[Claim] = deque()
        self.busy = 0
        self.moved_at = 0.0
        self.times = RunTimes()
        self._careful = tuple(careful)
        self._alone = alone
        self._marks = {queue: Watermark() for queue in self.queues}

    @property
    def free(self) -> int:
        """Slots that neither run a job nor have one waiting for them."""
        return max(0, self.slots - self.busy - len(self.buffer))

    @property
    def demand(self) -> int:
        """How many jobs to claim now; 0 while what is buffered lasts."""
        if self._alone:
            return 0 if self.busy or self.buffer else 1
        ahead = self.times.ahead(self.slots, self._lease_seconds)
        wanted = min(limits.CLAIM_BATCH_MAX, self.slots + ahead - self.busy - len(self.buffer))
        return wanted if wanted > 0 and (self.free > 0 or wanted * 2 >= ahead) else 0

    def put(self, claims: Sequence[Claim]) -> None:
        """Keep claimed jobs until a slot is free."""
        if not self.buffer:
            self.moved_at = boottime()
        self.buffer.extend(claims)

    def next(self) -> Claim | None:
        """The job to start now: the oldest one in the buffer if a slot is free."""
        if not self.buffer or self.busy >= self.slots:
            return None
        self.moved_at = boottime()
        return self.buffer.popleft()

    def take_back(self, chosen: Callable[[Claim], bool]) -> list[Claim]:
        """Remove from the buffer those that are chosen."""
        taken = [claim for claim in self.buffer if chosen(claim)]
        if taken:
            self.buffer = deque(claim for claim in self.buffer if not chosen(claim))
        return taken

    async def claim(
        self,
        store: AsyncStore,
        lease: Lease,
        wanted: int,
        *,
        thorough: bool,
        take: Callable[[list[Claim]], None],
    ) -> int:
        """
        Claim up to *wanted* jobs over the queues in order; the number claimed.

        Args:
            thorough: look at each queue from its start if its watermark finds nothing: before sleeping.
            take: called with each batch as soon as it is there.
        """
        claimed = 0
        for queue in self.queues:
            found = await self._claim_queue(store, lease, queue, wanted - claimed, thorough=thorough)
            if found:
                take(found)
                claimed += len(found)
            if claimed >= wanted:
                break
        return claimed

    async def _claim_queue(
        self, store: AsyncStore, lease: Lease, queue: str, wanted: int, *, thorough: bool
    ) -> list[Claim]:
        mark = self._marks[queue]
        marks = None if self._alone else mark.marks(boottime())
        found: list[Claim] = []
        if marks:
            found = await self._ask(store, lease, queue, wanted, marks)
            mark.claimed(found, boottime())
        if marks is None or (not found and thorough):
            began = boottime()
            found = await self._ask(store, lease, queue, wanted, None)
            mark.claimed(found, boottime())
            mark.scanned(began, boottime())
        return found

    async def _ask(
        self, store: AsyncStore, lease: Lease, queue: str, wanted: int, marks: Marks | None
    ) -> list[Claim]:
        lease.claims += wanted  # counted back below: an answer that is lost may have brought them all
        found = await store.run(
            jobs.claim(
                lease.id,
                queue,
                limit=wanted,
                slots=min(wanted, self.free),
                marks=marks,
                careful=self._careful,
                alone=self._alone,
            )
        )
        lease.claims += len(found) - wanted
        return found

    @property
    def stalled(self) -> bool:
        """Whether jobs were claimed ahead for slots that did not get free: somebody else may run them."""
        return bool(self.buffer) and boottime() - self.moved_at >= STALL_SECONDS

    def stall(self) -> None:
        """Claim nothing ahead until run times are short again."""
        self.times.mean = max(self.times.mean or 0.0, 2 * self.slots * AHEAD_SECONDS)


def lanes_of(
    queues: Sequence[tuple[str, int | None]],
    *,
    concurrency: int,
    careful: Sequence[str],
    alone: bool,
    lease_seconds: float,
) -> list[Lane]:
    """A lane for each queue with slots of its own, and one with *concurrency* slots that the others share, in order."""
    wanted = [(slots, [queue]) for queue, slots in queues if slots]
    shared = [queue for queue, slots in queues if not slots]
    if shared:
        wanted.append((concurrency, shared))
    return [
        Lane(slots, served, careful=careful, alone=alone, lease_seconds=lease_seconds)
        for slots, served in wanted
    ]


def jittered(seconds: float) -> float:
    """A poll interval, spread by ±25 %."""
    return seconds * (1 + limits.POLL_JITTER * (2 * random.random() - 1))  # noqa: S311 - jitter
