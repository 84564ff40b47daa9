"""The checker of the fault campaign accepts a tape of what may happen, and rejects each planted violation."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.soak.check import check, excerpt, repeats
from bench.soak.nemesis import schedule
from bench.soak.tape import Attempt, Call, Ended, Job, Refusal, Sent, Tape, read_calls


def good() -> Tape:
    """Five jobs: plain, lost once and repeated, snoozed, committed with its row, failed by its own decision."""
    return Tape(
        sent=[
            Sent((1, 2), "keyless", "acknowledged", (11, 12)),
            Sent((3,), "keyed", "acknowledged", (13,)),
            Sent((4,), "inside", "acknowledged", (14,)),
            Sent((5,), "keyless", "uncertain"),
            Sent((6, 7), "keyless", "uncertain"),
            Sent((8,), "inside", "rolled back"),
            Sent((9,), "keyless", "refused"),
        ],
        jobs=[
            Job(11, 1, "plain"),
            Job(12, 2, "nap"),
            Job(13, 3, "snoozed", key="key-3"),
            Job(14, 4, "commit"),
            Job(15, 5, "refused"),
        ],
        ended=[
            Ended(11, 1, 1, "done", 9.9, 11.0),
            Ended(12, 2, 2, "done", 14.9, 16.0),
            Ended(13, 2, 1, "done", 21.9, 23.0),
            Ended(14, 1, 1, "done", 9.9, 12.0),
            Ended(15, 1, 1, "failed", 9.9, 11.0),
        ],
        attempts=[
            Attempt(12, 1, 1, "lost", 9.9, 14.0),
            Attempt(13, 1, 1, "snoozed", 19.9, 20.5),
            Attempt(15, 1, 1, "failed", 9.9, 11.0),
        ],
        refusals=[Refusal(12, 1, "complete", "superseded", 15.5)],
        calls=[
            Call(11, 1, 1, "u/11", 7, 10.0, 10.9, "done", "handler", 10.5, True),
            Call(12, 1, 1, "u/12", 7, 10.0, 15.2, "done", "handler", 12.0, True),
            Call(12, 2, 2, "u/12", 8, 15.0, 15.9, "done", "handler", 15.5, False),
            Call(13, 1, 1, "key-3", 7, 20.0, 20.4, "snooze", "handler"),
            Call(13, 2, 1, "key-3", 7, 22.0, 22.9, "done", "handler", 22.5, True),
            Call(14, 1, 1, "u/14", 7, 10.0, 12.1, "done", "commit"),
            Call(15, 1, 1, "u/15", 7, 10.0, 10.9, "fail", "handler"),
        ],
        orders=[4],
        business=[(14, 1)],
        ledger={"u_11", "u_12", "key-3"},
    )


def test_a_good_tape_has_no_violation_and_counts_its_repeat() -> None:
    tape = good()

    assert check(tape) == []
    assert repeats(tape) == 1


Change = Callable[[Tape], None]


def without(kind: str, place: int) -> Change:
    return lambda tape: getattr(tape, kind).pop(place)


def added(kind: str, row: object) -> Change:
    return lambda tape: getattr(tape, kind).append(row)


def changed(rows_of: str, place: int, **values: object) -> Change:
    def change(tape: Tape) -> None:
        rows = getattr(tape, rows_of)
        rows[place] = replace(rows[place], **values)

    return change


def both(*changes: Change) -> Change:
    def change(tape: Tape) -> None:
        for one in changes:
            one(tape)

    return change


PLANTED: list[tuple[str, str, Change]] = [
    (
        "acknowledged and lost",
        "I1 nothing lost",
        both(without("jobs", 0), without("ended", 0), without("calls", 0)),
    ),
    ("acknowledged under another id", "I1 nothing lost", changed("sent", 1, ids=(11,))),
    ("never ended", "I1 one terminal state", without("ended", 0)),
    ("ended twice", "I1 one terminal state", added("ended", Ended(11, 1, 1, "done", 9.9, 11.0))),
    ("live after the drain", "I1 one terminal state", lambda tape: tape.live.add(11)),
    ("a row without its job", "I1 reachable", added("ended", Ended(99, 1, 1, "done", 9.9, 11.0))),
    ("made up", "I1 nothing made up", both(added("jobs", Job(16, 10, "refused")))),
    ("enqueued twice", "I11 one job per enqueue", added("jobs", Job(16, 1, "plain"))),
    ("half of a batch", "I11 all or none", added("jobs", Job(16, 6, "plain"))),
    ("refused and there", "I11 refused is refused", added("jobs", Job(16, 9, "plain"))),
    ("rolled back and there", "I11 refused is refused", added("jobs", Job(16, 8, "plain"))),
    ("a job without its order", "I10 together or not at all", without("orders", 0)),
    ("an order without its job", "I10 together or not at all", added("orders", 8)),
    ("no business row", "I10 together or not at all", without("business", 0)),
    ("two business rows", "I10 together or not at all", added("business", (14, 1))),
    ("a business row of a job that failed", "I10 together or not at all", added("business", (15, 1))),
    ("another outcome than decided", "I4 as its handler decided", changed("ended", 4, outcome="cancelled")),
    (
        "failed with attempts left",
        "I4 as its handler decided",
        both(
            changed("ended", 0, outcome="failed"), added("attempts", Attempt(11, 1, 1, "failed", 9.9, 11.0))
        ),
    ),
    (
        "settled twice under one generation",
        "I3 one settlement per generation",
        added("attempts", Attempt(11, 1, 1, "lost", 9.9, 11.0)),
    ),
    ("a generation without a trace", "I3 one settlement per generation", without("attempts", 0)),
    (
        "settled after the end",
        "I2 generations",
        added("attempts", Attempt(11, 2, 2, "lost", 12.0, 13.0)),
    ),
    ("a loss given back", "I6 charges", changed("ended", 1, attempt=1)),
    ("a snooze charged", "I6 charges", changed("ended", 2, attempt=2)),
    ("over its budget", "I6 budget", changed("jobs", 1, max_attempts=1)),
    (
        "infrastructure charged",
        "I13 not charged",
        both(
            changed("attempts", 0, kind="unavailable"),
            changed("calls", 1, outcome="raised DatabaseUnavailable", phase="entry"),
        ),
    ),
    ("called twice", "I3 one call per claim", added("calls", Call(11, 1, 1, "u/11", 7, 10.1))),
    ("called after the end", "I7 no call after the end", changed("calls", 0, began=11.1)),
    (
        "a frozen worker called it late",
        "I7 no call after the end",
        changed("calls", 1, began=16.5),
    ),
    ("called under an unknown claim", "explained repeats", added("calls", Call(11, 2, 2, "u/11", 7, 10.1))),
    ("a repeat not explained", "explained repeats", changed("attempts", 0, kind="unavailable")),
    ("begun after the takeover", "I7 trust ends first", changed("calls", 1, began=15.0)),
    ("acted after the takeover", "I7 trust ends first", changed("calls", 1, effect=15.0)),
    ("applied twice", "effect once", changed("calls", 2, applied=True)),
    ("another key", "one idempotency key", changed("calls", 2, key="u/other")),
    ("not the key of the enqueue", "one idempotency key", changed("jobs", 2, key="key-4")),
    ("done and never called", "done means called", without("calls", 0)),
    ("done without its effect", "done means done", lambda tape: tape.ledger.discard("u_11")),
]


@pytest.mark.parametrize(("what", "rule", "plant"), PLANTED, ids=[what for what, _, _ in PLANTED])
def test_a_planted_violation_is_found(what: str, rule: str, plant: Change) -> None:
    tape = good()
    plant(tape)

    assert rule in {violation.rule for violation in check(tape)}


def test_the_order_of_the_rows_does_not_matter() -> None:
    tape = good()
    for kind in ("jobs", "ended", "attempts", "refusals", "calls", "sent"):
        random.Random(3).shuffle(getattr(tape, kind))

    assert check(tape) == []


def test_what_may_happen_is_no_violation() -> None:
    """Given back, killed before its end was written, lost at its only attempt, spent, and all of an uncertain batch."""
    tape = good()
    tape.sent.append(Sent((20, 21, 22), "keyless", "acknowledged", (20, 21, 22)))
    tape.jobs += [
        Job(16, 6, "plain"),
        Job(17, 7, "plain"),
        Job(20, 20, "nap"),
        Job(21, 21, "once"),
        Job(22, 22, "spent", max_attempts=1),
    ]
    tape.ended += [
        Ended(16, 1, 1, "done", 1.0, 2.0),
        Ended(17, 1, 1, "done", 1.0, 2.0),
        Ended(20, 3, 2, "done", 5.0, 6.0),
        Ended(21, 1, 1, "failed", 1.0, 2.0),
        Ended(22, 1, 1, "failed", 1.0, 2.0),
    ]
    tape.attempts += [
        Attempt(20, 1, 1, "released", 1.0, 2.0),
        Attempt(20, 2, 1, "lost", 3.0, 4.0),
        Attempt(21, 1, 1, "lost", 1.0, 2.0),
        Attempt(22, 1, 1, "failed", 1.0, 2.0),
    ]
    tape.calls += [
        Call(16, 1, 1, "u/16", 7, 1.1, 1.2, "done", "handler", 1.1, True),
        Call(17, 1, 1, "u/17", 7, 1.1, 1.2, "done", "handler", 1.1, True),
        Call(20, 2, 1, "u/20", 7, 3.1),
        Call(20, 3, 2, "u/20", 8, 5.1, 5.2, "done", "handler", 5.1, True),
        Call(21, 1, 1, "u/21", 7, 1.1),
        Call(22, 1, 1, "u/22", 7, 1.1, 1.2, "error", "handler"),
    ]
    tape.ledger |= {"u_16", "u_17", "u_20"}

    assert check(tape) == []
    assert repeats(tape) == 2


def test_an_excerpt_has_all_about_one_job_in_order_of_time() -> None:
    lines = excerpt(good(), 12)

    kinds = [line.split(" ", 1)[1].split("(")[0] for line in lines[2:]]
    assert lines[0].startswith("Job(id=12, n=2")
    assert lines[1].startswith("Sent(numbers=(1, 2)")
    assert kinds == ["Call", "Attempt", "Call", "Refusal", "Ended"]


def test_calls_are_read_from_the_lines_of_an_effect_log() -> None:
    head = {"t": 1.0, "job": 1, "gen": 1, "attempt": 1, "key": "k", "pid": 7}
    calls, stopped = read_calls(
        [
            {**head, "e": "begin", "w": 10.0},
            {**head, "e": "stopped", "gen": 2, "w": 10.5},
            {
                **head,
                "e": "end",
                "w": 11.0,
                "outcome": "done",
                "phase": "handler",
                "effect": 10.4,
                "applied": True,
            },
            {**head, "e": "begin", "gen": 3, "w": 12.0},
        ]
    )

    assert calls == [
        Call(1, 1, 1, "k", 7, 10.0, 11.0, "done", "handler", 10.4, True),
        Call(1, 3, 1, "k", 7, 12.0),
    ]
    assert stopped == 1


def test_a_schedule_depends_on_its_seed_alone_and_has_each_family_equally_often() -> None:
    families = ["kill", "stop", "cut"]
    faults = schedule(5, families, seconds=30, spacing=1)

    assert faults == schedule(5, families, seconds=30, spacing=1)
    assert faults != schedule(6, families, seconds=30, spacing=1)
    assert sorted(fault.family for fault in faults) == sorted(families * 10)
    assert [fault.at for fault in faults] == [float(at) for at in range(1, 31)]
