"""assert_enqueued(): exact, and helpful when it fails."""

from datetime import date
from typing import Any

import pytest

from fencerow import App, UsageError
from fencerow.testing import aassert_enqueued, assert_enqueued, drain


def test_it_finds_by_task_payload_queue_and_state(app: App) -> None:
    @app.task(name="mail", queue="mail")
    def mail(to: str, body: dict[str, Any], day: date) -> None: ...

    one = mail.enqueue("a@b", {"greeting": {"en": "hello", "de": "hallo"}, "n": 1}, date(2026, 3, 4))
    two = mail.using(queue="slow", priority=5, tags=["x"]).enqueue("c@d", {"n": True}, date(2026, 3, 5))

    assert [job.id for job in assert_enqueued(app, mail, count=2)] == [one.id, two.id]
    (found,) = assert_enqueued(app, "mail", payload={"body": {"greeting": {"en": "hello"}}}, state="ready")
    assert (found.id, found.payload["day"]) == (one.id, "2026-03-04")
    assert assert_enqueued(app, mail, payload={"day": date(2026, 3, 5)}, priority=5, tag="x")[0].id == two.id
    assert_enqueued(app, mail, payload={"body": {"n": True}}, queue="slow")
    assert_enqueued(app, mail, payload={"body": {"n": 1}}, queue="mail")
    assert_enqueued(app, mail, queue="nowhere", count=0)
    drain(app)
    assert_enqueued(app, mail, count=2)


def test_its_message_lists_what_is_there(app: App) -> None:
    @app.task(name="mail")
    def mail(to: str) -> None: ...

    with pytest.raises(AssertionError, match="found 0; the database has\n  no jobs"):
        assert_enqueued(app, mail)
    for n in range(25):
        mail.enqueue(f"user{n}@example.org")
    with pytest.raises(AssertionError) as error:
        assert_enqueued(app, "mial", count=2, payload={"to": "user3@example.org"})

    lines = str(error.value).splitlines()
    assert lines[0] == (
        'expected 2 enqueued with task="mial", payload={"to": "user3@example.org"}, found 0; the database has'
    )
    assert lines[1].endswith('mail ready queue=default priority=100 {"to": "user0@example.org"}')
    assert lines[-1] == "  and 5 more"


async def test_in_a_loop_it_is_awaited(app: App) -> None:
    @app.task(name="mail")
    async def mail() -> None: ...

    await mail.aenqueue()

    assert len(await aassert_enqueued(app, mail)) == 1
    with pytest.raises(UsageError, match="aassert_enqueued"):
        assert_enqueued(app, mail)
    with pytest.raises(AssertionError, match="found 1"):
        await aassert_enqueued(app, mail, count=3)
