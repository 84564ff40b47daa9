"""`fencerow job`: what an operator is told, and what happens when he acts."""

from collections.abc import Callable

import pytest

from fencerow.ops import inspect, jobs, queues
from fencerow.testing.clock import Clock
from fencerow.testing.space import Space
from tests.cli import life
from tests.cli.conftest import Said

Here = Callable[..., Said]


def test_show_says_when_a_job_is_due(space: Space, here: Here) -> None:
    job = life.enqueue(space, run_in=600.0)

    said = here("job", "show", str(job))

    assert said.code == 0
    assert said.last.startswith("waits for its time: 20")
    assert said.last.endswith(("in 10 m", "in 9 m 59 s", "in 9 m 58 s"))


def test_show_says_that_nobody_serves_the_queue(space: Space, here: Here) -> None:
    """C111: a worker for 'emials' while jobs wait in 'emails'."""
    job = life.enqueue(space, queue="emails")
    life.worker(space, queues=("emials",))

    assert here("job", "show", str(job)).last == "waits for a worker: no live worker serves queue emails"


def test_show_says_that_nobody_knows_the_task(space: Space, here: Here) -> None:
    job = life.enqueue(space, "mail.sned")
    life.worker(space)

    assert here("job", "show", str(job)).last == (
        "waits for a worker: the live worker that serves queue mail does not know task mail.sned"
    )


def test_show_says_who_paused_the_queue(space: Space, here: Here) -> None:
    job = life.enqueue(space)
    life.worker(space)
    space.run(queues.pause("mail", "ana"))

    assert here("job", "show", str(job)).last.startswith("waits: queue mail is paused by ana since 20")


def test_show_says_that_a_slot_is_waited_for(space: Space, here: Here) -> None:
    life.worker(space)
    job = life.enqueue(space)

    assert here("job", "show", str(job)).last.startswith(
        "waits for a free slot of the live worker that serves queue mail and knows its task, ready for "
    )


def test_show_says_until_when_a_lease_lasts(space: Space, here: Here, clock: Clock) -> None:
    """The lease alone tells whether a job runs: before its end, and after it."""
    lease = life.worker(space)
    job = life.enqueue(space)
    life.claim(space, lease)

    running = here("job", "show", str(job)).last
    clock.advance(31)
    lost = here("job", "show", str(job)).last

    assert running.startswith("runs: generation 1 under worker w1; its lease ends at 20")
    assert lost.startswith("lost: generation 1 under worker w1; its lease ended ")
    assert lost.endswith("the next sweep of any worker takes it back")


def test_show_says_that_a_lost_job_runs_alone(space: Space, here: Here, clock: Clock) -> None:
    life.enqueue(space)
    life.claim(space, life.worker(space))
    clock.advance(31)
    space.run(jobs.expire())
    life.worker(space, "w2")

    said = here("job", "show", "1")

    assert said.last.startswith("waits to be run alone")
    assert "generation 1, attempt 1: lost after " in said.out
    assert f"worker w1, lease {life.LEASE + sum(map(ord, 'w1'))}" in said.out


def test_show_says_how_a_job_ended(space: Space, here: Here) -> None:
    lease = life.worker(space)
    life.enqueue(space)
    life.fail(space, life.claim(space, lease))
    life.enqueue(space)
    life.complete(space, life.claim(space, lease))
    life.enqueue(space)
    space.run(jobs.cancel(3, "ana", "no longer\nneeded"))

    failed, done, cancelled = (here("job", "show", str(job)) for job in (1, 2, 3))

    assert "attempt 1 of 20: SMTP 550 (again: fencerow job redrive 1)" in failed.last
    assert "generation 1, attempt 1: failed after " in failed.out
    assert done.last.startswith("ended done at 20")
    assert cancelled.last.endswith(": no longer")
    assert "cancel by ana: no longer" in cancelled.out


def test_show_lists_refused_writes(space: Space, here: Here, clock: Clock) -> None:
    lease = life.worker(space)
    life.enqueue(space)
    stale = life.claim(space, lease)
    clock.advance(31)
    space.run(jobs.expire())
    space.run(jobs.settle([life.settlement(stale)]))

    said = here("job", "show", "1")

    assert "complete of generation 1 by worker w1 refused: expired" in said.out
    assert here("job", "show", "1", "--json").json["refusals"][0]["verdict"] == "expired"


