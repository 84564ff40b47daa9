"""One enqueue: what is stored, its time, its handle, and where it is refused."""

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencerow import App, Handle, Task, Unique
from fencerow.errors import (
    DatabaseUnavailable,
    Duplicate,
    IdempotencyConflict,
    NotInstalled,
    SchemaError,
    UsageError,
)
from fencerow.ops import workers
from fencerow.testing.space import Space
from tests.unit.test_codec import PLAIN


def job(space: Space, job_id: int) -> dict[str, Any]:
    """The job as JSON, and where its ticket is."""
    return {
        **space.value("SELECT to_jsonb(j) FROM fencerow.job j WHERE id = %s", (job_id,)),
        "state": space.value("SELECT state FROM fencerow.jobs WHERE id = %s", (job_id,)),
    }


def count(space: Space) -> int:
    return int(space.value("SELECT count(*) FROM fencerow.job"))


def test_enqueue_stores_the_call_by_name(space: Space, task: Task[..., None]) -> None:
    handle = task.enqueue("a", value=[1])

    stored = job(space, handle.id)
    assert handle.created
    assert stored["payload"] == {"text": "a", "value": [1]}
    assert (stored["task"], stored["queue"], stored["priority"], stored["state"]) == (
        "note",
        "default",
        100,
        "ready",
    )


async def test_aenqueue_stores_the_same(space: Space, loop_task: Task[..., None]) -> None:
    handle = await loop_task.aenqueue("a")

    assert job(space, handle.id)["payload"] == {"text": "a"}


def test_using_stores_each_option(space: Space, task: Task[..., None]) -> None:
    calls = task.using(
        queue="mail",
        priority=-5,
        max_attempts=3,
        timeout=timedelta(seconds=90),
        on_lost="fail",
        tags=["a", "b"],
        headers={"trace": "x"},
        idempotency_key="i",
        unique=Unique("u", until="started"),
    )
    stored = job(space, calls.enqueue("a").id)

    assert {name: stored[name] for name in ("queue", "priority", "max_attempts", "timeout", "on_lost")} == {
        "queue": "mail",
        "priority": -5,
        "max_attempts": 3,
        "timeout": "00:01:30",
        "on_lost": "fail",
    }
    assert (stored["tags"], stored["headers"]) == (["a", "b"], {"trace": "x"})
    assert (stored["idempotency_key"], stored["unique_key"], stored["unique_until"]) == ("i", "u", "started")


def test_a_job_takes_queue_and_priority_from_its_declared_task(app: App, space: Space) -> None:
    @app.task(queue="mail", priority=7)
    def send() -> None: ...

    space.run(workers.declare_task(send.policy))
    stored = job(space, send.enqueue().id)

    assert (stored["queue"], stored["priority"], stored["max_attempts"]) == ("mail", 7, None)


def test_run_at_is_an_instant_whatever_the_time_zone_of_the_session(
    space: Space, task: Task[..., None]
) -> None:
    """C048: the same instant, given in two zones, is the same under a session far from UTC."""
    there = timezone(timedelta(hours=-5))
    moment = datetime(2030, 7, 1, 12, tzinfo=UTC)
    space.connection.execute("ALTER ROLE CURRENT_USER SET timezone = 'America/New_York'")
    try:
        handles = [
            task.using(run_at=moment).enqueue("a"),
            task.using(run_at=moment.astimezone(there)).enqueue("b"),
        ]
    finally:
        space.connection.execute("ALTER ROLE CURRENT_USER RESET timezone")

    found = space.rows(
        "SELECT run_at, state FROM fencerow.jobs WHERE id = ANY (%s)", ([h.id for h in handles],)
    )
    assert found == [(moment, "scheduled")] * 2


def test_a_delay_counts_from_the_statement_inside_a_long_transaction(
    space: Space, task: Task[..., None], app: App
) -> None:
    """C114: not from the transaction's begin; a delay of zero is ready at once."""
    with space.connect(autocommit=False) as connection:
        begun = connection.execute("SELECT now()").fetchone()
        space.value("SELECT count(*) FROM generate_series(1, 1000)")
        handle = task.using(connection=connection, run_in=3600).enqueue("a")
        at_once = task.using(connection=connection, run_in=0).enqueue("b")

    ((run_at, created_at),) = space.rows(
        "SELECT run_at, created_at FROM fencerow.job WHERE id = %s", (handle.id,)
    )
    assert begun is not None
    assert run_at - created_at == timedelta(hours=1)
    assert created_at > begun[0]
    assert (job(space, handle.id)["state"], job(space, at_once.id)["state"]) == ("scheduled", "ready")


