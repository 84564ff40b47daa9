"""Stopping: unstarted jobs go to others at once, running ones get their grace, nothing is left behind."""

import json
import os
import signal
from functools import partial

import pytest

from fencerow.server import Cluster
from tests.worker.life import Place, Worker, alive, children, until

GATE = json.dumps({"gate": "open"})


def _said(worker: Worker, text: str) -> bool:
    return text in worker.said or worker.process.poll() is not None


def _gate(name: str) -> str:
    return json.dumps({"gate": name})


@pytest.mark.slow
def test_unstarted_jobs_run_elsewhere_before_the_running_one_ends(place: Place) -> None:
    """C090: also what fails by itself in the drain is recorded as failed, and what is done is stored. Slow: two processes."""
    place.enqueue("quick", 300)
    first = place.worker("--concurrency", "2")
    place.all_in("done")
    (running,) = place.enqueue("wait", payload=GATE, priority=1)
    (failing,) = place.enqueue("fails", payload=_gate("fail"), priority=1)
    place.seen("begun", 2)
    buffered = place.enqueue("quick", 20)
    first.send(signal.SIGTERM)
    until(lambda: " stops" in first.said, "its drain")
    place.worker()

    until(lambda: all(place.states()[job] == "done" for job in buffered), "those that had not started")
    assert place.states()[running] == "running"
    assert {effect.pid for effect in place.effects("done") if effect.job in buffered}.isdisjoint({first.pid})
    assert all(kind == "released" for job in buffered for _, kind in place.attempts(job))
    place.open("fail")
    until(lambda: place.attempts(failing), "the failure")
    assert place.attempts(failing) == [(1, "failed")]
    place.open("open")
    assert first.ended() == 0
    assert place.states()[running] == "done"
    assert place.attempts(running) == []
    assert place.space.value("SELECT stopped_at IS NOT NULL FROM fencerow.worker ORDER BY started_at LIMIT 1")


@pytest.mark.parametrize("task", ["wait", "wait.careless", "stuck"])
def test_what_does_not_end_within_the_grace_is_given_back(place: Place, task: str) -> None:
    """C089, C091: cancelled and released at once, the attempt given back, whatever the handler is stuck in."""
    (job,) = place.enqueue(task, payload="{}" if task == "stuck" else GATE)
    worker = place.worker("--grace", "200ms")
    place.seen("begun")
    renewer = worker.renewer
    worker.send(signal.SIGTERM)

    assert worker.ended() == 0
    assert place.states()[job] == "ready"
    assert place.attempts(job) == [(1, "released")]
    assert place.space.value("SELECT attempt FROM fencerow.ready") == 0
    until(lambda: not alive(renewer), "the end of its renewer")
    until(
        lambda: (
            not place.space.rows(
                "SELECT FROM pg_stat_activity WHERE application_name LIKE 'fencerow %' AND pid <> pg_backend_pid()"
            )
        ),
        "the end of its sessions",
    )
    if task == "wait":
        assert place.space.value("SELECT count(*) FROM fencerow.lease") == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_skips_the_grace(place: Place, number: signal.Signals) -> None:
    """C031: and gives back what it held all the same."""
    (job,) = place.enqueue("wait", payload=GATE)
    worker = place.worker("--grace", "60s")
    place.seen("begun")
    worker.send(number)
    until(lambda: " stops" in worker.said, "its drain")
    worker.send(number)

    assert worker.ended() == 0
    assert place.attempts(job) == [(1, "released")]


@pytest.mark.slow
def test_a_signal_at_any_moment_of_the_start_ends_it(place: Place) -> None:
    """C031: from the first instant on; what it had claimed is ready for others. Slow: several starts."""
    place.enqueue("quick", 50)
    seen = ["", "database:", "serves"]
    for text in seen * 2:
        worker = place.worker(wait=False)
        until(partial(_said, worker, text), text)
        worker.send(signal.SIGTERM)
        assert worker.ended() in (0, -signal.SIGTERM)
        assert place.space.rows("SELECT * FROM fencerow.running") == []


@pytest.mark.slow
def test_a_stop_while_the_database_is_away_ends_within_the_grace(
    place: Place, fencerow_cluster: Cluster
) -> None:
    """C091. Slow: the server stops and starts."""
    place.enqueue("wait", payload=GATE)
    worker = place.worker("--grace", "1s", "--lease", "5s")
    place.seen("begun")
    fencerow_cluster.stop("immediate")
    try:
        worker.send(signal.SIGTERM)
        assert worker.ended(15) == 0
    finally:
        fencerow_cluster.start()
        place.space.connection.close()
        place.space.connection = type(place.space.connection).connect(place.space.dsn, autocommit=True)
    assert "Traceback" not in worker.said


