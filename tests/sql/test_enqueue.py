"""Enqueue: answers aligned with the inputs, defaults of the task, times of the database, all with its transaction."""

from datetime import UTC, datetime, timedelta

import pytest
from psycopg.errors import DatabaseError, RaiseException

from fencerow.ops import jobs, workers
from fencerow.store.session import run_on
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space
from tests.sql.steps import A, claim, enqueue, job, lease, policy

PARAMETERS = {
    "payloads": "ARRAY['{}']::jsonb[]",
    "queues": "ARRAY['q']",
    "priorities": "ARRAY[1]",
    "run_ats": "ARRAY['2030-01-01+00'::timestamptz]",
    "run_ins": "ARRAY['1 h'::interval]",
    "max_attempts": "ARRAY[1]",
    "timeouts": "ARRAY['1 h'::interval]",
    "on_losts": "ARRAY['fail']",
    "tags": "ARRAY['[]'::jsonb]",
    "headers": "ARRAY['{}'::jsonb]",
    "idempotency_keys": "ARRAY['i']",
    "unique_keys": "ARRAY['k']",
    "unique_untils": "ARRAY['started']",
    "unique_fors": "ARRAY['1 h'::interval]",
    "on_conflicts": "ARRAY['replace']",
}


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("count", [2, 0])
def test_arrays_of_another_length_are_refused(space: Space, name: str, count: int) -> None:
    """Else the jobs at the end would run at once, without their time, key or limit."""
    payloads = "" if name == "payloads" else f", payloads => array_fill('{{}}'::jsonb, ARRAY[{count}])"
    tasks = f"array_fill('t'::text, ARRAY[{count}])"
    with pytest.raises(DatabaseError, match="differ in length") as caught:
        space.rows(f"SELECT * FROM fencerow.enqueue_many({tasks}{payloads}, {name} => {PARAMETERS[name]})")
    assert caught.value.sqlstate == "QF002"
    assert not isinstance(caught.value, RaiseException)
    assert space.rows("SELECT FROM fencerow.job") == []


def test_batch_of_nothing_and_of_many(space: Space) -> None:
    """Bad input 21."""
    assert space.run(jobs.enqueue([])) == []
    got = space.run(jobs.enqueue([job(payload=f'{{"n": {n}}}') for n in range(10_000)]))
    assert [entry.id for entry in got] == list(range(1, 10_001))
    assert space.value("SELECT count(*) FROM fencerow.job WHERE (payload ->> 'n')::int = id - 1") == 10_000


def test_defaults_come_from_the_task_and_then_from_the_space(space: Space) -> None:
    policy(space, name="mail", queue="post", priority=7, max_attempts=3, on_lost="fail", timeout=None)
    enqueue(space, task="mail")
    enqueue(space, task="mail", queue="own", priority=9)
    enqueue(space, task="other")

    seen = "SELECT queue, priority, max_attempts, on_lost, timeout FROM fencerow.jobs ORDER BY id"
    assert space.rows(seen) == [
        ("post", 7, 3, "fail", None), ("own", 9, 3, "fail", None), ("default", 100, 20, "retry", timedelta(hours=1)),
    ]  # fmt: skip


def test_time_ahead_is_scheduled_and_any_other_is_ready(space: Space, clock: Clock) -> None:
    now = clock.stop()
    times = [
        None,
        now,
        now - timedelta(days=1),
        now + timedelta(microseconds=1),
        datetime(8999, 12, 31, tzinfo=UTC),
    ]
    new = [job(run_at=time) for time in times] + [job(run_in=0.0), job(run_in=0.001)]
    space.run(jobs.enqueue(new))

    assert [row[0] for row in space.rows("SELECT state FROM fencerow.jobs ORDER BY id")] == [
        "ready", "ready", "ready", "scheduled", "scheduled", "ready", "scheduled",
    ]  # fmt: skip
    assert space.rows("SELECT DISTINCT created_at FROM fencerow.job") == [(now,)]


def test_time_in_a_long_transaction_is_the_time_of_the_call(space: Space, clock: Clock) -> None:
    """C114: now() would stand still."""
    clock.stop()
    connection = space.connect(autocommit=False)
    connection.execute("SELECT 1")
    clock.advance(3600)
    run_on(connection, jobs.enqueue([job(run_in=1.0)]))
    run_on(connection, workers.open_lease(A, "a", seconds=2))
    connection.commit()

    left = space.rows(
        "SELECT s.run_at - fencerow.now(), l.until - fencerow.now() FROM fencerow.scheduled AS s, fencerow.lease AS l"
    )
    assert left == [(timedelta(seconds=1), timedelta(seconds=2))]


def test_enqueue_is_undone_with_its_transaction(space: Space) -> None:
    connection = space.connect(autocommit=False)
    run_on(connection, jobs.enqueue([job(), job(run_in=60.0)]))
    assert space.rows("SELECT FROM fencerow.job") == []
    connection.rollback()
    run_on(connection, jobs.enqueue([job()]))
    connection.commit()

    assert [row[0] for row in space.rows("SELECT id FROM fencerow.jobs")] == [3]
    assert space.rows("SELECT FROM fencerow.scheduled") == []


def test_only_sleepers_are_woken_and_only_as_many_as_there_are_jobs(space: Space) -> None:
    """C067: a NOTIFY goes to at most one sleeper per job, and to nobody who is awake."""
    listener = space.connect()
    listener.execute(f"LISTEN {space.run(workers.channel())}".encode())
    lease(space)

    def heard() -> list[str]:
        listener.execute("SELECT 1")
        return [note.payload for note in listener.notifies(timeout=0, stop_after=100)]

    enqueue(space)
    for number in (11, 12, 13):
        space.run(workers.doze(number, ["default", "mail"]))
    enqueue(space, queue="nobody sleeps here")
    enqueue(space, run_in=60.0)
    told = heard()
    assert len(told) <= 1
    enqueue(space)
    told = heard()
    assert len(told) == 1
    assert told[0] in ("11", "12", "13")
    space.run(jobs.enqueue([job(queue="mail") for _ in range(5)]))
    assert sorted(heard()) == ["11", "12", "13"]
    for number in (11, 12, 13):
        space.run(workers.rouse(number, ["default", "mail"]))
    enqueue(space)
    assert heard() == []
    assert len(claim(space, limit=9)) == 3


def test_wake_up_that_cannot_be_sent_costs_no_enqueue(space: Space) -> None:
    """A NOTIFY is a hint: here its channel is missing, as it would be for a broken queue of notifications."""
    connection = space.connect(autocommit=False)
    connection.execute("DELETE FROM fencerow.space")
    connection.execute("INSERT INTO fencerow.asleep (queue, lease_id, since) VALUES ('default', 1, now())")
    assert run_on(connection, jobs.enqueue([job()]))[0].created
    connection.rollback()
