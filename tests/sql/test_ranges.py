"""Values at and over the edge: refused whole with a check, never wrapped, never stored half (C047, C048, C121)."""

import pytest
from psycopg.errors import CheckViolation, DatabaseError, NumericValueOutOfRange

from fencerow.errors import Rejected
from fencerow.ops import jobs
from fencerow.store.session import run_on
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space
from fencerow.types import Settlement, Unique
from tests.sql.steps import A, claim, enqueue, job, lease, running, settle

CHECKED = [
    "run_at => 'infinity'",
    "run_at => '-infinity'",
    "run_at => '20000-01-01+00'",
    "run_at => '9000-01-01+00'",
    "run_at => '1969-12-31+00'",
    "max_attempts => 0",
    "max_attempts => -1",
    "max_attempts => 1001",
    "timeout => '0 s'",
    "timeout => '-1 s'",
    "timeout => '366 days'",
    "on_lost => 'hold'",
    "queue => ''",
    "queue => repeat('q', 64)",
    "queue => E'a\\nb'",
    "tags => array_fill('t'::text, ARRAY[21])",
    "headers => '[1]'",
    "payload => '[]'",
    "payload => '1'",
    "idempotency_key => ''",
    "idempotency_key => repeat('k', 201)",
]
OUT_OF_RANGE = [
    "priority => 32768", "priority => 40000", "priority => -2147483648", "priority => 2147483647", "max_attempts => 32768",
]  # fmt: skip


@pytest.mark.parametrize("argument", CHECKED)
def test_enqueue_refuses_what_no_reader_could_use(space: Space, argument: str) -> None:
    with pytest.raises(CheckViolation):
        space.rows(f"SELECT fencerow.enqueue('t', {argument})")
    assert space.rows("SELECT FROM fencerow.job") == []


@pytest.mark.parametrize("argument", OUT_OF_RANGE)
def test_enqueue_refuses_numbers_that_do_not_fit(space: Space, argument: str) -> None:
    with pytest.raises(NumericValueOutOfRange):
        space.rows(f"SELECT fencerow.enqueue('t', {argument})")
    assert space.rows("SELECT FROM fencerow.job") == []


@pytest.mark.parametrize("task", ["''", "repeat('t', 201)", "E'a\\tb'"])
def test_enqueue_refuses_task_names_out_of_rule(space: Space, task: str) -> None:
    with pytest.raises(CheckViolation):
        space.rows(f"SELECT fencerow.enqueue({task})")


def test_names_of_any_kind_are_data(space: Space) -> None:
    """C099: quotes, spaces, wildcards and letters of any script are plain characters of a name."""
    names = ["a-b", "A b", "select", 'x"; drop table job; --', "É", "日本", "..", "100%", "_", "a'b", "\\"]
    lease(space)
    for name in names:
        space.run(
            jobs.enqueue([job(task=name, queue=name, tags=[name], unique=Unique(name), idempotency_key=name)])
        )
        (held,) = claim(space, queue=name)
        assert (held.task, held.extra and held.extra["tags"]) == (name, [name])
        assert settle(space, held) == ["accepted"]
    assert claim(space, queue="%") == []


def test_negative_delay_is_refused_and_a_huge_one_does_not_fit(space: Space) -> None:
    with pytest.raises(DatabaseError, match="run_in is negative"):
        space.rows("SELECT fencerow.enqueue('t', run_in => '-5 s')")
    for far in ("1000000000000 s", "8000 years"):
        with pytest.raises(DatabaseError):
            space.rows(f"SELECT fencerow.enqueue('t', run_in => '{far}')")
    assert space.rows("SELECT FROM fencerow.job") == []


def test_extending_a_holder_to_no_time_at_all_is_refused(space: Space) -> None:
    """C047: the job of the second enqueue is never written, so the ticket itself must refuse the time."""
    enqueue(space, unique=Unique("k"))
    for far in ("infinity", "20000-01-01+00"):
        with pytest.raises(CheckViolation):
            space.rows(
                f"SELECT fencerow.enqueue('t', unique_key => 'k', on_conflict => 'extend', run_at => '{far}')"
            )
    assert space.rows("SELECT state, run_at FROM fencerow.jobs") == [("ready", None)]


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "UTC", "Asia/Kolkata"])
def test_durations_are_the_same_in_every_time_zone(space: Space, clock: Clock, zone: str) -> None:
    """C048: a day is 24 hours, also over the night in which the session's clocks change (2026-03-08, 2026-03-29)."""
    connection = space.connect(options=f"-c TimeZone={zone}")
    for start in ("2026-03-07 20:00+00", "2026-03-28 20:00+00"):
        space.empty()
        space.rows("UPDATE fencerow.test_clock SET stopped_at = %s", (start,))
        new = [job(run_in=86400.0), job(unique=Unique("k", 86400))]
        run_on(connection, jobs.enqueue(new))
        hours = space.rows(
            "SELECT extract(epoch FROM j.run_at - j.created_at) / 3600, extract(epoch FROM u.until - j.created_at) / 3600 "
            "FROM fencerow.job AS j LEFT JOIN fencerow.unique_key AS u ON u.job_id = j.id ORDER BY j.id"
        )
        assert hours == [(24, None), (None, 24)]
        lease(space)
        (held,) = claim(space)
        run_on(connection, jobs.settle([Settlement(held, "snooze", delay=86400.0)]))
        waits = space.rows("SELECT extract(epoch FROM run_at - fencerow.now()) FROM fencerow.scheduled")
        assert waits == [(86400,), (86400,)]
        run_on(connection, jobs.purge())


def test_lease_length_is_bounded(space: Space) -> None:
    for length in ("0 s", "0.9 s", "1 day 1 s", "10 years", "-1 s"):
        with pytest.raises(CheckViolation):
            space.rows("SELECT fencerow.open_lease(%s, 'w', %s)", (A, length))
    for number, length in enumerate(("1 s", "1 day")):
        space.rows("SELECT fencerow.open_lease(%s, 'w', %s)", (number, length))


def test_delay_longer_than_a_year_is_cut(space: Space) -> None:
    held = running(space)
    space.rows(
        "SELECT fencerow.snooze(%s, ARRAY[%s::bigint], ARRAY[1::bigint], ARRAY['900 years'::interval])",
        (A, held.job_id),
    )
    days = space.value(
        "SELECT round(extract(epoch FROM run_at - fencerow.now()) / 86400) FROM fencerow.scheduled"
    )
    assert days == 365


def test_progress_is_a_fraction_and_a_short_note(space: Space) -> None:
    held = running(space)
    for fraction, note in ((1.5, None), (-0.1, None), (float("nan"), None), (0.5, "x" * 501)):
        with pytest.raises(Rejected):
            space.run(jobs.progress(held, fraction, note))
    assert space.run(jobs.progress(held, 1.0, "x" * 500)).verdict == "accepted"
