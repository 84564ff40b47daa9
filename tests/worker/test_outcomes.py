"""What a handler returns or raises, and what becomes of its job; whatever it does, the worker and its neighbours live."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fencerow import App, AsyncJob, Cancel, Fail, InvalidInput, Job, Retry, Snooze, Unavailable
from fencerow.errors import ClaimLost
from fencerow.testing.space import Space
from tests.worker.inside import attempts, error_of, put, serving, settled, soon, states

HOUR = (3600.0, 3600.0)


class Hostile(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Unreadable:
    """As a result: reading its annotations raises what no codec expects."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise RecursionError("deep")


def _raise(error: BaseException) -> Any:
    raise error


OUTCOMES: list[tuple[str, Callable[[], Any], str, list[str], str]] = [
    # name, what the handler does, state, kinds of its attempts, part of the error
    ("nothing", lambda: None, "done", [], ""),
    ("value", lambda: {"a": [1, 2]}, "done", [], ""),
    ("retry", lambda: Retry(3600, "later"), "scheduled", ["failed"], "later"),
    ("retry-nan", lambda: Retry(float("nan")), "ready", ["failed"], "retry asked for"),
    ("snooze", lambda: Snooze(3600, "not now"), "scheduled", ["snoozed"], "not now"),
    ("fail", lambda: Fail("no"), "failed", ["failed"], "no"),
    ("cancel", lambda: Cancel("moot"), "cancelled", ["cancelled"], "moot"),
    ("raises", lambda: _raise(ValueError("bad")), "scheduled", ["failed"], "ValueError: bad"),
    ("unavailable", lambda: _raise(Unavailable("down")), "scheduled", ["unavailable"], "down"),
    ("invalid", lambda: _raise(InvalidInput("never")), "failed", ["invalid"], "never"),
    ("fail-on", lambda: _raise(LookupError("gone")), "failed", ["failed"], "LookupError"),
    ("retry-on", lambda: _raise(KeyError("k")), "scheduled", ["failed"], "KeyError"),
    ("exit", lambda: _raise(SystemExit(1)), "scheduled", ["failed"], "SystemExit"),
    ("interrupt", lambda: _raise(KeyboardInterrupt()), "scheduled", ["failed"], "KeyboardInterrupt"),
    ("cancelled", lambda: _raise(asyncio.CancelledError()), "scheduled", ["failed"], "CancelledError"),
    ("stop-iteration", lambda: next(iter(())), "scheduled", ["failed"], "StopIteration"),
    ("generator-exit", lambda: _raise(GeneratorExit()), "scheduled", ["failed"], "GeneratorExit"),
    ("object", object, "failed", ["invalid"], "the result cannot be stored"),
    ("hostile-result", Unreadable, "failed", ["invalid"], "the result cannot be stored"),
    ("nul-result", lambda: "a\0b", "failed", ["invalid"], "the result cannot be stored"),
    ("nul", lambda: _raise(ValueError("a\0b\ud800")), "scheduled", ["failed"], "ValueError: a\\x00b\\ud800"),
    ("hostile", lambda: _raise(Hostile()), "scheduled", ["failed"], "__str__ raises"),
    ("large", lambda: _raise(ValueError("x" * 50_000_000)), "scheduled", ["failed"], "ValueError: xxx"),
    ("large-reason", lambda: Fail("x" * 50_000_000), "failed", ["failed"], "xxx"),
]


def _app(space: Space) -> App:
    app = App(space.dsn)
    for name, act, *_ in OUTCOMES:
        for kind in ("async", "thread"):
            task = app.task(
                name=f"{kind}.{name}", backoff=HOUR, fail_on=LookupError, retry_on=KeyError, max_attempts=5
            )
            task(_handler(kind, act))
    return app


def _handler(kind: str, act: Callable[[], Any]) -> Callable[[], Any]:
    if kind == "async":

        async def on_loop() -> Any:
            return act()

        return on_loop

    def in_thread() -> Any:
        return act()

    return in_thread


