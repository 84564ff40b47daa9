"""Freeze a worker that holds jobs, wait until one of them runs elsewhere, and thaw it: its late write must be refused."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

from fencerow.ops import inspect
from fencerow.renewer import worker_stopped
from fencerow.store.stores import SyncStore

LOOK_SECONDS = 0.005
STOP_SECONDS = 5.0
TAKEOVER_SECONDS = 30.0
REFUSAL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Frozen:
    """A stopped worker process and what it held: job id → generation."""

    worker: str
    pid: int
    held: dict[int, int]


def freeze(store: SyncStore, worker: str, pid: int) -> Frozen | None:
    """
    SIGSTOP a worker that holds jobs, and read what it holds once it is stopped.

    Returns:
        None when it held nothing by then; it goes on running.
    """
    if not store.run(inspect.running_under(worker)):
        return None
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + STOP_SECONDS
    while not worker_stopped(pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} did not stop")
        time.sleep(LOOK_SECONDS)
    held = {job: generation for job, generation, _ in store.run(inspect.running_under(worker))}
    if held:
        return Frozen(worker, pid, held)
    os.kill(pid, signal.SIGCONT)
    return None


def await_takeover(store: SyncStore, frozen: Frozen) -> tuple[int, int, str]:
    """The first of its jobs that runs, or ran, under the next generation: (job, generation, state)."""
    deadline = time.monotonic() + TAKEOVER_SECONDS
    while time.monotonic() < deadline:
        for job, generation in frozen.held.items():
            facts = store.run(inspect.job_facts(job))
            if facts and facts["generation"] > generation and facts["state"] in ("running", "done"):
                return job, facts["generation"], facts["state"]
        time.sleep(LOOK_SECONDS * 4)
    raise TimeoutError("nobody took over a job of the frozen worker")


def await_refusal(store: SyncStore, frozen: Frozen, job: int) -> inspect.RefusalRow:
    """The refusal row that names the frozen worker, the job that was taken over, and the generation it held."""
    deadline = time.monotonic() + REFUSAL_SECONDS
    while time.monotonic() < deadline:
        for row in store.run(inspect.recent_refusals(limit=1000)):
            if (row.worker, row.job_id, row.generation) == (frozen.worker, job, frozen.held[job]):
                return row
        time.sleep(LOOK_SECONDS * 4)
    raise TimeoutError("no write of the frozen worker was refused")