def test_a_job_waits_unclaimed_until_its_time(space: Space, task: Task[..., None]) -> None:
    """C112: a delayed job has no lease to run out."""
    handle = task.using(run_in=timedelta(days=1)).enqueue("a")

    assert job(space, handle.id)["state"] == "scheduled"
    assert space.value("SELECT count(*) FROM fencerow.running") == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(values=st.lists(PLAIN, max_size=20))
def test_values_come_back_from_the_database_as_they_were(
    app: App, space: Space, task: Task[..., None], values: list[Any]
) -> None:
    """C117, C094: through jsonb, with types and every digit; minus zero alone loses its sign."""
    handles = app.enqueue_many([task.bind("x", value) for value in values])
    for value, handle in zip(values, handles, strict=True):
        text = space.value("SELECT payload::text FROM fencerow.job WHERE id = %s", (handle.id,))
        got = task.load(text)[1]["value"]
        assert got == value
        assert json.dumps(got, sort_keys=True).replace("-0.0", "0.0") == json.dumps(
            value, sort_keys=True
        ).replace("-0.0", "0.0")


def test_text_that_looks_dangerous_is_stored_as_it_is(space: Space, task: Task[..., None]) -> None:
    """C092: emoji and a literal backslash-u0000 are untouched; quotes are only text."""
    text = "\U0001f600 \\u0000 \"; DROP TABLE job; -- %s {0} '"
    handle = task.using(tags=[text[:90]], idempotency_key="k'; --").enqueue(text)

    stored = job(space, handle.id)
    assert (stored["payload"]["text"], stored["tags"], stored["idempotency_key"]) == (
        text,
        [text[:90]],
        "k'; --",
    )


