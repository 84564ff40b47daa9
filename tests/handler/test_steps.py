"""Steps: done once for the whole job, whatever happens to its attempts."""

import asyncio
import json
from dataclasses import dataclass
from datetime import date

import pytest

from fencerow import App, AsyncJob, Job, Retry
from fencerow.errors import ClaimLost, StepMismatch
from fencerow.testing import adrain, drain
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space


def kept(space: Space) -> list[tuple[str, int, int, str]]:
    return space.rows("SELECT name, place, generation, result FROM fencerow.step ORDER BY job_id, place")


def outcomes(space: Space) -> list[tuple[str, str | None]]:
    return space.rows("SELECT outcome, result::text FROM fencerow.ended ORDER BY job_id")


@dataclass
class Receipt:
    number: int
    on: date


def test_a_step_is_done_once_over_attempts_and_a_redrive(app: App, space: Space) -> None:
    calls: list[str] = []

    def charge(amount: int) -> Receipt:
        calls.append("charge")
        return Receipt(amount, date(2026, 1, 2))

    def ship() -> str:
        calls.append("ship")
        if calls.count("ship") < 3:
            raise ConnectionError("away")
        return "box"

    receipts: list[Receipt] = []

    @app.task(name="order", backoff=(0.001, 0.001), max_attempts=2)
    def order(job: Job, amount: int) -> list[object]:
        receipt = job.step("charge", charge, amount)
        receipts.append(receipt)
        return [receipt.number, job.step("ship", ship)]

    handle = order.enqueue(7)
    first = drain(app)
    while not first.failed:
        first = drain(app)
    assert app.redrive(handle.id) == "ready"
    again = drain(app)

    assert again.done == (handle.id,)
    assert calls == ["charge", "ship", "ship", "ship"]
    assert receipts == [Receipt(7, date(2026, 1, 2))] * 3
    assert [(name, place, result) for name, place, _, result in kept(space)] == [
        ("charge", 1, '{"number":7,"on":"2026-01-02"}'),
        ("ship", 2, '"box"'),
    ]
    assert handle.result(timeout=0) == [7, "box"]


async def test_async_steps_take_async_and_sync_functions(app: App) -> None:
    calls: list[str] = []

    async def fetch(n: int) -> tuple[int, str]:
        calls.append("fetch")
        return n, "x"

    def compute() -> set[int]:
        calls.append("compute")
        return {3, 1}

    def loose():  # type: ignore[no-untyped-def]
        calls.append("loose")
        return {"b": (1, 2), "a": None}

    seen: list[object] = []

    @app.task(name="gather", backoff=(0.001, 0.001))
    async def gather(job: AsyncJob) -> Retry | None:
        pair, numbers = await asyncio.gather(job.step("fetch", fetch, n=5), job.step("compute", compute))
        seen.append([pair, numbers, await job.step("loose", loose)])
        return Retry(0, "once more") if job.attempt == 1 else None

    await gather.aenqueue()
    drained = await adrain(app)

    assert drained.runs == 2
    assert sorted(calls) == ["compute", "fetch", "loose"]
    # The fresh value has the shape of the kept one, in the order of its keys too.
    assert seen == [[(5, "x"), {1, 3}, {"b": [1, 2], "a": None}]] * 2
    assert [list(found[2]) for found in seen] == [["b", "a"]] * 2  # type: ignore[index]


def test_key_and_body_are_the_same_bytes_in_every_attempt(app: App) -> None:
    """C113: what a provider deduplicates by does not change with the attempt, nor does what it is sent."""
    sent: list[tuple[str, str]] = []

    def body() -> dict[str, object]:
        return {"zebra": 1, "ape": 0.1, "long name": [str(len(sent))], "b": None}

    @app.task(backoff=(0.001, 0.001), max_attempts=3)
    def charge(job: Job) -> None:
        sent.append((job.idempotency_key, json.dumps(job.step("body", body))))
        raise ConnectionError("reply lost")

    handle = charge.enqueue()
    while not (drained := drain(app)).failed:
        pass
    app.redrive(handle.id)
    while not (drained := drain(app)).failed:
        pass

    assert drained.failed == (handle.id,)
    assert len(sent) == 6
    assert len(set(sent)) == 1


