"""I11: the reply to an enqueue is lost, after the job was committed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fencerow import App, NewJob, Task, limits
from fencerow.errors import CommitUncertain
from fencerow.testing.space import Space
from tests.client.conftest import note
from tests.client.wire import LossyWire


@pytest.fixture
def wire(space: Space, tmp_path: Path) -> Iterator[LossyWire]:
    with LossyWire(space.dsn, tmp_path) as wire:
        yield wire


@pytest.fixture
def far_app(wire: LossyWire) -> Iterator[App]:
    with App(wire.dsn) as app:
        app.task(name="note")(note)
        yield app


def count(space: Space) -> int:
    return int(space.value("SELECT count(*) FROM fencerow.job"))


def test_an_enqueue_without_a_key_says_that_it_does_not_know(
    space: Space, wire: LossyWire, far_app: App
) -> None:
    wire.lose("enqueue_many")
    with pytest.raises(CommitUncertain, match="idempotency_key"):
        far_app.tasks["note"].enqueue("a")

    assert (wire.lost, count(space)) == (1, 1)
    assert far_app.tasks["note"].enqueue("b").created


def test_an_enqueue_with_a_key_learns_its_job(space: Space, wire: LossyWire, far_app: App) -> None:
    wire.lose("enqueue_many")
    handle = far_app.tasks["note"].using(idempotency_key="k").enqueue("a")

    assert (wire.lost, count(space)) == (1, 1)
    assert space.value("SELECT id FROM fencerow.job") == handle.id


async def test_an_aenqueue_with_a_key_learns_its_job(space: Space, wire: LossyWire) -> None:
    async with App(wire.dsn) as app:
        task: Task[..., None] = app.task(name="note")(note)
        wire.lose("enqueue_many")
        handle = await task.using(idempotency_key="k").aenqueue("a")
        wire.lose("enqueue_many")
        with pytest.raises(CommitUncertain):
            await task.aenqueue("a")

    assert (wire.lost, count(space)) == (2, 2)
    assert space.value("SELECT min(id) FROM fencerow.job") == handle.id


def test_a_cancel_is_asked_again(space: Space, wire: LossyWire, far_app: App) -> None:
    handle = far_app.tasks["note"].enqueue("a")
    wire.lose("cancel(")

    assert (handle.cancel(), wire.lost) == ("cancelled", 1)


@pytest.mark.parametrize("marker", ["COMMIT\0", "enqueue_many"], ids=["commit", "inside"])
def test_a_batch_of_several_statements_is_never_half_there(
    space: Space, wire: LossyWire, far_app: App, monkeypatch: pytest.MonkeyPatch, marker: str
) -> None:
    monkeypatch.setattr(limits, "ENQUEUE_BATCH_MAX", 10)
    keyed = [far_app.tasks["note"].using(idempotency_key=f"k{n}") for n in range(25)]
    jobs: list[NewJob] = [calls.bind("a", n) for n, calls in enumerate(keyed)]
    wire.lose(marker)
    with pytest.raises(Exception, match="the connection was lost") as caught:
        far_app.enqueue_many(jobs)

    assert isinstance(caught.value, CommitUncertain) == (marker == "COMMIT\0")
    assert count(space) == (25 if marker == "COMMIT\0" else 0)
    assert len(far_app.enqueue_many(jobs)) == 25
    assert count(space) == 25
