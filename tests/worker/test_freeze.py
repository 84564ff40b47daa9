"""A worker is stopped while it holds jobs, its lease ends, others run them, and it wakes up: it is refused."""

import json
import signal

import pytest

from tests.worker.life import Place, alive, until

GATE = json.dumps({"gate": "open"})


@pytest.mark.slow
@pytest.mark.parametrize("task", ["wait", "wait.thread"])
def test_a_worker_that_wakes_up_after_its_lease_sends_no_effect_and_is_refused(
    place: Place, task: str
) -> None:
    """Slow: a lease ends, and the suspects run in processes of their own."""
    jobs = place.enqueue(task, 2, payload=GATE)
    frozen = place.worker("--lease", "4s", "--name", "frozen")
    place.seen("begun", 2)
    renewer = frozen.renewer
    until_before = place.space.value("SELECT until FROM fencerow.lease")
    frozen.send(signal.SIGSTOP)

    place.worker("--name", "fresh")
    place.seen("begun", 4)
    assert alive(renewer), "the renewer was there, and did not renew for a process in state T"
    name = place.space.value("SELECT name FROM fencerow.worker WHERE name LIKE 'frozen%'")
    ended = place.space.rows("SELECT ended_at FROM fencerow.past_lease WHERE worker = %s", (name,))
    assert ended[0][0] >= until_before
    frozen.send(signal.SIGCONT)
    until(lambda: place.space.value("SELECT count(*) FROM fencerow.refusal") == 2, "the refusals")
    rows = place.space.rows("SELECT job_id, generation, worker, op, verdict FROM fencerow.refusal ORDER BY 1")
    place.open("open")
    place.all_in("done")

    assert rows == [(job, 1, name, "lost", "superseded") for job in jobs]
    done = place.effects("done")
    assert sorted((effect.job, effect.generation) for effect in done) == [(job, 2) for job in jobs]
    assert frozen.pid not in {effect.pid for effect in done}
    assert all(place.attempts(job) == [(1, "lost")] for job in jobs)


@pytest.mark.slow
def test_what_a_careless_handler_returned_in_its_sleep_is_refused(place: Place) -> None:
    """A handler that asks nobody finishes late: the outcome is sent all the same and leaves its refusal. Slow: a lease ends."""
    (job,) = place.enqueue("wait.careless", payload=GATE)
    frozen = place.worker("--lease", "4s")
    place.seen("begun")
    frozen.send(signal.SIGSTOP)
    place.open("open")
    place.worker()
    place.all_in("done")

    frozen.send(signal.SIGCONT)
    row = until(
        lambda: place.space.rows("SELECT generation, verdict, current_generation FROM fencerow.refusal"),
        "the refusal",
    )

    assert row == [(1, "superseded", 2)]
    assert place.space.rows("SELECT generation, outcome FROM fencerow.ended WHERE job_id = %s", (job,)) == [
        (2, "done")
    ]


@pytest.mark.slow
def test_a_hung_process_loses_its_lease(place: Place) -> None:
    """
    A handler that blocks the loop past its timeout and grace keeps its lease no longer; its neighbours run elsewhere.

    Slow: timeout, grace and lease pass.
    """
    (hang,) = place.enqueue("hang", payload=json.dumps({"gate": "hung"}))
    hung = place.worker("--lease", "1s", "--grace", "100ms", "--concurrency", "1")
    place.seen("begun")
    place.enqueue("quick")

    place.worker("--lease", "1s", "--grace", "100ms")
    assert until(lambda: place.attempts(hang), "the loss of the hung job")[0] == (1, "lost")
    place.open("hung")
    place.all_in("done")
    assert hung.process.poll() is None