@pytest.mark.slow
async def test_each_outcome_has_its_state(space: Space) -> None:
    """Bad input 24, every row of the table on the loop and in a thread, in one worker. Slow: fifty handlers, huge texts."""
    app = _app(space)
    wanted = {}
    for kind in ("async", "thread"):
        for name, _, state, kinds, text in OUTCOMES:
            (job,) = put(space, f"{kind}.{name}")
            wanted[job] = (f"{kind}.{name}", "scheduled" if state == "ready" else state, kinds, text)

    async with serving(app, concurrency=4):
        await soon(
            lambda: all(
                states(space)[job] != "running" and (attempts(space, job) or states(space)[job] == "done")
                for job in wanted
            ),
            "all outcomes",
        )

    found = {}
    for job, (name, _, kinds, text) in wanted.items():
        has = [kind for _, _, kind in attempts(space, job)]
        error = error_of(space, job) if kinds else ""
        at = states(space)[job]
        if name.endswith("retry-nan"):
            # A delay that is no number is none: it went round at once, to the end of its attempts.
            at, has = "scheduled", sorted(set(has))
        assert len(error) <= 8192
        found[job] = (name, at, has, text if text in error else error[:200])
    assert found == wanted


async def test_a_snooze_gives_the_attempt_back(space: Space) -> None:
    app, runs = App(space.dsn), []

    @app.task(name="t", max_attempts=2)
    async def handler(job: AsyncJob) -> object:
        runs.append((job.generation, job.attempt))
        return Snooze(0) if len(runs) < 4 else None

    put(space, "t")
    async with serving(app):
        await soon(lambda: set(states(space).values()) == {"done"}, "its end")

    assert runs == [(1, 1), (2, 1), (3, 1), (4, 1)]


async def test_the_same_key_serves_every_attempt(space: Space) -> None:
    """C113: the idempotency key of a job is the same for each attempt and rises nowhere; the fence rises."""
    app, seen = App(space.dsn), []

    @app.task(name="t", backoff=(0.01, 0.01))
    async def handler(job: AsyncJob) -> object:
        seen.append((job.idempotency_key, job.fence))
        return Retry(0) if len(seen) < 3 else None

    (job,) = put(space, "t")
    async with serving(app):
        await soon(lambda: states(space)[job] == "done", "its end")

    assert {key for key, _ in seen} == {f"{space.value('SELECT fencerow.space_id()')}/{job}"}
    assert seen[0][1] < seen[1][1] < seen[2][1]


async def test_one_bad_row_in_a_batch_harms_no_other(space: Space) -> None:
    """C021, I12: payloads that do not bind after a deploy, 200-deep nesting, an unknown task with a hostile name."""
    app = App(space.dsn)

    @app.task(name="t")
    async def handler(x: int) -> int:
        return x

    deep = '{"x": ' + "[" * 200 + "]" * 200 + "}"
    good = put(space, "t", 3, payload='{"x": 1}')
    unbound, nested = put(space, "t", payload='{"y": 1}') + put(space, "t", payload=deep)
    (unknown,) = put(space, "100%s %(x)d")
    good += put(space, "t", 2, payload='{"x": 2}')
    async with serving(app):
        await soon(lambda: settled(space), "all")

    assert {states(space)[job] for job in good} == {"done"}
    assert states(space)[unbound] == states(space)[nested] == "failed"
    assert attempts(space, unbound) == [(1, 1, "invalid")]
    assert states(space)[unknown] == "scheduled"
    assert attempts(space, unknown) == [(1, 1, "unavailable")]
    assert "UnknownTask" in error_of(space, unknown)


async def test_a_timeout_cancels_on_the_loop_and_a_thread_keeps_its_slot(space: Space) -> None:
    """The thread's job calls raise; it is settled after the grace; its slot is not used again until it returns."""
    app, gate, said = App(space.dsn), threading.Event(), []

    @app.task(name="loop", timeout=0.1, backoff=HOUR)
    async def on_loop() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            said.append("cancelled")
            raise

    @app.task(name="thread", timeout=0.1, backoff=HOUR)
    def in_thread(job: Job) -> None:
        gate.wait(20)
        try:
            job.check()
        except ClaimLost as error:
            said.append(error.verdict)

    @app.task(name="later", queue="default")
    async def later() -> None:
        said.append("later")

    jobs = put(space, "loop") + put(space, "thread")
    async with serving(app, concurrency=2) as service:
        await soon(lambda: settled(space), "both timeouts")
        (after,) = put(space, "later")
        put(space, "later")
        await soon(lambda: said.count("later") == 2, "the free slot")
        assert [lane.busy for lane in service.lanes] == [1]
        gate.set()
        await soon(lambda: not service.runner or not service.runner.running, "its return")
        assert [lane.busy for lane in service.lanes] == [0]

    assert [attempts(space, job) for job in jobs] == [[(1, 1, "timeout")]] * 2
    assert "timeout" in said
    assert "cancelled" in said
    assert states(space)[after] == "done"


