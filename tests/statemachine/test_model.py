"""
Random histories of three workers and their operator, each step played on the model and on the SQL, which must agree.

After every step the invariants I1 to I6 are asked of the tables themselves. `make soak` plays 10,000 histories.
"""

from datetime import datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fencerow.errors import Duplicate
from fencerow.ops import jobs, queues, workers
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space
from fencerow.types import Claim, NewJob, OnLost, Settlement, Unique
from tests.statemachine.model import DAY, KINDS, LEASE, Held, Job, Lease, Model

SWEPT = "the lease of its worker ended before the job was settled"
SLOTS = ("a", "b", "alone")
VIEW = "SELECT id, state, generation, attempt, suspect, cancel_requested FROM fencerow.jobs ORDER BY id"
# Each row is the name of a broken invariant.
BROKEN = """
WITH place AS (
  SELECT job_id, 'ready' AS name, attempt, key_until FROM fencerow.ready
  UNION ALL SELECT job_id, 'scheduled', attempt, key_until FROM fencerow.scheduled
  UNION ALL SELECT job_id, 'running', attempt, key_until FROM fencerow.running
  UNION ALL SELECT job_id, 'ended', attempt, NULL FROM fencerow.ended
)
SELECT 'I1: a job in two places or none'
  FROM fencerow.job AS j LEFT JOIN place AS p ON p.job_id = j.id GROUP BY j.id HAVING count(p.job_id) <> 1
UNION ALL SELECT 'I1: a ticket without its job'
  FROM place AS p WHERE NOT EXISTS (SELECT FROM fencerow.job AS j WHERE j.id = p.job_id)
UNION ALL SELECT 'I1: a running ticket without its lease'
  FROM fencerow.running AS r WHERE NOT EXISTS (SELECT FROM fencerow.lease AS l WHERE l.id = r.lease_id)
UNION ALL SELECT 'I3: two settlements of one generation'
  FROM fencerow.ended AS e JOIN fencerow.attempt AS a USING (job_id, generation) WHERE e.outcome = 'done'
UNION ALL SELECT 'I3: a settlement of a running generation'
  FROM fencerow.running AS r JOIN fencerow.attempt AS a USING (job_id, generation)
UNION ALL SELECT 'I6: more attempts than allowed'
  FROM place AS p JOIN fencerow.job AS j ON j.id = p.job_id WHERE p.attempt > j.max_attempts
UNION ALL SELECT 'I6: a claimable job whose attempts are spent'
  FROM place AS p JOIN fencerow.job AS j ON j.id = p.job_id
  WHERE p.name IN ('ready', 'scheduled') AND p.attempt >= j.max_attempts
UNION ALL SELECT 'I6: suspects in company'
  FROM fencerow.running AS r WHERE r.suspect GROUP BY r.lease_id HAVING count(*) > 1
UNION ALL SELECT 'I9: a keyed ticket without its key'
  FROM place AS p JOIN fencerow.job AS j ON j.id = p.job_id
  WHERE p.key_until IS NOT NULL AND NOT EXISTS (
    SELECT FROM fencerow.unique_key AS u WHERE u.key = j.unique_key AND u.job_id = j.id)
UNION ALL SELECT 'I9: a key without a keyed ticket'
  FROM fencerow.unique_key AS u
  WHERE u.until IS NULL AND NOT EXISTS (SELECT FROM place AS p WHERE p.job_id = u.job_id AND p.key_until IS NOT NULL)
"""