CHANGES = {
    "function": (["a", "b"], ["a*", "b"], "step 'a' calls"),
    "order": (["a", "b"], ["b", "a"], "step number 1 is 'b' now and was kept as 'a'"),
    "inserted": (["a", "b"], ["x", "a", "b"], "step number 1 is 'x' now and was kept as 'a'"),
    "left-out": (["a", "b"], ["b"], "step number 1 is 'b' now and was kept as 'a'"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_changed_step_fails_the_job_at_once_and_the_right_code_resumes_it(
    app: App, space: Space, case: str
) -> None:
    before, after, told = CHANGES[case]
    calls: list[str] = []
    plan = before

    def one() -> None:
        calls.append("one")

    def other() -> None:
        calls.append("other")

    @app.task(name="changing", backoff=(0.001, 0.001))
    def changing(job: Job) -> Retry | None:
        for name in plan:
            job.step(name.rstrip("*"), other if name.endswith("*") else one)
        return Retry(0) if job.generation == 1 else None

    handle = changing.enqueue()
    drain(app, until_idle=False)
    assert calls == ["one", "one"]
    plan = after
    drained = drain(app)

    assert drained.failed == (handle.id,)
    assert told in drained.errors[handle.id]
    ran = "SELECT kind FROM fencerow.attempt WHERE kind <> 'released' ORDER BY generation"
    assert space.rows(ran) == [("failed",), ("invalid",)]
    assert calls == ["one", "one"]
    plan = before
    assert app.redrive(handle.id) == "ready"
    assert drain(app).done == (handle.id,)
    assert calls == ["one", "one"]


def test_a_name_that_was_kept_at_a_later_place_is_found_before_it_runs(app: App, space: Space) -> None:
    """The first step failed in the first attempt, so place 1 is empty; its place is taken by the second one's name."""
    calls: list[str] = []

    def broken() -> None:
        raise ValueError

    def fine() -> None:
        calls.append("fine")

    @app.task(name="moved", backoff=(0.001, 0.001))
    def moved(job: Job) -> Retry | None:
        if job.attempt == 1:
            with pytest.raises(ValueError):
                job.step("first", broken)
        job.step("second", fine)
        return Retry(0)

    moved.enqueue()
    drained = drain(app)

    assert "is number 1 now and was number 2" in next(iter(drained.errors.values()))
    assert calls == ["fine"]


def test_twice_one_name_and_a_step_inside_a_step_are_refused_before_they_run(app: App) -> None:
    calls: list[str] = []

    def note(text: str) -> None:
        calls.append(text)

    @app.task(name="twice")
    def twice(job: Job) -> None:
        job.step("a", note, "first")
        job.step("a", note, "second")

    @app.task(name="nested", max_attempts=1)
    def nested(job: Job) -> None:
        job.step("outer", lambda: job.step("inner", note, "inner"))

    @app.task(name="nested_child", max_attempts=1)
    def nested_child(job: Job) -> None:
        job.step("outer", lambda: job.enqueue_child(twice.bind()).id)

    ids = [twice.enqueue().id, nested.enqueue().id, nested_child.enqueue().id]
    drained = drain(app)

    assert set(drained.failed) == set(ids)
    assert "taken twice" in drained.errors[ids[0]]
    assert "begun inside a step" in drained.errors[ids[1]]
    assert "begun inside a step" in drained.errors[ids[2]]
    assert calls == ["first"]


def test_what_cannot_be_kept_ends_the_job_and_says_why(app: App) -> None:
    class Plain:
        pass

    def large() -> str:
        return "x" * 70_000

    def lying() -> int:
        return "seven"  # type: ignore[return-value]

    def strange() -> Plain:
        raise AssertionError("must not run: nothing could be kept")

    functions = {"large": large, "lying": lying, "strange": strange}

    @app.task(name="keep", max_attempts=1)
    def keep(job: Job, which: str) -> None:
        job.step(which, functions[which])

    ids = {which: keep.enqueue(which).id for which in functions}
    drained = drain(app)

    assert set(drained.failed) == set(ids.values())
    assert (
        "65536 are possible" in drained.errors[ids["large"]] or "65536 bytes" in drained.errors[ids["large"]]
    )
    assert "does not fit its annotation" in drained.errors[ids["lying"]]
    assert "seven" not in drained.errors[ids["lying"]].split("\n")[0]
    assert "has no JSON form" in drained.errors[ids["strange"]]


def test_the_last_of_1000_steps_is_kept_and_the_next_refused_and_all_are_found_again(
    app: App, space: Space
) -> None:
    calls: list[int] = []

    def count(n: int) -> int:
        calls.append(n)
        return n

    @app.task(name="many", backoff=(0.001, 0.001))
    def many(job: Job) -> object:
        total = sum(job.step(f"s{n}", count, n) for n in range(1000))
        if job.attempt == 1:
            return Retry(0)
        job.step("one more", count, total)
        return total

    handle = many.enqueue()
    drained = drain(app)

    assert calls == list(range(1000))
    assert "at most 1000 steps" in drained.errors[handle.id]
    assert space.value("SELECT count(*) FROM fencerow.step") == 1000


def test_a_step_is_refused_when_the_claim_is_lost_and_another_attempt_does_it(
    app: App, space: Space, clock: Clock
) -> None:
    """C059: the lease ends while the step runs; what it did is not kept, and the refusal is."""
    losses: list[ClaimLost] = []
    calls: list[int] = []

    @app.task(name="late", backoff=(0.001, 0.001))
    def late(job: Job) -> str:
        def work() -> str:
            calls.append(job.generation)
            if job.generation == 1:
                clock.advance(3600)  # the database's time: this process still trusts its lease
                space.rows("SELECT * FROM fencerow.expire(10)")
            return f"by {job.generation}"

        try:
            return job.step("work", work)
        except ClaimLost as lost:
            losses.append(lost)
            raise

    late.enqueue()
    drain(app)

    assert calls[0] == 1
    assert losses
    assert losses[0].verdict in ("expired", "superseded")
    assert space.rows("SELECT op, generation FROM fencerow.refusal WHERE op = 'step'") == [("step", 1)]
    assert all(generation != 1 for _, _, generation, _ in kept(space))


def test_steps_go_with_their_job(app: App, space: Space, clock: Clock) -> None:
    @app.task(name="short", keep=0)
    def short(job: Job) -> None:
        job.step("a", int)

    short.enqueue()
    drain(app)
    assert len(kept(space)) == 1
    clock.advance(10)
    space.rows("SELECT * FROM fencerow.purge()")

    assert kept(space) == []


def test_step_mismatch_is_public() -> None:
    import fencerow

    assert fencerow.StepMismatch is StepMismatch