@pytest.mark.slow
def test_outcomes_met_while_the_database_was_away_are_stored_before_the_end(
    place: Place, fencerow_cluster: Cluster
) -> None:
    """C090: finished, not settled, told to stop; the server comes back within the grace. Slow: the server restarts."""
    (job,) = place.enqueue("wait", payload=GATE)
    worker = place.worker("--grace", "20s", "--lease", "30s")
    place.seen("begun")
    fencerow_cluster.stop("immediate")
    place.open("open")
    place.seen("done")
    worker.send(signal.SIGTERM)
    until(lambda: " stops" in worker.said, "its drain")
    fencerow_cluster.start()
    place.space.connection.close()
    place.space.connection = type(place.space.connection).connect(place.space.dsn, autocommit=True)

    assert worker.ended() == 0
    assert place.states()[job] == "done"
    assert place.attempts(job) == []


@pytest.mark.slow
def test_a_burst_ends_when_nothing_is_due_suspects_included(place: Place) -> None:
    """Slow: a lease ends, and a suspect runs in a process of its own."""
    (lost,) = place.enqueue("wait", payload=GATE)
    first = place.worker("--lease", "1s")
    place.seen("begun")
    first.process.kill()
    until(
        lambda: place.space.value("SELECT count(*) FROM fencerow.lease WHERE until > fencerow.now()") == 0,
        "the end of the lease",
    )
    place.enqueue("quick", 20)
    place.enqueue("quick", run_in=3600)
    place.open("open")
    burst = place.worker("--burst", wait=False)

    assert burst.ended() == 0
    states = place.states()
    assert states.pop(max(states)) == "scheduled"
    assert set(states.values()) == {"done"}
    assert place.attempts(lost) == [(1, "lost")]


@pytest.mark.slow
def test_a_supervisor_replaces_the_dead_and_ends_all_when_told(place: Place) -> None:
    """Slow: three processes and one more."""
    supervisor = place.worker("--processes", "2")
    until(lambda: supervisor.said.count(" serves ") == 2, "two workers")
    first = children(supervisor.pid, running="fencerow.worker")
    os.kill(first[0], signal.SIGKILL)
    until(lambda: supervisor.said.count(" serves ") == 3, "another")
    now = children(supervisor.pid, running="fencerow.worker")
    assert len(now) == 2
    assert first[1] in now
    renewers = [renewer for pid in now for renewer in children(pid, running="fencerow.renewer")]
    assert len(renewers) == 2
    place.enqueue("quick", 10)
    place.all_in("done")

    supervisor.send(signal.SIGTERM)
    assert supervisor.ended() == 0
    until(lambda: not any(map(alive, now + renewers)), "the end of all")
    assert "ended by signal SIGKILL" in supervisor.said


@pytest.mark.slow
def test_a_supervisor_that_is_killed_leaves_workers_that_drain(place: Place) -> None:
    """Slow: processes."""
    (job,) = place.enqueue("wait", payload=GATE)
    supervisor = place.worker("--processes", "2")
    place.seen("begun")
    workers = children(supervisor.pid, running="fencerow.worker")
    renewers = [renewer for pid in workers for renewer in children(pid, running="fencerow.renewer")]
    supervisor.process.kill()
    until(lambda: " stops" in supervisor.said, "their drain")
    place.open("open")

    until(lambda: not any(map(alive, workers + renewers)), "the end of all")
    assert place.states()[job] == "done"
    assert place.attempts(job) == []


@pytest.mark.slow
def test_ctrl_c_gives_the_workers_of_a_supervisor_their_grace(place: Place) -> None:
    """A terminal signals the whole process group: that counts as one signal, not two. Slow: processes."""
    (job,) = place.enqueue("wait", payload=GATE)
    supervisor = place.worker("--processes", "2", group=True)
    place.seen("begun")
    until(lambda: supervisor.said.count(" serves ") == 2, "two workers")
    os.killpg(supervisor.pid, signal.SIGINT)
    until(lambda: supervisor.said.count(" stops") == 2, "their drain")
    place.open("open")

    assert supervisor.ended() == 0
    assert place.states()[job] == "done"
    assert place.attempts(job) == []


@pytest.mark.slow
def test_a_supervisor_gives_up_after_five_deaths(place: Place) -> None:
    """Exit code 5. Slow: five starts with growing pauses."""
    supervisor = place.worker("--processes", "2")
    killed: set[int] = set()
    while supervisor.process.poll() is None:
        for pid in set(children(supervisor.pid, running="fencerow.worker")) - killed:
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
    assert supervisor.ended() == 5
    assert "5 deaths in a minute" in supervisor.said
    assert not any(map(alive, killed))