def test_show_keeps_the_payload_back_until_asked(space: Space, here: Here) -> None:
    """C105: payload, headers and result may hold secrets."""
    life.enqueue(space, payload='{"token": "hunter2", "n": 9007199254740993}', headers={"auth": "hunter3"})
    life.complete(space, life.claim(space, life.worker(space)))

    for form in ((), ("--json",)):
        assert "hunter" not in here("job", "show", "1", *form).out
        assert "sent" not in here("job", "show", "1", *form).out
    assert '"token": "hunter2"' in here("job", "show", "1", "--payload").out
    told = here("job", "show", "1", "--payload", "--json").json
    assert told["payload"] == {"token": "hunter2", "n": 9007199254740993}
    assert (told["headers"], told["result"]) == ({"auth": "hunter3"}, {"sent": True})


def test_show_reads_numbers_that_python_refuses(space: Space, here: Here) -> None:
    """A job that another client enqueued with a number of 5,000 digits is shown all the same."""
    space.rows(
        "SELECT fencerow.enqueue('mail.send', jsonb_build_object('n', ('1' || repeat('0', 5000))::numeric))"
    )

    assert here("job", "show", "1", "--payload", "--json").json["payload"] == {"n": "1" + "0" * 5000}


def test_show_in_json_has_exact_ids_and_utc_times(space: Space, here: Here) -> None:
    lease = life.worker(space)
    space.rows("SELECT setval('fencerow.job_id', 9007199254740993, false)")
    job = life.enqueue(space)
    life.claim(space, lease)

    told = here("job", "show", str(job), "--json").json

    assert told["id"] == "9007199254740993"
    assert told["lease_id"] == str(lease)
    assert told["lease_until"].endswith("Z")
    assert told["timeout_seconds"] == 3600.0
    assert told["waits_for"].startswith("runs: ")


def test_show_of_an_unknown_job_is_no(here: Here) -> None:
    said = here("job", "show", "99")

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("fencerow: there is no job 99")
    assert here("job", "show", "99", "--json").json == {"id": 99, "state": None}


def test_hostile_names_and_errors_stay_text(space: Space, here: Here) -> None:
    """C107, C104: what comes from the database cannot steer the terminal, and JSON stays JSON."""
    evil = "\x1b[2J\x1b]0;x\x07\nERROR forged \u202e<img src=x onerror=1>"
    task = "t\u202e<script>"
    space.rows("SELECT fencerow.enqueue(%s, '{}', queue => 'mail', tags => ARRAY[%s])", (task, evil))
    life.fail(space, life.claim(space, life.worker(space, "w\u202e")), evil)
    space.rows("SELECT fencerow.redrive(1, %s)", (evil,))
    life.fail(space, life.claim(space, life.worker(space, "w\u202e")), evil)

    for said in (here("job", "list"), here("job", "show", "1")):
        assert not {c for c in said.out if not c.isprintable()} - {"\n"}
        assert "\nERROR forged" not in said.out
        assert "t\\u202e<script>" in said.out
    assert here("job", "show", "1", "--json").json["error"] == evil
    assert here("job", "list", "--json").json["jobs"][0]["task"] == task


def test_list_filters_and_pages(space: Space, here: Here) -> None:
    """C099: % and _ are literal in a filter."""
    for queue, task in (("mail", "a_b"), ("mail", "axb"), ("other", "a_b"), ("mail", "a_b")):
        life.enqueue(space, task, queue=queue)

    def ids(*arguments: str) -> list[int]:
        return [row["id"] for row in here("job", "list", *arguments, "--json").json["jobs"]]

    assert ids() == [4, 3, 2, 1]
    assert ids("--task", "a_b", "--queue", "mail") == [4, 1]
    assert ids("--task", "a%") == []
    assert ids("--state", "ready", "--limit", "2") == [4, 3]
    assert ids("--state", "ready", "--before", "3") == [2, 1]
    assert ids("--state", "failed") == []
    assert here("job", "list", "--limit", "3", "--json").json["before"] == 2
    assert here("job", "list", "--json").json["before"] is None


