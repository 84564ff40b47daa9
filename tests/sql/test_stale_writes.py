"""The stale writer through both ways to run an operation, and cases that need no file of their own."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from fencerow.ops import jobs, workers
from fencerow.ops.base import Op
from fencerow.store.stores import AsyncStore, SyncStore
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space
from fencerow.types import Claim, NewJob, Settlement, Unique
from tests.sql.steps import B, claim, end_lease, enqueue, lease, lose, refusals, running, settle, state

T = TypeVar("T")
Run = Callable[[Op[Any]], Awaitable[Any]]
LATE = ("complete", "fail", "snooze")


async def _late(run: Run, held: Claim) -> list[str]:
    """What the database says to each kind of write for a claim."""
    found = [
        (await run(jobs.settle([Settlement(held, verb, error="x", delay=1.0)])))[0].verdict  # type: ignore[arg-type]
        for verb in LATE
    ]
    return [*found, (await run(jobs.progress(held, 0.5, None))).verdict]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_every_write_of_a_stale_worker_is_refused_with_the_reason(
    space: Space, clock: Clock, kind: str
) -> None:
    """C001: superseded after another claim, expired before one, unknown without a job, already for the same write again."""
    sync, other = SyncStore(space.target), AsyncStore(space.target)

    async def run(op: Op[Any]) -> Any:
        return sync.run(op) if kind == "sync" else await other.run(op)

    await run(jobs.enqueue([NewJob("t", "{}")]))
    await run(workers.open_lease(1, "first", seconds=30))
    (stale,) = await run(jobs.claim(1, "default", limit=1))
    clock.advance(31)
    assert await _late(run, stale) == ["expired"] * 4

    await run(jobs.expire())
    await run(workers.open_lease(2, "second", seconds=30, alone=True))
    (fresh,) = await run(jobs.claim(2, "default", limit=1, alone=True))
    assert (stale.name, fresh.name) == ("1|1", "1|2")
    assert await _late(run, stale) == ["superseded"] * 4
    assert await _late(run, stale._replace(job_id=99)) == ["unknown"] * 4

    twice = [(await run(jobs.settle([Settlement(fresh, "complete")])))[0].verdict for _ in range(2)]
    assert twice == ["accepted", "already"]
    assert {row[2] for row in refusals(space)} == {"first"}
    sync.close()
    await other.close()


def test_a_job_whose_lease_was_lost_ends_once_whoever_returns_first(space: Space) -> None:
    """C005, without the slots of a limit, which are not built: 20 jobs, the first holder returns late, one end each."""
    enqueue(space, 20)
    lease(space)
    stale = claim(space, limit=20)
    end_lease(space)
    lose(space)
    ends: dict[int, list[str]] = {}
    for late in stale:
        space.run(workers.open_lease(9000 + late.job_id, "b", seconds=30, alone=True))
        (fresh,) = claim(space, 9000 + late.job_id, alone=True)
        order = [late, fresh] if late.job_id % 2 else [fresh, late]
        ends[late.job_id] = [verdict for held in order for verdict in settle(space, held)]
        assert fresh.job_id == late.job_id

    assert all(verdicts.count("accepted") == 1 for verdicts in ends.values())
    assert space.value("SELECT count(*) FROM fencerow.ended") == 20


def test_unique_keys_are_equal_only_to_the_letter(space: Space) -> None:
    """C073: no folding, no concatenation, no arguments: a key is the text that was given."""
    keys = ["a", "A", "a ", " a", "1", "1.0", "true", "ab|c", "a|bc", "é", "e\u0301", "{}", '{"a":1}']
    created = [
        space.run(jobs.enqueue([NewJob("t", "{}", unique=Unique(key))]))[0].created for key in keys + keys
    ]

    assert created == [True] * len(keys) + [False] * len(keys)


def test_the_same_payload_under_an_idempotency_key_is_told_by_value_not_by_spelling(space: Space) -> None:
    """C073: the order of keys and white space do not matter, a number's kind does not, true is not 1."""

    def ask(payload: str) -> str:
        try:
            made = space.run(jobs.enqueue([NewJob("t", payload, idempotency_key="k")]))[0]
        except Exception as error:  # noqa: BLE001 - its class is the answer
            return type(error).__name__
        return "created" if made.created else "same"

    answers = [
        ask(text) for text in ('{"a":1,"b":2}', '{"b":2, "a":1}', '{"a":1.0,"b":2}', '{"a":true,"b":2}')
    ]
    assert answers == ["created", "same", "same", "IdempotencyConflict"]


def test_the_schema_has_no_enum(space: Space) -> None:
    """C123: a new state is a CHECK that one transaction can change, never ALTER TYPE … ADD VALUE."""
    enums = "SELECT count(*) FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace"

    assert space.value(f"{enums} WHERE n.nspname = 'fencerow' AND t.typtype = 'e'") == 0


def test_a_lost_job_is_found_with_its_own_fate_by_the_next_lease(space: Space) -> None:
    """C019, C053: an ended lease holds nothing back; losses are charged and end by the budget."""
    first = running(space, max_attempts=2)
    lose(space)
    space.run(workers.open_lease(B, "b", seconds=30, alone=True))
    (second,) = claim(space, B, alone=True)
    lose(space, B)

    assert [first.attempt, second.attempt] == [1, 2]
    assert state(space, first.job_id) == ("failed", 2, 2)
