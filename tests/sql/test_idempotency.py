"""Enqueues that may be sent again: the same key gives the same job, or says that it was used for something else (I11)."""

import pytest

from fencerow.errors import IdempotencyConflict, ResourceBusy
from fencerow.ops import jobs
from fencerow.testing.clock import Clock
from fencerow.testing.sessions import SessionThread
from fencerow.testing.space import Space
from fencerow.types import Unique
from tests.sql.steps import claim, job, lease, settle, state


def test_enqueue_sent_again_answers_the_same_job(space: Space) -> None:
    op = jobs.enqueue([job(payload='{"a": 1, "b": [2]}', idempotency_key="x")])
    first = space.run(op)
    lease(space)
    settle(space, claim(space))

    assert first[0].created is True
    assert space.run(op) == [(first[0].id, False)]
    reordered = jobs.enqueue([job(payload='{"b":[2],"a":1.0}', idempotency_key="x")])
    assert space.run(reordered) == [(first[0].id, False)]
    assert space.value("SELECT count(*) FROM fencerow.job") == 1
    assert state(space, first[0].id)[0] == "done"


def test_key_used_for_something_else_is_refused_with_its_positions(space: Space) -> None:
    space.run(jobs.enqueue([job(idempotency_key="x"), job(idempotency_key="y")]))
    wrong = [job(), job(idempotency_key="x", task="other"), job(idempotency_key="y", payload='{"a": 1}')]

    with pytest.raises(IdempotencyConflict, match="positions 1, 2") as caught:
        space.run(jobs.enqueue(wrong))

    assert "new key" in caught.value.hint
    assert space.value("SELECT count(*) FROM fencerow.job") == 2


def test_key_twice_in_a_batch_is_one_job_or_a_conflict(space: Space) -> None:
    """Bad input 21: the same payload gives the same id at both positions."""
    got = space.run(jobs.enqueue([job(idempotency_key="x"), job(), job(idempotency_key="x")]))
    assert [entry.created for entry in got] == [True, True, False]
    assert got[2].id == got[0].id
    with pytest.raises(IdempotencyConflict, match="positions 2"):
        space.run(
            jobs.enqueue([job(), job(idempotency_key="y"), job(idempotency_key="y", payload='{"a":1}')])
        )
    assert space.value("SELECT count(*) FROM fencerow.job") == 2


def test_enqueue_sent_again_waits_for_the_undecided_one(space: Space) -> None:
    """I11: a look-up that finds nothing proves nothing, so the repeated enqueue waits for the first transaction."""
    op = jobs.enqueue([job(idempotency_key="x")])
    first, second = SessionThread(space), SessionThread(space)
    first.begin()
    created = first.run(op)
    asking = second.start(op)
    asking.wait_until_blocked(first)
    first.commit()
    assert asking.answer() == [(created[0].id, False)]

    first.begin()
    first.run(jobs.enqueue([job(idempotency_key="y")]))
    asking = second.start(jobs.enqueue([job(idempotency_key="y")]))
    asking.wait_until_blocked(first)
    first.rollback()
    assert asking.answer()[0].created is True


def test_enqueue_behind_a_long_transaction_is_busy_and_nothing_is_done(space: Space) -> None:
    op = jobs.enqueue([job(idempotency_key="x", unique=Unique("k"))])
    first, second = SessionThread(space), SessionThread(space)
    first.begin()
    first.run(op)

    with pytest.raises(ResourceBusy):
        second.run(op)
    first.rollback()
    assert space.value("SELECT count(*) FROM fencerow.job") == 0
    assert second.run(op)[0].created is True


@pytest.mark.parametrize("copies", [1, 2])
def test_key_of_an_enqueue_that_found_a_unique_holder_can_be_sent_again(space: Space, copies: int) -> None:
    """The job was not created, so the key must not lead to a job that does not exist, nor be called used."""
    holder = space.run(jobs.enqueue([job(unique=Unique("k"), payload='{"n": 1}')]))[0].id
    op = jobs.enqueue([job(unique=Unique("k"), idempotency_key="x")] * copies)

    assert space.run(op) == [(holder, False)] * copies
    assert space.run(op) == [(holder, False)] * copies
    lease(space)
    settle(space, claim(space))
    got = space.run(op)
    assert [entry.created for entry in got] == [True, False][:copies]
    assert len({entry.id for entry in got}) == 1
    assert [entry.created for entry in space.run(op)] == [False] * copies


def test_key_is_remembered_as_long_as_its_job_and_a_week_at_least(space: Space, clock: Clock) -> None:
    space.rows(
        "SELECT fencerow.declare_task('t', NULL, NULL, 20, 'retry', '2 s', '1 h', '1 h', '0 s', '0 s')"
    )
    op = jobs.enqueue([job(idempotency_key="x")])
    (first,) = space.run(op)
    space.run(jobs.enqueue([job()]))
    lease(space)
    settle(space, claim(space, limit=2))

    assert space.run(jobs.purge()) == (1, first.id + 1)
    clock.advance(86400 * 7 - 60)
    assert space.run(jobs.purge()) == (0, first.id)
    assert space.run(op) == [(first.id, False)]
    clock.advance(120)
    assert space.run(jobs.purge()) == (1, first.id)
    (again,) = space.run(op)
    assert again.created
    assert again.id != first.id


def test_key_purged_between_two_looks_is_no_new_job_without_memory(space: Space) -> None:
    """A gate after the insert holds the enqueue where the key's job is purged under it."""
    op = jobs.enqueue([job(idempotency_key="x")])
    (old,) = space.run(op)
    lease(space)
    settle(space, claim(space))
    space.rows("UPDATE fencerow.ended SET ended_at = ended_at - interval '100 days'")
    space.rows(
        "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END $$; "
        "CREATE TRIGGER gate AFTER INSERT ON fencerow.idempotency_key EXECUTE FUNCTION gate()"
    )
    space.at_end(lambda: space.rows("DROP FUNCTION gate() CASCADE"))
    keeper, asker = SessionThread(space), SessionThread(space)
    keeper.sql("SELECT pg_advisory_lock(4711)")

    asking = asker.start(op)
    asking.wait_until_blocked(keeper)
    assert space.run(jobs.purge()) == (1, old.id)
    keeper.sql("SELECT pg_advisory_unlock(4711)")

    assert isinstance(asking.error(), ResourceBusy)
    assert asker.run(op)[0].created is True
    assert asker.run(op)[0].created is False
