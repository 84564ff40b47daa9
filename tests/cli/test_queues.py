"""`fencerow queue` and `fencerow stale`."""

from collections.abc import Callable

from fencerow.ops import jobs
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space
from tests.cli import life
from tests.cli.conftest import Run, Said

Here = Callable[..., Said]


def test_list_counts_and_warns(space: Space, here: Here) -> None:
    """C111: a backlog that no live worker serves is told."""
    lease = life.worker(space)
    for _ in range(3):
        life.enqueue(space)
    life.claim(space, lease)
    life.enqueue(space, queue="emails", run_in=60.0)

    rows = {row["queue"]: row for row in here("queue", "list", "--json").json["queues"]}
    text = here("queue", "list").out

    assert [rows["mail"][key] for key in ("ready", "scheduled", "running", "workers")] == [2, 0, 1, 1]
    assert [rows["emails"][key] for key in ("ready", "scheduled", "running", "workers")] == [0, 1, 0, 0]
    assert [line.split()[0] for line in text.splitlines() if "no live worker serves it" in line] == ["emails"]


def test_list_of_nothing_says_so(here: Here) -> None:
    assert here("queue", "list").out == "no queue has a live job, a setting or a live worker\n"
    assert here("queue", "list", "--json").json == {"queues": []}


def test_pause_and_resume_say_whether_they_changed_anything(space: Space, here: Here) -> None:
    lease = life.worker(space)
    life.enqueue(space)

    assert here("queue", "pause", "mail").out == "queue mail: paused\n"
    assert space.run(jobs.claim(lease, "mail", limit=1)) == []
    again = here("queue", "pause", "mail")
    assert (again.code, again.out.endswith("already\n")) == (0, True)
    assert here("queue", "pause", "mail", "--json").json == {
        "queue": "mail",
        "paused": True,
        "changed": False,
    }
    assert here("queue", "resume", "mail").out == "queue mail: resumed\n"
    assert here("queue", "resume", "mail").out == "queue mail: was not paused\n"
    assert len(space.run(jobs.claim(lease, "mail", limit=1))) == 1


def test_pause_remarks_on_a_name_that_nobody_uses(space: Space, call: Run) -> None:
    """C111: a typing error in a queue's name does not pass in silence."""
    life.enqueue(space)

    assert "is the name right?" in call("queue", "pause", "mial", "--dsn", space.dsn).err
    assert "is the name right?" not in call("queue", "pause", "mail", "--dsn", space.dsn).err


def test_hostile_queue_names_are_served(space: Space, here: Here, call: Run) -> None:
    """C099, C107: what SQL accepted as a queue can be listed, paused and filtered, and stays text."""
    for queue in ("A b", 'x"; drop table jobs; --', "a%_", "日本", "q\u202e", "a,b:1", "-x"):
        space.rows("SELECT fencerow.enqueue('t', '{}', queue => %s)", (queue,))

        assert call("queue", "pause", "--json", "--dsn", space.dsn, "--", queue).json["changed"] is True
        jobs_of = here("job", "list", f"--queue={queue}", "--json").json["jobs"]
        assert [row["queue"] for row in jobs_of] == [queue]
    assert "q\\u202e" in here("queue", "list").out


def test_stale_lists_claims_past_their_lease_and_changes_nothing(
    space: Space, here: Here, clock: Clock
) -> None:
    lease = life.worker(space)
    life.enqueue(space)
    life.enqueue(space, max_attempts=1)
    life.claim(space, lease)
    life.claim(space, lease)
    assert here("stale").out == "no claim is past the end of its lease\n"
    clock.advance(40)

    rows = here("stale", "--json").json["stale"]
    text = here("stale").out

    assert [(row["job_id"], row["worker"], row["fate"]) for row in rows] == [
        (1, "w1", "back"),
        (2, "w1", "failed"),
    ]
    assert all(40 <= row["claim_age_seconds"] < 60 and 10 <= row["over_since_seconds"] < 30 for row in rows)
    assert ("it runs again" in text, "it fails" in text) == (True, True)
    assert space.value("SELECT count(*) FROM fencerow.running") == 2
