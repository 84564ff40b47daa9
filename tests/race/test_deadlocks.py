"""
Everything at once, with deadlocks detected after 10 ms: the lock order holds, so none is ever found (C028, C101).

Each thread works a fixed number of rounds; nothing is timed.
"""

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

import psycopg
import pytest

from fencerow.errors import Deadlock, FencerowError, ResourceBusy
from fencerow.ops import jobs, workers
from fencerow.ops.base import Op
from fencerow.store.session import run_on
from fencerow.testing.space import Space
from fencerow.types import OnConflict, Settlement, Unique
from tests.sql.steps import job

JOIN_SECONDS = 50.0
MODES: tuple[OnConflict, ...] = ("existing", "replace", "extend")


@pytest.fixture
def eager(space: Space) -> Iterator[Space]:
    """A server that looks for deadlocks after 10 ms."""
    space.rows("ALTER ROLE fencerow SET deadlock_timeout = '10ms'")
    yield space
    space.release()
    space.rows("ALTER ROLE fencerow RESET deadlock_timeout")


def together(space: Space, *crews: Callable[[Callable[[Op[Any]], Any]], None]) -> list[FencerowError]:
    """Run each crew on a connection and thread of its own; the errors that are not mere waiting."""
    errors: list[FencerowError] = []
    start = threading.Barrier(len(crews))

    def work(crew: Callable[[Callable[[Op[Any]], Any]], None], connection: psycopg.Connection[Any]) -> None:
        def run(op: Op[Any]) -> Any:
            try:
                return run_on(connection, op)
            except ResourceBusy:
                return []  # a lock wait that was given up is allowed, a deadlock is not
            except FencerowError as error:
                errors.append(error)
                return []

        start.wait(JOIN_SECONDS)
        crew(run)

    threads = [threading.Thread(target=work, args=(crew, space.connect()), daemon=True) for crew in crews]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    return errors


Run = Callable[[Op[Any]], Any]


def completer(number: int, rounds: int) -> Callable[[Run], None]:
    def crew(run: Run) -> None:
        chance = random.Random(number)
        lease = 100 + number
        run(workers.open_lease(lease, f"w{number}", seconds=600))
        for _ in range(rounds):
            held = run(jobs.claim(lease, "default", limit=20))
            chance.shuffle(held)
            for verb in ("complete", "retry", "release"):
                part, held = held[: len(held) // 2 + 1], held[len(held) // 2 + 1 :]
                if part:
                    run(jobs.settle([Settlement(claim, verb, error="x") for claim in part]))

    return crew


def producer(number: int, rounds: int) -> Callable[[Run], None]:
    def crew(run: Run) -> None:
        chance = random.Random(number)
        keys = [f"k{n}" for n in range(200)]
        for _ in range(rounds):
            chance.shuffle(keys)
            modes = chance.choices(MODES, k=30)
            new = [
                job(unique=Unique(key, chance.choice(["finished", "started", 0.001]), mode), run_in=chance.choice([None, 0.01]))
                for key, mode in zip(keys, modes, strict=False)
            ]  # fmt: skip
            run(jobs.enqueue(new))

    return crew


def purger(number: int, rounds: int) -> Callable[[Run], None]:
    def crew(run: Run) -> None:
        for _ in range(rounds):
            run(jobs.purge(0, 200))
            run(jobs.promote())
            run(jobs.expire())

    return crew


def canceller(space: Space, rounds: int) -> Callable[[Run], None]:
    def crew(run: Run) -> None:
        for round_ in range(rounds):
            for job_id in range(round_ % 7 + 1, 400, 7):
                run(jobs.cancel(job_id))
                if job_id % 3 == 0:
                    run(jobs.redrive(job_id))

    return crew


def test_all_transitions_at_once_never_deadlock(eager: Space) -> None:
    eager.rows("SELECT fencerow.declare_task('t', NULL, NULL, 3, 'retry', '2 s', '1 h', '1 h', '0 s', '0 s')")

    errors = together(
        eager,
        *(producer(n, 12) for n in range(3)),
        *(completer(n, 12) for n in range(4)),
        *(purger(n, 15) for n in range(4)),
        canceller(eager, 2),
    )

    assert [str(error) for error in errors if not isinstance(error, Deadlock)] == [
        str(error) for error in errors if type(error).__name__ == "Duplicate"
    ]
    assert [str(error) for error in errors if isinstance(error, Deadlock)] == []
    assert (
        eager.value("SELECT count(*) FROM fencerow.ended")
        + eager.value("SELECT count(*) FROM fencerow.running")
        > 0
    )
    twice = "SELECT count(*) FROM fencerow.jobs WHERE state IS NULL"
    assert eager.value(twice) == 0


@pytest.mark.parametrize("until", ["finished", "started"])
def test_batches_over_the_same_keys_in_opposite_order_never_deadlock(
    eager: Space, until: Literal["finished", "started"]
) -> None:
    """C028: enqueue_many(keys 1..200) against enqueue_many(keys 200..1), completed in reverse."""
    keys = [f"key{n:03}" for n in range(200)]

    def enqueuer(order: list[str]) -> Callable[[Run], None]:
        def crew(run: Run) -> None:
            for _ in range(6):
                run(jobs.enqueue([job(unique=Unique(key, until)) for key in order]))

        return crew

    def finisher(number: int) -> Callable[[Run], None]:
        def crew(run: Run) -> None:
            run(workers.open_lease(number, f"w{number}", seconds=600))
            for _ in range(12):
                held = run(jobs.claim(number, "default", limit=60))
                if held:
                    run(jobs.settle([Settlement(claim, "complete") for claim in reversed(held)]))

        return crew

    errors = together(eager, enqueuer(keys), enqueuer(keys[::-1]), finisher(1), finisher(2))

    assert errors == []
    live = (
        "SELECT count(*), count(DISTINCT j.unique_key) FROM fencerow.jobs AS j "
        "WHERE j.state IN ('ready', 'scheduled', 'running')"
    )
    if until == "finished":
        count, distinct = eager.rows(live)[0]
        assert count == distinct
