"""Unique keys: at most one live job per key, whatever the mode, and no key that outlives its reason (I9)."""

import threading
from collections.abc import Callable

import pytest

from fencerow.errors import Duplicate, Rejected
from fencerow.ops import jobs
from fencerow.store.session import run_on
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space
from fencerow.types import Claim, Enqueued, OnConflict, Unique
from tests.sql.steps import A, claim, enqueue, job, lease, lose, running, settle, state

MODES: tuple[OnConflict, ...] = ("existing", "replace", "extend", "raise")


def ask(space: Space, unique: Unique, **fields: object) -> Enqueued:
    return space.run(jobs.enqueue([job(unique=unique, **fields)]))[0]


def holder(space: Space, key: str = "k") -> int | None:
    rows = space.rows("SELECT job_id FROM fencerow.unique_key WHERE key = %s", (key,))
    return rows[0][0] if rows else None


def _waiting(space: Space, until: object) -> int:
    return ask(space, Unique("k", until)).id  # type: ignore[arg-type]


def _later(space: Space, until: object) -> int:
    return ask(space, Unique("k", until), run_in=60.0).id  # type: ignore[arg-type]


@pytest.mark.parametrize("until", ["finished", "started", 3600])
@pytest.mark.parametrize("first", [_waiting, _later])
def test_key_of_a_job_that_has_not_started(space: Space, until: object, first: Callable[..., int]) -> None:
    for mode in MODES:
        space.empty()
        old = first(space, until)
        again = Unique("k", until, mode)  # type: ignore[arg-type]
        if mode == "raise":
            with pytest.raises(Duplicate) as caught:
                ask(space, again)
            assert caught.value.job_id == old
            assert space.value("SELECT count(*) FROM fencerow.job") == 1
        elif mode == "replace":
            new = ask(space, again)
            assert (new.created, holder(space)) == (True, new.id)
            assert state(space, old)[0] == "cancelled"
            assert space.rows("SELECT error FROM fencerow.ended") == [(f"replaced by job {new.id}",)]
            assert state(space, new.id)[0] == "ready"
        elif mode == "extend":
            assert ask(space, again, run_in=500.0) == (old, False)
            assert state(space, old)[0] == "scheduled"
            wait = space.value("SELECT extract(epoch FROM run_at - fencerow.now()) FROM fencerow.scheduled")
            assert 490 < wait <= 500
            assert ask(space, again) == (old, False)
            assert state(space, old)[0] == "ready"
        else:
            assert ask(space, again) == (old, False)
            assert state(space, old)[0] == ("ready" if first is _waiting else "scheduled")
        assert holder(space) is not None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("until", ["finished", 3600])
def test_running_job_keeps_its_key_in_every_mode(space: Space, mode: OnConflict, until: object) -> None:
    """C069: a running row is left untouched."""
    old = ask(space, Unique("k", until))  # type: ignore[arg-type]
    lease(space)
    (held,) = claim(space)
    again = Unique("k", until, mode)  # type: ignore[arg-type]

    if mode == "raise":
        with pytest.raises(Duplicate):
            ask(space, again)
    else:
        assert ask(space, again, run_in=5.0) == (old.id, False)

    assert state(space, old.id) == ("running", 1, 1)
    assert space.rows("SELECT cancel_requested FROM fencerow.running") == [(False,)]
    assert settle(space, held) == ["accepted"]


def test_key_until_started_is_free_once_the_job_runs(space: Space) -> None:
    old = ask(space, Unique("k", "started"))
    lease(space)
    (held,) = claim(space)
    assert holder(space) is None

    new = ask(space, Unique("k", "started"))
    assert (new.created, holder(space)) == (True, new.id)
    settle(space, held, "release")
    assert state(space, old.id)[0] == "ready"
    again = claim(space, limit=2)
    assert [c.job_id for c in again] == [old.id, new.id]
    assert holder(space) is None


def _purged(space: Space, held: Claim) -> None:
    settle(space, held)
    space.rows("UPDATE fencerow.ended SET ended_at = ended_at - interval '100 days'")
    assert space.run(jobs.purge()) == (1, held.job_id)


def _cancelled_running(space: Space, held: Claim) -> None:
    space.run(jobs.cancel(held.job_id))
    settle(space, held, "retry")


def _cancelled_ready(space: Space, held: Claim) -> None:
    settle(space, held, "release")
    assert space.run(jobs.cancel(held.job_id)) == "cancelled"


def _cancelled_scheduled(space: Space, held: Claim) -> None:
    settle(space, held, "retry", delay=60.0)
    assert space.run(jobs.cancel(held.job_id)) == "cancelled"


def _lost_for_good(space: Space, held: Claim) -> None:
    assert lose(space) == {held.job_id: "failed"}


ENDS: dict[str, Callable[[Space, Claim], object]] = {
    "done": settle,
    "failed": lambda space, held: settle(space, held, "fail"),
    "retries spent": lambda space, held: settle(space, held, "retry"),
    "cancelled": lambda space, held: settle(space, held, "cancelled"),
    "cancelled running": _cancelled_running,
    "cancelled ready": _cancelled_ready,
    "cancelled scheduled": _cancelled_scheduled,
    "lost": _lost_for_good,
    "purged": _purged,
}


@pytest.mark.parametrize("end", ENDS)
def test_key_is_free_however_its_job_ended(space: Space, end: str) -> None:
    """C071, C003."""
    attempts = 2 if end == "cancelled scheduled" else 1
    held = running(space, unique=Unique("k"), max_attempts=attempts)

    ENDS[end](space, held)

    assert holder(space) is None
    new = ask(space, Unique("k"))
    assert (new.created, holder(space)) == (True, new.id)


