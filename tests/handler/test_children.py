"""Children: enqueued under the parent's fence, once over all of its attempts."""

import pytest

from fencerow import App, AsyncJob, Handle, Job, Retry
from fencerow.errors import ClaimLost, IdempotencyConflict, UsageError
from fencerow.ops import inspect
from fencerow.testing import adrain, assert_enqueued, drain
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space


def test_children_are_enqueued_once_over_attempts_and_know_their_parent(app: App, space: Space) -> None:
    handles: list[list[Handle[int]]] = []

    @app.task(name="child", queue="apart")
    def child(n: int) -> int:
        return n

    @app.task(name="parent", backoff=(0.001, 0.001))
    def parent(job: Job) -> Retry | None:
        # Two of them are identical on purpose: both are wanted.
        handles.append([job.enqueue_child(child.bind(n)) for n in (1, 2, 2)])
        return Retry(0) if job.attempt < 3 else None

    mother = parent.enqueue()
    drain(app, queues=["default"])

    ids = [handle.id for handle in handles[0]]
    assert len(set(ids)) == 3
    assert [[handle.id for handle in again] for again in handles] == [ids] * 3
    assert [[handle.created for handle in again] for again in handles] == [
        [True] * 3,
        [False] * 3,
        [False] * 3,
    ]
    found = assert_enqueued(app, child, count=3, parent=mother.id, queue="apart")
    assert [job.payload["n"] for job in found] == [1, 2, 2]
    assert space.rows("SELECT parent_id FROM fencerow.jobs WHERE id = %s", (mother.id,)) == [(None,)]
    facts = space.run(inspect.job_facts(ids[0]))
    assert facts is not None
    assert facts["parent_id"] == mother.id
    drain(app)
    assert [handle.result(timeout=0) for handle in handles[0]] == [1, 2, 2]


def test_the_keys_of_children_are_bounded_and_the_parents_own_key_is_their_root(
    app: App, space: Space
) -> None:
    @app.task(name="c" * 150)
    def child() -> None: ...

    @app.task(name="short")
    def short() -> None: ...

    @app.task(name="parent")
    def parent(job: Job) -> None:
        job.enqueue_child(child.bind())
        job.enqueue_child(short.bind())
        job.enqueue_child(short.using(idempotency_key="mine").bind())

    parent.using(idempotency_key="k" * 100).enqueue()
    drain(app)

    keys = [
        row[0]
        for row in space.rows(
            "SELECT idempotency_key FROM fencerow.jobs WHERE parent_id IS NOT NULL ORDER BY id"
        )
    ]
    assert keys[0].startswith("child/")
    assert len(keys[0]) == len("child/") + 64
    assert keys[1].startswith("k" * 100 + "/child/short/")
    assert keys[1].endswith("/1")
    assert keys[2] == "mine"


async def test_a_parent_that_lost_its_claim_enqueues_nothing(app: App, space: Space, clock: Clock) -> None:
    """C059: the lease is over on the database's clock while this process still trusts it."""
    losses: list[ClaimLost] = []

    @app.task(name="child", queue="apart")
    def child() -> None: ...

    @app.task(name="parent", max_attempts=1)
    async def parent(job: AsyncJob) -> None:
        clock.advance(3600)
        try:
            await job.enqueue_child(child.bind())
        except ClaimLost as lost:
            losses.append(lost)
            with pytest.raises(ClaimLost):
                job.check()
            with pytest.raises(ClaimLost):
                await job.progress(0.5)
            raise

    await parent.aenqueue()
    await adrain(app, queues=["default"])

    assert [lost.verdict for lost in losses] == ["expired"]
    assert space.value("SELECT count(*) FROM fencerow.job WHERE task = 'child'") == 0
    assert space.value("SELECT count(*) FROM fencerow.idempotency_key") == 0
    assert ("child", 1, "expired") in space.rows("SELECT op, generation, verdict FROM fencerow.refusal")


def test_a_child_that_the_database_refuses_leaves_the_claim_as_it_is(app: App, space: Space) -> None:
    refusals: list[Exception] = []

    @app.task(name="child", queue="apart")
    def child(n: int) -> None: ...

    @app.task(name="parent")
    def parent(job: Job) -> str:
        job.enqueue_child(child.using(idempotency_key="one").bind(1))
        for wrong in (child.using(idempotency_key="one").bind(2), "child"):
            try:
                job.enqueue_child(wrong)  # type: ignore[arg-type]
            except (IdempotencyConflict, UsageError) as error:
                refusals.append(error)
        job.check()
        return "done all the same"

    handle = parent.enqueue()
    drain(app, queues=["default"])

    assert [type(error) for error in refusals] == [IdempotencyConflict, UsageError]
    assert handle.result(timeout=0) == "done all the same"
    assert space.value("SELECT count(*) FROM fencerow.job WHERE task = 'child'") == 1