def test_list_finds_jobs_in_every_state(space: Space, here: Here) -> None:
    lease = life.worker(space)
    for _ in range(4):
        life.enqueue(space)
    life.complete(space, life.claim(space, lease))
    life.fail(space, life.claim(space, lease))
    life.claim(space, lease)
    life.enqueue(space, run_in=60.0)
    space.run(jobs.cancel(life.enqueue(space)))

    found = {
        state: [row["id"] for row in here("job", "list", "--state", state, "--json").json["jobs"]]
        for state in ("done", "failed", "running", "ready", "scheduled", "cancelled")
    }

    assert found == {
        "done": [1],
        "failed": [2],
        "running": [3],
        "ready": [4],
        "scheduled": [5],
        "cancelled": [6],
    }
    assert here("job", "list", "--state", "running", "--json").json["jobs"][0]["worker"] == "w1"


def test_list_finds_the_rare_job_behind_many(space: Space, here: Here) -> None:
    """A page in which nothing matched carries its cursor: ten thousand other jobs do not hide one."""
    life.enqueue(space, queue="rare")
    space.rows(
        "SELECT count(*) FROM fencerow.enqueue_many(array_fill('t'::text, ARRAY[10005]), "
        "array_fill('{}'::jsonb, ARRAY[10005]))"
    )

    page = space.run(inspect.job_page(queue="rare"))

    assert (page.jobs, page.before) == ((), 7)
    assert [row["id"] for row in here("job", "list", "--queue", "rare", "--json").json["jobs"]] == [1]


def test_cancel_says_what_became_of_each(space: Space, here: Here) -> None:
    """C056: no 'cancelled' for a job that is not; the present state is told."""
    lease = life.worker(space)
    for _ in range(3):
        life.enqueue(space)
    life.complete(space, life.claim(space, lease))
    life.claim(space, lease)

    said = here("job", "cancel", "1", "2", "3", "4", "--reason", "why not")

    assert said.code == 1
    assert said.out.splitlines() == [
        "job 1: is done already",
        "job 2: runs and is asked to stop",
        "job 3: is cancelled",
        "job 4: does not exist",
    ]
    again = here("job", "cancel", "3", "--json")
    assert (again.code, again.json) == (0, {"jobs": [{"id": 3, "result": "cancelled", "ok": True}]})


def test_redrive_tells_the_state_of_a_job_that_is_not_failed(space: Space, here: Here) -> None:
    """C056: a redrive of a live job is refused with its state, so that there are never two copies."""
    lease = life.worker(space)
    life.enqueue(space)
    life.fail(space, life.claim(space, lease))
    life.enqueue(space)

    said = here("job", "redrive", "1", "2", "3")

    assert said.code == 1
    assert said.out.splitlines() == [
        "job 1: is ready again",
        "job 2: is ready, not failed",
        "job 3: does not exist",
    ]
    assert here("job", "redrive", "1").out == "job 1: is ready, not failed\n"
    assert "redrive by " in here("job", "show", "1").out


def test_redrive_is_refused_while_another_job_holds_the_key(space: Space, here: Here) -> None:
    lease = life.worker(space)
    life.enqueue(space, unique=life.Unique("k"))
    life.fail(space, life.claim(space, lease))
    life.enqueue(space, unique=life.Unique("k"))

    said = here("job", "redrive", "1")

    assert said.code == 1
    assert "job 2 holds its unique key" in said.out


def test_an_act_on_a_locked_job_is_busy(space: Space, here: Here) -> None:
    """Exit code 4, and the other jobs are done all the same."""
    life.enqueue(space)
    life.enqueue(space)
    holder = space.connect(autocommit=False)
    holder.execute("SELECT FROM fencerow.ready WHERE job_id = 1 FOR UPDATE")

    said = here("job", "cancel", "1", "2", "--json")

    assert said.code == 4
    assert [(row["id"], row["result"]) for row in said.json["jobs"]] == [
        (1, "resource_busy"),
        (2, "cancelled"),
    ]


@pytest.mark.parametrize(
    "arguments", [("show", "0"), ("show", "1 or 1=1"), ("cancel",), ("list", "--state", "waiting")]
)
def test_wrong_usage_is_code_2(here: Here, arguments: tuple[str, ...]) -> None:
    said = here("job", *arguments)

    assert (said.code, said.out) == (2, "")