@pytest.mark.parametrize("back", ["retry", "snooze", "release", "lost"])
def test_key_stays_with_a_job_that_comes_back(space: Space, clock: Clock, back: str) -> None:
    """C071: a retry is never blocked by itself, and nobody takes its key meanwhile."""
    held = running(space, unique=Unique("k"))
    settle(space, held, back, delay=5.0 if back in ("retry", "snooze") else 0.0)

    assert ask(space, Unique("k")) == (held.job_id, False)
    clock.advance(10)
    space.run(jobs.promote())
    lease(space, A)
    space.rows("SELECT fencerow.open_lease(1, 'x', '30 s', true)")
    assert claim(space, 1 if back == "lost" else A, alone=back == "lost")[0].job_id == held.job_id


def test_key_held_for_a_time_outlives_its_job_and_ends_with_the_time(space: Space, clock: Clock) -> None:
    clock.stop()
    held = running(space, unique=Unique("k", 100))
    settle(space, held)
    assert ask(space, Unique("k", 100)) == (held.job_id, False)
    assert ask(space, Unique("k", 100, "replace")) == (held.job_id, False)

    clock.advance(100)
    new = ask(space, Unique("k", 100))
    assert (new.created, holder(space)) == (True, new.id)


def test_key_whose_time_is_over_leaves_a_live_holder_alone(space: Space, clock: Clock) -> None:
    old = ask(space, Unique("k", 10))
    clock.advance(11)
    new = ask(space, Unique("k", "finished"))
    assert new.created
    lease(space)
    first, second = claim(space, limit=2)

    assert (first.job_id, second.job_id) == (old.id, new.id)
    settle(space, first)
    assert holder(space) == new.id
    settle(space, second)
    assert holder(space) is None


def test_job_whose_key_is_still_held_is_not_purged(space: Space, clock: Clock) -> None:
    """Else the key's row would have no job to be purged with, and stay for ever."""
    day = 86400.0
    held = running(space, unique=Unique("k", 30 * day))
    settle(space, held)
    clock.advance(8 * day)
    assert space.run(jobs.purge()) == (0, held.job_id)
    assert ask(space, Unique("k", 30 * day)) == (held.job_id, False)

    clock.advance(23 * day)
    assert space.run(jobs.purge()) == (1, held.job_id)
    assert holder(space) is None


def test_key_is_free_after_a_rolled_back_or_refused_enqueue(space: Space) -> None:
    """C072."""
    other = space.connect(autocommit=False)
    run_on(other, jobs.enqueue([job(unique=Unique("k"))]))
    other.rollback()
    with pytest.raises(Rejected):
        ask(space, Unique("k"), max_attempts=1001)

    assert ask(space, Unique("k")).created


def test_batch_with_the_same_key_creates_one_job(space: Space) -> None:
    modes: list[tuple[str, OnConflict]] = [
        ("b", "replace"),
        ("a", "existing"),
        ("b", "replace"),
        ("a", "extend"),
    ]
    new = [job(unique=Unique(key, on_conflict=mode)) for key, mode in modes]
    new.insert(2, job())

    got = space.run(jobs.enqueue(new))

    assert [entry.created for entry in got] == [True, True, True, False, False]
    assert (got[3].id, got[4].id) == (got[0].id, got[1].id)
    assert space.value("SELECT count(*) FROM fencerow.ready") == 3


def test_key_is_asked_by_many_at_once_and_all_get_the_same_job(space: Space) -> None:
    """C070: twenty threads at a barrier, ten rounds."""
    connections = [space.connect() for _ in range(20)]
    for round_ in range(10):
        barrier = threading.Barrier(len(connections))
        got: list[Enqueued] = []

        def work(connection: object, barrier: threading.Barrier = barrier, round_: int = round_) -> None:
            barrier.wait(20)
            got.extend(run_on(connection, jobs.enqueue([job(unique=Unique(f"k{round_}"))])))  # type: ignore[arg-type]  # noqa: B023

        threads = [threading.Thread(target=work, args=(connection,)) for connection in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(got) == 20
        assert len({entry.id for entry in got}) == 1
        assert sum(entry.created for entry in got) == 1
    assert space.value("SELECT count(*) FROM fencerow.job") == 10


def test_conflict_mode_and_time_are_checked(space: Space) -> None:
    for call in (
        "fencerow.enqueue('t', unique_key => 'k', on_conflict => 'ignore')",
        "fencerow.enqueue('t', unique_key => 'k', unique_until => 'time')",
    ):
        with pytest.raises(Exception, match="on_conflict is existing"):
            space.rows(f"SELECT {call}")
    for call in (
        "fencerow.enqueue('t', unique_key => '')",
        "fencerow.enqueue('t', unique_key => repeat('k', 201))",
        "fencerow.enqueue('t', unique_key => 'k', unique_until => 'never')",
    ):
        with pytest.raises(Exception, match="check constraint"):
            space.rows(f"SELECT {call}")
    assert space.rows("SELECT FROM fencerow.unique_key") == []


def test_constraints_of_other_tables_are_no_duplicates(space: Space) -> None:
    """C116: only our own answer means duplicate; the user's violation comes through as it is."""
    other = space.connect(autocommit=False)
    other.execute("CREATE TEMP TABLE mine (id int PRIMARY KEY)")
    other.execute("INSERT INTO mine VALUES (1)")
    run_on(other, jobs.enqueue([job(unique=Unique("k"))]))
    with pytest.raises(Exception, match="mine_pkey"):
        other.execute("INSERT INTO mine VALUES (1)")
    other.rollback()
    assert holder(space) is None
    assert enqueue(space) != []
