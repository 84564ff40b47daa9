"""Every fenced write against every proof and every state: only the holder under a live lease is let in (I4)."""

from collections.abc import Callable

import pytest

from fencerow.errors import ClaimLost
from fencerow.ops import jobs
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space
from fencerow.types import Answer, Claim
from tests.sql.steps import (
    A,
    B,
    claim,
    enqueue,
    expire,
    forged,
    job,
    kinds,
    lease,
    lose,
    policy,
    refusals,
    settle,
    settlement,
    state,
)  # fmt: skip

Write = Callable[[Space, Claim], str]


def _settle(verb: str) -> Write:
    return lambda space, held: settle(space, held, verb)[0]


def _progress(space: Space, held: Claim) -> str:
    return space.run(jobs.progress(held, 0.5, "half")).verdict


def _step(space: Space, held: Claim) -> str:
    return space.run(jobs.keep_step(held, 1, "one", "shop.one", "1")).verdict


def _child(space: Space, held: Claim) -> str:
    answer, child = space.run(jobs.enqueue_child(held, job(idempotency_key="child")))
    assert (child is not None) == answer.accepted
    assert space.value("SELECT count(*) FROM fencerow.job WHERE parent_id IS NOT NULL") == answer.accepted
    return answer.verdict


def _enter(space: Space, held: Claim) -> str:
    try:
        space.run(jobs.enter(held))
    except ClaimLost as lost:
        return lost.verdict
    return "accepted"


SETTLES = ("complete", "fail", "retry", "snooze", "release", "lost", "cancelled")
WRITES: dict[str, Write] = {
    **{verb: _settle(verb) for verb in SETTLES},
    "progress": _progress,
    "step": _step,
    "child": _child,
    "enter": _enter,
}


def _alive(space: Space, clock: Clock) -> Claim:
    clock.stop()
    enqueue(space)
    lease(space)
    return claim(space)[0]


def _lease_over(space: Space, clock: Clock) -> Claim:
    held = _alive(space, clock)
    clock.advance(30)  # to the microsecond: the end of a lease is outside of it
    return held


def _lease_gone(space: Space, clock: Clock) -> Claim:
    held = _alive(space, clock)
    space.rows("DELETE FROM fencerow.lease")
    return held


def _swept(space: Space, clock: Clock) -> Claim:
    held = _lease_over(space, clock)
    expire(space)
    return held


def _scheduled(space: Space, clock: Clock) -> Claim:
    held = _alive(space, clock)
    space.run(jobs.settle([settlement(held, "retry", error="first", delay=60)]))
    return held


def _reclaimed(space: Space, clock: Clock) -> Claim:
    held = _alive(space, clock)
    lease(space, B)
    settle(space, held, "retry", error="given back")
    claim(space, B)
    return held


def _done_by_another(space: Space, clock: Clock) -> Claim:
    held = _reclaimed(space, clock)
    settle(space, forged(held, lease=B, generation=2))
    return held


def _done(space: Space, clock: Clock) -> Claim:
    held = _alive(space, clock)
    space.run(jobs.settle([settlement(held, "complete", result='"kept"')]))
    return held


def _failed(space: Space, clock: Clock) -> Claim:
    held = _alive(space, clock)
    space.run(jobs.settle([settlement(held, "fail", error="kept")]))
    return held


def _cancelled(space: Space, clock: Clock) -> Claim:
    held = _alive(space, clock)
    space.run(jobs.settle([settlement(held, "cancelled", error="kept")]))
    return held


def _purged(space: Space, clock: Clock) -> Claim:
    held = _done(space, clock)
    clock.advance(86400 * 8)
    assert space.run(jobs.purge())[0] == 1
    return held


SCENES: dict[str, tuple[Callable[[Space, Clock], Claim], str]] = {
    "alive": (_alive, "accepted"),
    "lease over": (_lease_over, "expired"),
    "lease gone": (_lease_gone, "expired"),
    "swept": (_swept, "expired"),
    "scheduled": (_scheduled, "expired"),
    "reclaimed": (_reclaimed, "superseded"),
    "done by another": (_done_by_another, "superseded"),
    "done": (_done, "settled"),
    "failed": (_failed, "settled"),
    "cancelled": (_cancelled, "cancelled"),
    "purged": (_purged, "unknown"),
}

FORGERIES: dict[str, Callable[[Claim], Claim]] = {
    "own": lambda held: held,
    "other lease": lambda held: forged(held, lease=B),
    "no lease": lambda held: forged(held, lease=1),
    "older": lambda held: forged(held, generation=held.generation - 1),
    "newer": lambda held: forged(held, generation=held.generation + 1),
}


