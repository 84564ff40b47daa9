"""Many jobs in one call: all or none, in order, each key once."""

import threading
import tracemalloc
from collections.abc import Iterator

import pytest

from fencerow import App, NewJob, Task, limits
from fencerow.errors import DuplicateInBatch, IdempotencyConflict, InvalidPayload, UsageError
from fencerow.testing.space import Space
from tests.client.conftest import note

MANY = 200_000


def count(space: Space) -> int:
    return int(space.value("SELECT count(*) FROM fencerow.job"))


def many(task: Task[..., None], *, invalid_at_the_end: bool) -> Iterator[NewJob]:
    for n in range(MANY):
        yield task.bind("x", n)
    if invalid_at_the_end:
        yield task.bind("x\0")


@pytest.mark.campaign
@pytest.mark.slow
def test_two_hundred_thousand_are_all_in_or_none(space: Space, app: App, task: Task[..., None]) -> None:
    """C074. Slow: it writes 400,000 jobs, and rolls half of them back."""
    with pytest.raises(InvalidPayload, match=r"\$\.text"):
        app.enqueue_many(many(task, invalid_at_the_end=True))
    assert count(space) == 0

    handles = app.enqueue_many(many(task, invalid_at_the_end=False))

    found = space.rows(
        "SELECT count(*), count(*) FILTER (WHERE payload->>'value' <> (rank - 1)::text) FROM "
        "(SELECT payload, row_number() OVER (ORDER BY id) AS rank FROM fencerow.job) AS ranked"
    )
    assert found == [(MANY, 0)]
    assert [handle.id for handle in handles] == sorted(handle.id for handle in handles)


def test_an_iterator_is_read_as_it_is_sent(space: Space, app: App, task: Task[..., None]) -> None:
    """C074: memory is bounded by a few chunks of 4 MiB, not by the 80 MB that go through."""
    job = task.bind("x", "y" * 200_000)
    tracemalloc.start()
    handles = app.enqueue_many(NewJob(job.task, job.payload[:-2] + f'{n:04}"}}') for n in range(400))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert (len(handles), count(space)) == (400, 400)
    assert peak < 40_000_000


async def test_many_are_all_in_or_none_in_a_loop(
    space: Space, loop_app: App, loop_task: Task[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ENQUEUE_BATCH_MAX", 10)
    jobs = [loop_task.bind("x", n) for n in range(25)]

    def failing() -> Iterator[NewJob]:
        yield from jobs
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await loop_app.aenqueue_many(failing())
    assert count(space) == 0
    handles = await loop_app.aenqueue_many(jobs)
    assert space.rows("SELECT id, (payload->>'value')::int FROM fencerow.job ORDER BY id") == [
        (handle.id, n) for n, handle in enumerate(handles)
    ]


def test_nothing_is_enqueued_by_an_empty_batch(app: App) -> None:
    """Bad input 21."""
    assert app.enqueue_many([]) == []
    assert app.enqueue_many(iter(())) == []


@pytest.mark.parametrize("chunk", [2, 10_000], ids=["across-chunks", "in-one-chunk"])
def test_a_key_that_appears_again_answers_the_same_job(
    space: Space, app: App, task: Task[..., None], monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """Bad input 21: same payload, same id at both positions; the order of keys inside the payload does not matter."""
    monkeypatch.setattr(limits, "ENQUEUE_BATCH_MAX", chunk)
    keyed = task.using(idempotency_key="k")
    jobs = [
        task.bind("first"),
        keyed.bind("x", {"a": 1, "b": 2}),
        task.bind("second"),
        keyed.bind("x", {"b": 2, "a": 1}),
        task.bind("third"),
    ]
    first, key, second, again, third = app.enqueue_many(jobs)

    assert (key.id, key.created, again.created) == (again.id, True, False)
    assert (count(space), len({first.id, key.id, second.id, third.id})) == (4, 4)


@pytest.mark.parametrize("chunk", [2, 10_000], ids=["across-chunks", "in-one-chunk"])
def test_a_key_that_appears_again_for_other_work_is_refused(
    space: Space, app: App, task: Task[..., None], monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """Bad input 21: with the positions, and nothing is enqueued."""
    monkeypatch.setattr(limits, "ENQUEUE_BATCH_MAX", chunk)
    other: Task[..., None] = app.task(name="other")(note)
    keyed, other_keyed = task.using(idempotency_key="k"), other.using(idempotency_key="k")
    for last in (keyed.bind("y"), other_keyed.bind("x")):
        with pytest.raises(DuplicateInBatch) as caught:
            app.enqueue_many([task.bind("a"), task.bind("b"), keyed.bind("x"), task.bind("c"), last])
        assert caught.value.indexes == [2, 4]
    assert count(space) == 0


def test_a_key_that_was_used_before_fails_the_whole_batch(
    space: Space, app: App, task: Task[..., None]
) -> None:
    task.using(idempotency_key="k").enqueue("before")
    with pytest.raises(IdempotencyConflict):
        app.enqueue_many([task.bind("a"), task.using(idempotency_key="k").bind("after")])

    assert count(space) == 1


def test_something_else_than_a_job_is_refused_with_its_position(app: App, task: Task[..., None]) -> None:
    with pytest.raises(UsageError, match="entry 1 of the batch is of type Task"):
        app.enqueue_many([task.bind("a"), task])  # type: ignore[list-item]


def test_twenty_threads_share_one_app(space: Space, app: App, task: Task[..., None]) -> None:
    """C070 from the client: one job under a key, the same id for all; connections are few and each is used by one."""
    ids: set[int] = set()
    start = threading.Barrier(20)

    def enqueue() -> None:
        start.wait(20)
        for n in range(5):
            ids.add(task.using(idempotency_key=f"k{n}").enqueue("a", n).id)

    threads = [threading.Thread(target=enqueue) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert (len(ids), count(space)) == (5, 5)