@pytest.mark.parametrize("fill", [0, "", [], {}, 1.5, "é"], ids=repr)
def test_every_payload_within_the_limit_is_stored(space: Space, task: Task[..., None], fill: Any) -> None:
    """The limit of the client is the one that is met: the check in the table never refuses what passed it."""
    size = len(json.dumps(fill, ensure_ascii=False).encode()) + 1
    handle = task.enqueue("x", [fill] * (262_100 // size))

    assert job(space, handle.id)["state"] == "ready"


def test_a_handle_cancels_its_job(space: Space, app: App, task: Task[..., None]) -> None:
    handle = task.enqueue("a")

    assert handle.cancel(reason="not wanted\0") == "cancelled"
    assert handle.cancel() == "cancelled"
    assert app.cancel(2**62) == "unknown"
    assert space.value("SELECT error FROM fencerow.ended") == "not wanted\\x00"


async def test_a_handle_cancels_its_job_in_a_loop(loop_app: App, loop_task: Task[..., None]) -> None:
    handle = await loop_task.aenqueue("a")

    assert await handle.acancel() == "cancelled"
    assert await loop_app.aredrive(handle.id) == "cancelled"


def test_redrive_answers_the_state_of_a_job_that_has_not_failed(app: App, task: Task[..., None]) -> None:
    assert app.redrive(task.enqueue("a").id) == "ready"
    assert app.redrive(2**62) == "unknown"


def test_an_idempotency_key_answers_the_same_job(space: Space, task: Task[..., None]) -> None:
    keyed = task.using(idempotency_key="k")
    first, again = keyed.enqueue("a", {"x": 1, "y": 2}), keyed.enqueue("a", {"y": 2, "x": 1})

    assert (again.id, first.created, again.created, count(space)) == (first.id, True, False, 1)
    assert first == Handle(first.id, True, task.app)  # type: ignore[arg-type]
    with pytest.raises(IdempotencyConflict, match="another task or payload"):
        keyed.enqueue("hunter2")
    assert count(space) == 1


def test_a_unique_key_follows_its_rule(space: Space, task: Task[..., None]) -> None:
    first = task.using(unique=Unique("u")).enqueue("a")

    assert task.using(unique=Unique("u")).enqueue("b") == Handle(first.id, False, task.app)  # type: ignore[arg-type]
    with pytest.raises(Duplicate) as caught:
        task.using(unique=Unique("u", on_conflict="raise")).enqueue("c")
    assert caught.value.job_id == first.id
    replacement = task.using(unique=Unique("u", on_conflict="replace")).enqueue("d")
    assert replacement.created
    assert job(space, first.id)["state"] == "cancelled"


def test_a_key_is_free_when_its_enqueue_did_not_happen(space: Space, task: Task[..., None]) -> None:
    """C072: rolled back, or refused before it was sent."""
    keyed = task.using(unique=Unique("u", on_conflict="raise"))
    connection = space.connect(autocommit=False)
    task.using(unique=Unique("u"), connection=connection).enqueue("a")
    connection.rollback()
    with pytest.raises(UsageError):
        keyed.enqueue("x" * 300_000)

    assert keyed.enqueue("b").created


def test_no_sync_call_blocks_an_event_loop(task: Task[..., None], app: App, space: Space) -> None:
    async def inside() -> None:
        connection = space.connect()
        for call, instead in (
            (lambda: task.enqueue("a"), "aenqueue"),
            (lambda: task.using(connection=connection).enqueue("a"), "aenqueue"),
            (lambda: app.enqueue_many([]), "aenqueue"),
            (lambda: app.cancel(1), "acancel"),
            (lambda: app.redrive(1), "aredrive"),
        ):
            with pytest.raises(UsageError, match=instead):
                call()

    asyncio.run(inside())
    assert count(space) == 0


def test_each_loop_has_its_own_connections(space: Space) -> None:
    """One app, two loops one after the other: the second does not get connections of a loop that is gone."""
    app = App(space.dsn)
    task = app.task(name="note")(lambda: None)

    async def once() -> None:
        async with app:
            await asyncio.gather(*(task.aenqueue() for _ in range(15)))

    asyncio.run(once())
    asyncio.run(once())

    assert count(space) == 30


def test_a_space_that_is_not_there_is_one_line_with_the_cure(space: Space) -> None:
    """Bad input 22, 23."""
    with (
        App(space.dsn, schema="nowhere") as app,
        pytest.raises(NotInstalled, match="fencerow migrate") as caught,
    ):
        app.task(name="note")(lambda: None).enqueue()
    assert "\n" not in str(caught.value)
    space.connection.execute("CREATE SCHEMA foreign_one CREATE TABLE job (id int)")
    try:
        with App(space.dsn, schema="foreign_one") as app, pytest.raises(SchemaError):
            app.task(name="note")(lambda: None).enqueue()
    finally:
        space.connection.execute("DROP SCHEMA foreign_one CASCADE")


def test_a_server_that_is_not_there_is_one_line_without_the_password(tmp_path: object) -> None:
    """Bad input 22, I14."""
    with (
        App(f"postgresql://u:hunter2@/db?host={tmp_path}") as app,
        pytest.raises(DatabaseUnavailable) as caught,
    ):
        app.task(name="note")(lambda: None).enqueue()

    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_foreign_constraint_is_not_taken_for_a_key(space: Space, task: Task[..., None]) -> None:
    """C116: only the queue's own keys count as a duplicate."""
    with space.connect(autocommit=False) as connection:
        connection.execute("CREATE TEMP TABLE own (id int PRIMARY KEY)")
        task.using(connection=connection, unique=Unique("u")).enqueue("a")
        connection.execute("INSERT INTO own VALUES (1)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO own VALUES (1)")
        connection.rollback()

    assert count(space) == 0


FORKING = """
import os, sys
from fencerow import App
app = App(sys.argv[1])
task = app.task(name="note")(lambda text: None)
task.enqueue("parent")
child = os.fork()
if child == 0:
    task.enqueue("child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
task.enqueue("parent again")
"""


def test_a_fork_does_not_share_connections(space: Space) -> None:
    """A child that used its parent's connection would break both; the parent's is the same before and after."""
    answer = subprocess.run([sys.executable, "-c", FORKING, space.dsn], capture_output=True, text=True)

    assert answer.returncode == 0, answer.stderr
    texts = space.rows("SELECT payload->>'text' FROM fencerow.job ORDER BY id")
    assert texts == [("parent",), ("child",), ("parent again",)]