def _expected(scene: str, forgery: str) -> str:
    verdict = SCENES[scene][1]
    # Without its lease a ticket is not found by the view; only the owner of the schema can remove one that holds jobs.
    if verdict == "unknown" or forgery == "own" or scene == "lease gone":
        return verdict
    if forgery == "older" or (verdict == "superseded" and forgery in ("other lease", "no lease")):
        return "superseded"
    # The scenes whose job was claimed again know generation 2, so one above the held one is no news there.
    if scene == "done by another" and forgery == "newer":
        return "settled"
    return verdict if verdict in ("settled", "cancelled") else "expired"


def _everything(space: Space) -> list[object]:
    tables = ("job", "ready", "scheduled", "running", "ended", "attempt")
    return [space.rows(f"SELECT x, x.ctid FROM fencerow.{table} AS x ORDER BY 1") for table in tables]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("scene", SCENES)
def test_fenced_write_is_let_in_only_with_the_proof_of_the_moment(
    space: Space, clock: Clock, write: str, scene: str
) -> None:
    for forgery, forge in FORGERIES.items():
        if scene == "alive" and forgery == "own":
            continue
        space.empty()
        held = forge(SCENES[scene][0](space, clock))
        before = _everything(space)
        count = len(refusals(space))

        assert (forgery, WRITES[write](space, held)) == (forgery, _expected(scene, forgery))
        assert _everything(space) == before
        assert len(refusals(space)) == count + (write != "enter")


@pytest.mark.parametrize("write", WRITES)
def test_fenced_write_of_the_holder_is_let_in_while_the_lease_lives(
    space: Space, clock: Clock, write: str
) -> None:
    held = _alive(space, clock)

    assert WRITES[write](space, held) == "accepted"
    assert refusals(space) == []


@pytest.mark.parametrize("verb", SETTLES)
def test_settle_sent_again_is_already_whatever_followed(space: Space, verb: str) -> None:
    """I4, I11: the same write by the same lease was accepted once; asked again it is told so, in any later state."""
    enqueue(space)
    lease(space)
    lease(space, B)
    held = claim(space)[0]

    assert settle(space, held, verb) == ["accepted"]
    assert settle(space, held, verb) == ["already"]
    if state(space, held.job_id)[0] == "ready" and verb != "lost":
        claim(space, B)
        assert settle(space, held, verb) == ["already"]
    assert settle(space, forged(held, lease=B), verb) != ["already"]
    assert len(refusals(space)) == 1


@pytest.mark.parametrize("verb", SETTLES)
def test_settle_with_another_outcome_is_refused_after_the_first(space: Space, verb: str) -> None:
    for other in SETTLES:
        space.empty()
        enqueue(space)
        lease(space)
        held = claim(space)[0]
        settle(space, held, verb, error="x")
        before = _everything(space)

        answer: Answer = space.run(jobs.settle([settlement(held, other, error="y")]))[0]

        same = verb == other and verb in ("complete", "release")
        assert answer.accepted is same
        assert _everything(space) == before


def test_loss_told_by_the_sweep_is_no_settlement_of_the_worker(space: Space) -> None:
    """I7: the late `lost` of an overrun leaves a verdict and a refusal row."""
    enqueue(space)
    lease(space)
    held = claim(space)[0]
    lose(space)

    assert settle(space, held, "lost", error="trust in the lease ended") == ["expired"]
    assert [row[3:5] for row in refusals(space)] == [("lost", "expired")]
    assert kinds(space, held.job_id) == ["lost"]


def test_commit_is_refused_with_what_the_database_knows(space: Space) -> None:
    policy(space)
    enqueue(space)
    lease(space)
    lease(space, B)
    held = claim(space)[0]
    settle(space, held, "release")
    claim(space, B)

    with pytest.raises(ClaimLost) as caught:
        space.run(jobs.enter(held))

    lost = caught.value
    assert (lost.verdict, lost.current, lost.state, lost.owner) == ("superseded", 2, "running", "b")
    assert lost.lease_until is not None
    assert lost.lease_until.tzinfo is not None
    space.run(jobs.refuse(held, "commit", lost.verdict, lost.current))
    assert refusals(space) == [(held.job_id, 1, "a", "commit", "superseded", 2)]
    space.run(jobs.refuse(held, "commit", "accepted", 2))
    assert len(refusals(space)) == 1


def test_refusal_names_the_worker_of_a_lease_that_is_gone(space: Space) -> None:
    enqueue(space)
    lease(space, A)
    held = claim(space)[0]
    lose(space)

    settle(space, held)

    assert space.rows("SELECT id, worker FROM fencerow.past_lease") == [(A, "a")]
    assert refusals(space)[0][2] == "a"
