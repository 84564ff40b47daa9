"""What each outcome does to state, attempts and the unique record of it (I3, I6)."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from fencerow.ops import jobs
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space
from fencerow.types import Claim
from tests.sql.steps import (
    A,
    B,
    claim,
    enqueue,
    expire,
    kinds,
    lease,
    lose,
    policy,
    running,
    settle,
    settlement,
    state,
)  # fmt: skip

ALONE = 8001


@pytest.mark.parametrize(
    ("verb", "fields", "after", "recorded"),
    [
        ("complete", {}, ("done", 1, 1), []),
        ("fail", {"error": "no"}, ("failed", 1, 1), ["failed"]),
        ("fail", {"kind": "invalid", "error": "no"}, ("failed", 1, 1), ["invalid"]),
        ("retry", {"error": "no"}, ("ready", 1, 1), ["failed"]),
        ("retry", {"kind": "timeout", "delay": 5.0}, ("scheduled", 1, 1), ["timeout"]),
        ("retry", {"kind": "unavailable", "delay": 5.0}, ("scheduled", 1, 1), ["unavailable"]),
        ("snooze", {"delay": 5.0}, ("scheduled", 1, 0), ["snoozed"]),
        ("snooze", {}, ("ready", 1, 0), ["snoozed"]),
        ("release", {}, ("ready", 1, 0), ["released"]),
        ("lost", {"error": "overrun"}, ("ready", 1, 1), ["lost"]),
        ("cancelled", {"error": "asked"}, ("cancelled", 1, 1), ["cancelled"]),
    ],
)
def test_outcome_moves_the_job_and_charges_as_stated(
    space: Space, verb: str, fields: dict[str, object], after: tuple[str, int, int], recorded: list[str]
) -> None:
    held = running(space)

    assert settle(space, held, verb, **fields) == ["accepted"]

    assert state(space, held.job_id) == after
    assert kinds(space, held.job_id) == recorded


def test_error_is_kept_with_who_and_when(space: Space) -> None:
    held = running(space)
    settle(space, held, "fail", error="the letter came back")

    row = space.rows("SELECT attempt, lease_id, claimed_at <= ended_at, error FROM fencerow.attempt")
    assert row == [(1, A, True, "the letter came back")]
    assert space.rows("SELECT outcome, lease_id, error FROM fencerow.ended") == [
        ("failed", A, "the letter came back")
    ]


@pytest.mark.parametrize("limit", [1, 3])
def test_retries_end_failed_when_the_attempts_are_spent(space: Space, limit: int) -> None:
    enqueue(space, max_attempts=limit)
    lease(space)
    states = []
    while held := claim(space):
        settle(space, held, "retry", error="again")
        states.append(state(space, held[0].job_id))

    assert states == [*(("ready", n, n) for n in range(1, limit)), ("failed", limit, limit)]


def test_losses_end_failed_when_the_attempts_are_spent(space: Space, clock: Clock) -> None:
    """C002, C003: the count is charged at the claim, so a job that kills its worker runs exactly three times."""
    (job_id,) = enqueue(space, max_attempts=3)
    fates = []
    for round_ in range(1, 4):
        space.rows("SELECT fencerow.open_lease(%s, 'w', '30 s', %s)", (ALONE + round_, round_ > 1))
        held = claim(space, ALONE + round_, alone=round_ > 1)
        assert held[0].attempt == round_
        clock.advance(31)
        fates.append(expire(space)[job_id])
        clock.advance(3600)
        space.run(jobs.promote())

    assert fates == ["ready", "scheduled", "failed"]
    assert state(space, job_id) == ("failed", 3, 3)
    assert kinds(space, job_id) == ["lost"] * 3
    assert space.value("SELECT min(error) FROM fencerow.attempt").startswith("the lease of its worker ended")


def test_loss_is_final_when_a_person_has_to_decide(space: Space) -> None:
    policy(space, on_lost="fail")
    held = running(space)

    assert lose(space) == {held.job_id: "failed"}
    assert kinds(space, held.job_id) == ["lost"]


def test_job_overrides_its_task(space: Space) -> None:
    policy(space, on_lost="fail", max_attempts=1)
    held = running(space, on_lost="retry", max_attempts=2)

    assert lose(space) == {held.job_id: "ready"}


def test_first_loss_returns_at_once_and_later_ones_back_off(space: Space, clock: Clock) -> None:
    policy(space, backoff_base=100.0, backoff_cap=1000.0)
    held = running(space)
    assert lose(space) == {held.job_id: "ready"}
    space.rows("SELECT fencerow.open_lease(%s, 'w', '30 s', true)", (ALONE,))
    claim(space, ALONE, alone=True)

    assert lose(space, ALONE) == {held.job_id: "scheduled"}
    wait = space.value("SELECT run_at - fencerow.now() FROM fencerow.scheduled")
    assert timedelta(seconds=99) <= wait <= timedelta(seconds=400)


def test_release_and_snooze_never_exhaust(space: Space) -> None:
    enqueue(space, max_attempts=1)
    lease(space)
    for round_ in range(1, 6):
        held = claim(space)[0]
        assert (held.generation, held.attempt) == (round_, 1)
        settle(space, held, "release" if round_ % 2 else "snooze")
        assert state(space, held.job_id) == ("ready", round_, 0)


def test_attempts_in_the_claim_follow_the_charges(space: Space) -> None:
    enqueue(space)
    lease(space)
    seen = []
    for verb in ("retry", "snooze", "release", "retry", "complete"):
        held = claim(space)[0]
        seen.append(held.attempt)
        settle(space, held, verb)

    assert seen == [1, 2, 2, 2, 3]


def test_retry_of_a_job_that_is_asked_to_cancel_ends_cancelled(space: Space) -> None:
    """A cancel request wins over every return but a completion and a final failure."""
    outcomes = {}
    for verb in ("complete", "fail", "retry", "snooze", "release", "lost", "cancelled"):
        space.empty()
        held = running(space)
        space.run(jobs.cancel(held.job_id))
        assert settle(space, held, verb) == ["accepted"]
        outcomes[verb] = state(space, held.job_id)[0]
        assert space.value("SELECT cancel_requested FROM fencerow.jobs") is True

    assert outcomes == {
        "complete": "done",
        "fail": "failed",
        **dict.fromkeys(("retry", "snooze", "release", "lost", "cancelled"), "cancelled"),
    }


def test_loss_of_a_job_that_is_asked_to_cancel_ends_cancelled(space: Space) -> None:
    held = running(space)
    space.run(jobs.cancel(held.job_id))

    assert lose(space) == {held.job_id: "cancelled"}


@pytest.mark.parametrize(
    "write",
    [
        "complete(%s, %s, %s, ARRAY['1']::jsonb[])",
        "fail(%s, %s, %s, ARRAY['failed'], ARRAY['x', 'y'])",
        "fail(%s, %s, %s, ARRAY['failed', 'failed'], ARRAY['x'])",
        "retry(%s, %s, %s, ARRAY['failed', 'failed'], ARRAY['x', 'y'], ARRAY['1 s']::interval[])",
        "snooze(%s, %s, %s, ARRAY['1 s', '1 s', '1 s']::interval[])",
        "lost(%s, %s, %s, ARRAY['x', 'y', 'z'])",
        "cancelled(%s, %s, %s, ARRAY['x'])",
    ],
)
def test_batch_is_refused_whole_when_its_arrays_differ_in_length(space: Space, write: str) -> None:
    """Otherwise the results or errors of the last jobs would be lost in silence."""
    enqueue(space, 2)
    lease(space)
    held = claim(space, limit=2)
    ids = ([c.job_id for c in held], [c.generation for c in held])

    with pytest.raises(Exception, match="differ in length") as caught:
        space.rows(f"SELECT * FROM fencerow.{write}", (A, *ids))

    assert getattr(caught.value, "sqlstate", None) == "QF002"
    assert space.value("SELECT count(*) FROM fencerow.running") == 2


def test_kind_that_does_not_fit_the_verb_is_refused(space: Space) -> None:
    held = running(space)

    for verb, kind in (("fail", "timeout"), ("retry", "lost"), ("retry", "released")):
        with pytest.raises(Exception, match="kinds of a"):
            space.run(jobs.settle([settlement(held, verb, kind=kind)]))
    assert state(space, held.job_id) == ("running", 1, 1)


def test_attempt_is_settled_once_by_constraint(space: Space) -> None:
    """I3: a second record of one job and generation is impossible, whoever writes it."""
    held = running(space)
    settle(space, held, "retry")
    row = "SELECT %s, 1, 1, 1, now(), now(), 'failed'"
    insert: Callable[[str], str] = lambda columns: f"INSERT INTO fencerow.attempt ({columns}) {row}"  # noqa: E731

    with pytest.raises(Exception, match="attempt_pkey"):
        space.rows(
            insert("job_id, generation, attempt, lease_id, claimed_at, ended_at, kind"), (held.job_id,)
        )


def test_bad_ticket_does_not_hold_back_its_neighbours_in_the_sweep(space: Space) -> None:
    """I12: a ticket that cannot be moved, here because its job is recorded as ended, is passed over with a warning."""
    enqueue(space, 3)
    lease(space)
    held: list[Claim] = claim(space, limit=3)
    bad = held[1].job_id
    space.rows(
        "INSERT INTO fencerow.attempt (job_id, generation, attempt, lease_id, claimed_at, ended_at, kind) "
        "VALUES (%s, 1, 1, 1, now(), now(), 'failed')",
        (bad,),
    )
    lease(space, B)

    assert lose(space) == {held[0].job_id: "ready", held[2].job_id: "ready"}
    assert space.rows("SELECT job_id FROM fencerow.running") == [(bad,)]
    assert space.value("SELECT count(*) FROM fencerow.lease WHERE id = %s", (A,)) == 1
