"""executor="process": a child for each job, killed with all that it started; its death is one failed attempt and no more."""

from pathlib import Path

import pytest

from tests.worker.life import Place, alive, until


def result(place: Place, job: int) -> object:
    return place.space.value("SELECT result FROM fencerow.ended WHERE job_id = %s", (job,))


def error(place: Place, job: int) -> str:
    return str(
        place.space.value(
            "SELECT error FROM fencerow.attempt WHERE job_id = %s ORDER BY generation DESC LIMIT 1", (job,)
        )
    )


def test_a_process_job_runs_outside_the_worker_and_its_result_comes_back(place: Place) -> None:
    """Sync and async handlers run in a child that leads a process group of its own; value and progress arrive."""
    worker = place.worker("--concurrency", "2")
    plain, waited = place.enqueue("process.value", payload='{"value": [1, 2]}') + place.enqueue(
        "process.async"
    )

    place.all_in("done")

    ran = place.seen("group")[0]
    assert ([1, 2], waited) == (result(place, plain), result(place, waited))
    assert worker.pid != ran.pid == int(ran.what.split()[1])


def test_a_child_serves_one_job_after_the_other(place: Place) -> None:
    """Ten jobs in one slot need one child."""
    place.worker("--concurrency", "1")
    place.enqueue("process.value", 10, payload='{"value": []}')

    place.all_in("done")

    assert len({effect.pid for effect in place.seen("group", 10)}) == 1


@pytest.mark.parametrize(("how", "end"), [("signal", "signal SIGSEGV"), ("exit", "exit code 7")])
def test_a_child_that_dies_fails_its_job_with_how_it_ended_and_nothing_else(
    place: Place, how: str, end: str
) -> None:
    """Each death is one charged attempt with its signal or exit code; neighbours and worker go on (C002)."""
    worker = place.worker("--concurrency", "2")
    (dying,) = place.enqueue("process.dies", payload=f'{{"how": "{how}"}}')
    neighbours = place.enqueue("process.value", 3, payload='{"value": []}')

    until(lambda: place.states()[dying] == "failed", "the dying job ended")
    until(lambda: all(place.states()[job] == "done" for job in neighbours), "its neighbours are done")

    assert place.attempts(dying) == [(1, "failed"), (2, "failed")]
    assert end in error(place, dying)
    assert worker.process.poll() is None


def test_a_job_past_its_time_is_killed_with_what_it_started(place: Place) -> None:
    """A C call that nothing interrupts and a grandchild end with the process group at the deadline."""
    place.worker()
    (hanging,) = place.enqueue("process.hangs")

    ran = place.seen("grandchild")[0]
    until(lambda: place.states()[hanging] == "failed", "the job ended")
    until(lambda: not alive(ran.pid), "its process is gone")
    until(lambda: not alive(int(ran.what.split()[1])), "its grandchild is gone")

    assert place.attempts(hanging) == [(1, "timeout")]


def test_a_cancelled_process_job_is_killed_and_ends_cancelled(place: Place) -> None:
    """The wish arrives with a renewal, the child is killed, no further attempt is made."""
    place.worker("--lease", "1")
    (job,) = place.enqueue("process.waits", payload='{"gate": "never"}')
    ran = place.seen("begun")[0]

    assert place.space.value("SELECT fencerow.cancel(%s)", (job,)) == "requested"
    until(lambda: place.states()[job] == "cancelled", "the job ended")

    until(lambda: not alive(ran.pid), "its process is gone")


def test_children_end_with_a_killed_worker(place: Place) -> None:
    """kill -9 of the worker leaves no child, and the job runs again elsewhere."""
    worker = place.worker("--lease", "1", "--concurrency", "1")
    (job,) = place.enqueue("process.waits", payload='{"gate": "later"}')
    ran = place.seen("begun")[0]

    worker.process.kill()
    until(lambda: not alive(ran.pid), "the child is gone")
    place.worker("--lease", "1")
    place.open("later")
    place.all_in("done")

    assert place.space.value("SELECT generation FROM fencerow.ended WHERE job_id = %s", (job,)) == 2


def test_memory_of_a_process_job_is_bounded(place: Place) -> None:
    """An allocation beyond the bound raises MemoryError in the handler; the child lives on for the next job."""
    place.worker("--concurrency", "1")
    (hungry,) = place.enqueue("process.hungry")
    (after,) = place.enqueue("process.value", payload='{"value": []}')

    until(lambda: place.states()[after] == "done", "the next job is done")

    assert "MemoryError" in error(place, hungry)


def test_job_commit_works_in_a_child(place: Place) -> None:
    """Business row and completion commit together from the child's own connection."""
    place.worker()
    (job,) = place.enqueue("process.commit")

    place.all_in("done")

    assert ("ok", job) == (result(place, job), place.space.value("SELECT job FROM public.committed"))
    place.space.force(b"DROP TABLE public.committed")


def test_a_stopping_worker_leaves_no_child(place: Place, tmp_path: Path) -> None:
    """SIGTERM lets the running job end within the grace; idle children end with the worker."""
    import signal

    worker = place.worker("--concurrency", "1")
    place.enqueue("process.waits", payload='{"gate": "soon"}')
    ran = place.seen("begun")[0]

    worker.send(signal.SIGTERM)
    place.open("soon")

    assert worker.ended() == 0
    assert list(place.states().values()) == ["done"]
    assert not alive(ran.pid)
