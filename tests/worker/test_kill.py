"""A worker is killed: every job runs again elsewhere, none is accepted twice, attempts are charged as promised (I6)."""

import json
import signal

import pytest

from tests.worker.life import Place, alive, until


def gate(name: str) -> str:
    return json.dumps({"gate": name})


@pytest.mark.slow
def test_every_job_of_a_killed_worker_runs_again_elsewhere(place: Place) -> None:
    """Slow: a lease of a second has to end, and suspects get a process each."""
    place.enqueue("quick", 30)
    first = place.worker("--lease", "1s", "--concurrency", "4")
    place.all_in("done")
    lost = place.enqueue("wait", 12, payload=gate("a"))
    running = place.seen("begun", 4)
    renewer = first.renewer

    first.process.kill()
    first.process.wait()
    until(lambda: not alive(renewer), "the end of its renewer")
    place.open("a")
    second = place.worker("--lease", "1s", "--concurrency", "4")
    place.all_in("done")

    # Some were lost with it, running or claimed ahead; each such loss is one attempt, and all of them run alone.
    kinds = {job: [kind for _, kind in place.attempts(job)] for job in lost}
    assert all(kinds[effect.job] == ["lost"] for effect in running)
    assert all(kind in ([], ["lost"]) for kind in kinds.values())
    done = {effect.job: effect for effect in place.effects("done") if effect.job in lost}
    assert sorted(done) == lost
    for job, effect in done.items():
        alone = effect.pid not in (first.pid, second.pid)
        assert alone == (kinds[job] == ["lost"])
    assert place.space.rows("SELECT count(*), count(DISTINCT job_id) FROM fencerow.ended") == [(42, 42)]
    assert place.space.rows("SELECT * FROM fencerow.running") == []


@pytest.mark.slow
def test_a_job_that_kills_its_process_fails_after_its_attempts_and_burns_nobody(place: Place) -> None:
    """C002: exactly 3 claims, then failed as lost; neighbours lose one attempt at most. Slow: three leases end."""
    (poison,) = place.enqueue("poison", priority=50)
    neighbours = place.enqueue("wait", 6, payload=gate("never"), timeout=0.5, priority=60)
    quick = place.enqueue("quick", 5, priority=70)
    place.worker("--lease", "1s", "--processes", "2", "--concurrency", "4")
    place.open("never")

    until(lambda: place.states()[poison] == "failed", "the end of the poison")
    until(lambda: all(place.states()[job] == "done" for job in neighbours + quick), "its neighbours")

    assert [effect.generation for effect in place.effects("dies")] == [1, 2, 3]
    assert place.attempts(poison) == [(1, "lost"), (2, "lost"), (3, "lost")]
    for job in neighbours + quick:
        assert [kind for _, kind in place.attempts(job)] in ([], ["lost"])


@pytest.mark.slow
def test_losses_that_must_not_be_repeated_end_failed_at_once(place: Place) -> None:
    """C003, on_lost="fail" and a single attempt: failed with kind lost, not stuck; redrive makes them run. Slow: a lease ends."""
    (once,) = place.enqueue("once", payload=gate("b"))
    (last,) = place.enqueue("last", payload=gate("b"))
    worker = place.worker("--lease", "1s")
    place.seen("begun", 2)
    worker.process.kill()

    second = place.worker("--lease", "1s")
    place.all_in("failed")
    assert place.attempts(once) == place.attempts(last) == [(1, "lost")]

    place.open("b")
    assert place.space.value("SELECT fencerow.redrive(%s)", (once,)) == "ready"
    assert place.space.value("SELECT fencerow.redrive(%s)", (last,)) == "ready"
    place.all_in("done")
    second.send(signal.SIGTERM)
    assert second.ended() == 0


@pytest.mark.slow
def test_a_process_for_suspects_drains_when_its_worker_is_killed(place: Place) -> None:
    """Else every killed worker would leave some of them, beside those of the worker that follows. Slow: two losses."""
    (job,) = place.enqueue("wait", payload=gate("c"))
    first = place.worker("--lease", "1s")
    place.seen("begun")
    first.process.kill()
    second = place.worker("--lease", "1s", "--grace", "10s")
    alone = place.seen("begun", 2)[-1]
    assert alone.pid not in (first.pid, second.pid)

    second.process.kill()
    place.open("c")
    place.all_in("done")

    until(lambda: not alive(alone.pid), "its end")
    assert place.space.value("SELECT generation FROM fencerow.ended WHERE job_id = %s", (job,)) == 2