class Histories(RuleBasedStateMachine):
    def __init__(self, space: Space, clock: Clock) -> None:
        super().__init__()
        self.space, self.clock = space, clock
        self.model = Model()
        self.held: list[Held] = []
        self.slots: dict[str, int] = {}
        self.next_lease = 1
        space.empty()
        clock.install()
        self.start: datetime = clock.stop()

    def teardown(self) -> None:
        self.clock.restore()

    @initialize()
    def open_all(self) -> None:
        for slot in SLOTS:
            self.open(slot)

    @rule(slot=st.sampled_from(SLOTS))
    def open(self, slot: str) -> None:
        """A worker starts again under a new lease; what it held under the old one stays there."""
        lease, self.next_lease = self.next_lease, self.next_lease + 1
        assert self.space.run(workers.open_lease(lease, slot, seconds=LEASE, alone=slot == "alone")) == LEASE
        self.model.leases[lease] = Lease(self.model.now + LEASE, slot == "alone")
        self.slots[slot] = lease

    @rule(
        priority=st.sampled_from([100, 5]), attempts=st.integers(1, 3), on_lost=st.sampled_from(["retry", "fail"]),
        key=st.sampled_from([None, None, "x", "y"]), until=st.sampled_from(["finished", "started"]),
        mode=st.sampled_from(["existing", "replace"]), delay=st.sampled_from([None, None, 40]),
    )  # fmt: skip
    def enqueue(
        self,
        priority: int,
        attempts: int,
        on_lost: OnLost,
        key: str | None,
        until: str,
        mode: str,
        delay: int | None,
    ) -> None:
        unique = None if key is None else Unique(key, until, mode)  # type: ignore[arg-type]
        new = NewJob(
            "t", "{}", priority=priority, max_attempts=attempts, on_lost=on_lost, run_in=delay, unique=unique
        )
        (got,) = self.space.run(jobs.enqueue([new]))
        holder = self.model.key_holder(key)
        if holder is not None and not (mode == "replace" and holder.state in ("ready", "scheduled")):
            assert got == (holder.id, False)
            return
        if holder is not None:
            assert self.model.cancel(holder.id) == "cancelled"
        assert got.created
        job = Job(got.id, priority, attempts, on_lost, key, until if key else None)
        if delay is not None:
            job.state, job.run_at = "scheduled", self.model.now + delay
        self.model.add(job)

    @rule(slot=st.sampled_from(SLOTS), limit=st.integers(1, 3))
    def claim(self, slot: str, limit: int) -> None:
        lease = self.slots[slot]
        expected = self.model.claimable(lease, limit)
        got = self.space.run(jobs.claim(lease, "default", limit=limit, alone=slot == "alone"))
        assert [claim.job_id for claim in got] == [job.id for job in expected]
        self.model.claim(lease, expected)
        assert [(c.generation, c.attempt) for c in got] == [(job.generation, job.attempt) for job in expected]
        self.held += [Held(lease, claim.job_id, claim.generation) for claim in got]

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(), verb=st.sampled_from([*KINDS, "complete", "retry"]), delay=st.sampled_from([0, 0, 20]),
        forge=st.sampled_from([0, 0, 0, 0, 1, -1]),
    )  # fmt: skip
    def settle(self, data: st.DataObject, verb: str, delay: int, forge: int) -> None:
        """One to three claims of one lease, fresh or stale, the same one twice or with a forged generation."""
        newest_first = self.held[::-1]
        first = data.draw(st.sampled_from(newest_first))
        same = [held for held in newest_first if held.lease == first.lease]
        batch = [Held(first.lease, first.job, first.generation + forge)]
        batch += data.draw(st.lists(st.sampled_from(same), max_size=2))
        error = "" if verb in ("complete", "release") else "told"
        accepted = {held for held in batch if self.model.holds(held)}
        for held in accepted:
            self.model.settle(held, verb, error, delay)
        expected = []
        for held in batch:
            expected.append("accepted" if held in accepted else self.model.verdict(held, verb, error))
            accepted.discard(held)

        got = self.space.run(jobs.settle([self._settlement(held, verb, error, delay) for held in batch]))
        assert [answer.verdict for answer in got] == expected
        self._learn_back_off()

    @rule(slot=st.sampled_from(SLOTS))
    def renew(self, slot: str) -> None:
        lease = self.slots[slot]
        renewal = self.space.run(workers.renew(lease, "another digest"))
        assert (renewal is not None) == self.model.alive(lease)
        if renewal is not None:
            self.model.leases[lease].until = self.model.now + LEASE
            under = self.model.under(lease)
            assert renewal.tickets == {job.id: job.generation for job in under}
            assert set(renewal.cancelling) == {job.id for job in under if job.cancelling}

    @rule(seconds=st.sampled_from([1, 20, LEASE, LEASE, 3600, 8 * DAY, 31 * DAY, -10]))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.model.now += seconds

    @rule()
    def expire(self) -> None:
        expected = self.model.expire(SWEPT)
        got = {lost.job_id: lost.fate for lost in self.space.run(jobs.expire())}
        assert got == expected
        self._learn_back_off()

    @rule()
    def promote(self) -> None:
        assert self.space.run(jobs.promote()) == self.model.promote()

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.model.jobs)))
        assert self.space.run(jobs.cancel(job_id)) == self.model.cancel(job_id)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def redrive(self, data: st.DataObject) -> None:
        failed = [job.id for job in self.model.jobs.values() if job.state == "failed"]
        job_id = data.draw(st.sampled_from(failed or sorted(self.model.jobs)))
        expected = self.model.redrive(job_id)
        try:
            assert self.space.run(jobs.redrive(job_id)) == expected
        except Duplicate:
            assert expected is None

    @rule()
    def pause_or_resume(self) -> None:
        assert self.space.run((queues.resume if self.model.paused else queues.pause)("default"))
        self.model.paused = not self.model.paused

    @rule()
    def purge(self) -> None:
        assert self.space.run(jobs.purge())[0] == self.model.purge()

    @invariant()
    def the_tables_say_what_the_model_says(self) -> None:
        assert self.space.rows(VIEW) == [self.model.jobs[n].shown for n in sorted(self.model.jobs)]
        leases = {n for n, lease in self.model.leases.items() if not lease.gone}
        assert {row[0] for row in self.space.rows("SELECT id FROM fencerow.lease")} == leases

    @invariant()
    def no_invariant_is_broken(self) -> None:
        assert self.space.rows(BROKEN) == []

    def _settlement(self, held: Held, verb: str, error: str, delay: int) -> Settlement:
        claim = Claim(held.lease, "default", held.job, held.generation, 1, 0, 100, "t", "{}", None)
        return Settlement(claim, verb, error=error or None, delay=delay)  # type: ignore[arg-type]

    def _learn_back_off(self) -> None:
        for job_id, run_at in self.space.rows("SELECT job_id, run_at FROM fencerow.scheduled"):
            job = self.model.jobs[job_id]
            if job.suspect and job.run_at <= self.model.now:
                wait = run_at - self.start - timedelta(seconds=self.model.now)
                assert timedelta(seconds=2) <= wait <= timedelta(hours=1)
                job.run_at = self.model.now + wait.total_seconds()


@pytest.mark.soak
def test_sql_and_model_agree_in_every_history(space: Space) -> None:
    run_state_machine_as_test(
        lambda: Histories(space, Clock(space)),  # type: ignore[arg-type]
        settings=settings(stateful_step_count=40),
    )