async def test_an_attempt_that_follows_an_overdue_thread_is_not_mistaken_for_it(space: Space) -> None:
    """The same job runs again in the same process, under the same lease, while the first thread is still inside."""
    app, gate, second = App(space.dsn), threading.Event(), threading.Event()

    @app.task(name="t", timeout=0.1, backoff=(0.01, 0.01))
    def handler(job: Job) -> int:
        if job.generation == 1:
            gate.wait(20)
            return 1
        second.wait(20)
        job.check()
        return 2

    put(space, "t")
    async with serving(app, concurrency=2, grace=0.1) as service:
        runner = service.runner
        assert runner is not None
        await soon(lambda: len(runner.running) == 2, "two of one job")
        gate.set()
        await soon(lambda: len(runner.running) == 1, "the end of the first")
        assert [attempt.claim.generation for attempt in runner.running.values()] == [2]
        second.set()
        await soon(lambda: not runner.running, "the end of the second")


async def test_a_handler_that_swallows_cancellation_is_settled_without_it(space: Space) -> None:
    app, gate = App(space.dsn), asyncio.Event()

    @app.task(name="t", timeout=0.05, backoff=HOUR)
    async def handler() -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    (job,) = put(space, "t")
    async with serving(app) as service:
        await soon(lambda: attempts(space, job) == [(1, 1, "timeout")], "its settlement")
        assert service.lanes[0].busy == 1
        gate.set()
        await soon(lambda: service.lanes[0].busy == 0, "its slot")
    assert space.rows("SELECT * FROM fencerow.refusal") == []


async def test_a_job_told_to_stop_before_its_first_step_is_settled(space: Space) -> None:
    """A task of the loop that is cancelled before it began never runs; its job must be settled all the same."""
    app, ran = App(space.dsn), []

    @app.task(name="t")
    async def handler() -> None:
        ran.append(1)

    async with serving(app) as service:
        runner = service.runner
        assert runner is not None
        start = runner.start

        def start_and_cancel(claim: Any, lane: Any, lease: Any) -> None:
            start(claim, lane, lease)
            runner.cancel([claim.job_id])

        runner.start = start_and_cancel  # type: ignore[method-assign]
        (job,) = put(space, "t")
        await soon(lambda: states(space)[job] == "cancelled", "its end")
        assert service.lanes[0].busy == 0
    assert ran == []


@pytest.mark.slow
async def test_cancel_of_running_jobs_ends_by_the_stated_rule(space: Space) -> None:
    """
    C015: who stops is cancelled; who ignores it and returns is done, with the wish noted; asking twice changes nothing.

    Slow: the wish travels with a renewal.
    """
    app, gate = App(space.dsn), threading.Event()

    @app.task(name="loop")
    async def loop() -> None:
        await asyncio.Event().wait()

    @app.task(name="checks")
    def checks(job: Job) -> None:
        while not gate.wait(0.01):
            job.check()

    @app.task(name="ignores")
    def ignores(job: Job) -> str:
        while not job.cancel_requested:
            gate.wait(0.01)
        gate.wait(20)
        return "did it all the same"

    stops, checked, ignored = put(space, "loop") + put(space, "checks") + put(space, "ignores")
    async with serving(app, lease=1.5, grace=0.1) as service:
        await soon(lambda: set(states(space).values()) == {"running"}, "all run")
        for job in (stops, checked, ignored):
            assert [space.value("SELECT fencerow.cancel(%s)", (job,)) for _ in range(2)] == ["requested"] * 2
        await soon(lambda: states(space)[stops] == states(space)[checked] == "cancelled", "both stop")
        asked = next(iter(service.runner.running.values())) if service.runner else None
        assert asked is not None
        await soon(lambda: asked.stop is not None, "the wish")
        # Long past the grace it still runs, so it is not called cancelled.
        await soon(lambda: asked.stop_at + 0.5 < _now(), "half a second")
        assert states(space)[ignored] == "running"
        gate.set()
        await soon(lambda: states(space)[ignored] == "done", "its return")

    assert space.rows(
        "SELECT cancel_requested, result FROM fencerow.ended WHERE job_id = %s", (ignored,)
    ) == [(True, "did it all the same")]
    assert space.value("SELECT fencerow.cancel(%s)", (stops,)) == "cancelled"


def _now() -> float:
    from fencerow.clock import boottime

    return boottime()


async def test_results_come_back_as_json(space: Space) -> None:
    app = App(space.dsn)

    @app.task(name="t")
    async def handler() -> object:
        return {"a": (1, 2.5), "b": None}

    put(space, "t")
    async with serving(app):
        await soon(lambda: settled(space), "its end")
    assert json.loads(space.value("SELECT result::text FROM fencerow.ended")) == {"a": [1, 2.5], "b": None}
