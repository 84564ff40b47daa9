"""When a process may act as the owner: never longer than the database says, and long enough whatever its loop does."""

import json
import os
import signal
from datetime import datetime

import pytest

from fencerow import App
from fencerow.clock import boottime
from fencerow.limits import margin_seconds
from fencerow.testing.space import Space
from tests.worker.inside import serving, soon
from tests.worker.life import Place, Worker, alive, children, until


@pytest.mark.slow
def test_a_handler_that_keeps_the_interpreter_lock_keeps_its_lease(place: Place) -> None:
    """Slow: one C call takes longer than the lease, on the event loop itself."""
    place.enqueue("hog", payload=json.dumps({"seconds": 5}))
    place.worker("--lease", "3s", "--concurrency", "4")
    other = place.worker()

    begun = place.seen("begun")
    ends = place.space.value(
        "SELECT until FROM fencerow.lease WHERE EXISTS (SELECT FROM fencerow.running AS r WHERE r.lease_id = id)"
    )
    place.all_in("done")

    ended_at = place.space.value("SELECT ended_at FROM fencerow.ended")
    assert ended_at > ends, "it ran on beyond the lease with which it began"
    assert [effect.generation for effect in place.effects("done")] == [1]
    assert place.space.rows("SELECT * FROM fencerow.attempt") == []
    assert other.process.poll() is None
    assert begun[0].generation == 1


@pytest.mark.slow
def test_a_killed_renewer_is_replaced_before_the_lease_ends(place: Place) -> None:
    """Twice: the replacement is due at once, not a third of a lease later. Slow: the lease would have ended."""
    place.enqueue("wait", payload=json.dumps({"gate": "open"}))
    worker = place.worker("--lease", "6s")
    place.seen("begun")
    lease = place.space.value("SELECT id FROM fencerow.lease")
    for _ in range(2):
        _replaced(place, worker, lease)
    place.open("open")
    place.all_in("done")

    assert place.space.rows("SELECT * FROM fencerow.attempt") == []
    assert "the renewer process ended" in worker.said


def _replaced(place: Place, worker: Worker, lease: int) -> None:
    """Kill its renewer, and wait for a renewal by another."""

    def ends() -> datetime:
        moment: datetime = place.space.value("SELECT until FROM fencerow.lease WHERE id = %s", (lease,))
        return moment

    old = worker.renewer
    os.kill(old, signal.SIGKILL)
    until(lambda: not alive(old), "its death")
    until(lambda: children(worker.pid, running="fencerow.renewer"), "another")
    before = ends()
    until(lambda: ends() > before, "a renewal")


@pytest.mark.slow
def test_a_handler_is_stopped_before_its_lease_ends_when_it_cannot_be_renewed(place: Place) -> None:
    """
    C014: somebody locks the lease row, so neither renewer nor worker can renew it. The handler is told to stop while
    the database still counts it as the holder, and its loss is accepted. Slow: most of a lease passes.
    """
    (job,) = place.enqueue("wait", payload=json.dumps({"gate": "open"}))
    worker = place.worker("--lease", "2s")
    place.seen("begun")
    locker = place.space.connect(autocommit=False, name="locker")
    locker.execute("SELECT FROM fencerow.lease FOR UPDATE")
    ends = place.space.value("SELECT until FROM fencerow.lease")

    attempt = until(
        lambda: place.space.rows("SELECT kind, ended_at FROM fencerow.attempt WHERE job_id = %s", (job,)),
        "its loss",
    )
    locker.rollback()

    assert attempt[0][0] == "lost"
    assert attempt[0][1] < ends
    assert "its lease may be over" in worker.said
    place.open("open")
    place.all_in("done")


@pytest.mark.slow
def test_the_renewer_goes_around_a_backend_that_does_not_answer(place: Place) -> None:
    """A quarter of the lease is the watchdog's: a stopped backend is left for another connection. Slow: a lease passes."""
    place.enqueue("wait", payload=json.dumps({"gate": "open"}))
    place.worker("--lease", "4s")
    place.seen("begun")
    pid = until(
        lambda: place.space.rows("SELECT pid FROM pg_stat_activity WHERE application_name LIKE '% renew'"),
        "its connection",
    )[0][0]
    os.kill(pid, signal.SIGSTOP)
    try:
        other = until(
            lambda: place.space.rows(
                "SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s AND pid <> %s",
                ("% renew", pid),
            ),
            "another connection",
        )
        before = place.space.value("SELECT until FROM fencerow.lease")
        until(lambda: place.space.value("SELECT until FROM fencerow.lease") > before, "a renewal")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert other
    place.open("open")
    place.all_in("done")
    assert place.space.rows("SELECT * FROM fencerow.attempt") == []


async def test_trust_ends_before_the_lease_in_the_database(space: Space) -> None:
    """I7, C013: at every moment, over several renewals, by at least the margin."""
    async with serving(App(space.dsn), lease=1.5) as service:
        lease = await service.keeper.current()
        seen: set[float] = set()

        def look() -> bool:
            trusted = lease.trusted_until
            left = space.value(
                "SELECT extract(epoch FROM until - fencerow.now())::float8 FROM fencerow.lease"
            )
            # The database read its clock before ours is read here, so its end lies at `boottime() + left` or earlier.
            assert trusted <= boottime() + left - margin_seconds(1.5) + 0.001
            seen.add(trusted)
            return len(seen) >= 4 or lease.lost

        await soon(look, "renewals")


async def test_every_slot_of_the_shared_memory_is_found_again(space: Space) -> None:
    """Leases come and go more often than there are slots; one that is full opens none instead of failing the worker."""
    async with serving(App(space.dsn)) as service:
        keeper = service.keeper
        for _ in range(130):
            slot = keeper.memory.take()
            keeper.memory.give_back(slot)
        taken = [keeper.memory.take() for _ in range(63)]
        first = await keeper.current()
        first.claims = 10**6
        assert await keeper.current() is first
        for slot in taken:
            keeper.memory.give_back(slot)
        assert await keeper.current() is not first
