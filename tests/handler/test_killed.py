"""A worker process dies after a step: the next one goes on from there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fencerow.ops import jobs
from fencerow.testing.space import Space
from fencerow.types import NewJob

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_kill_9_after_a_step_leaves_it_done_and_its_child_enqueued_once(space: Space, tmp_path: Path) -> None:
    """Slow: a lease of a second has to end."""
    effects = tmp_path / "effects"
    space.run(jobs.enqueue([NewJob("order", '{"amount": 5}')]))
    command = [
        sys.executable,
        "-m",
        "fencerow",
        "worker",
        "tests.handler.shop:app",
        "--lease",
        "1s",
        "--burst",
    ]
    environment = {**os.environ, "FENCEROW_DSN": space.dsn, "EFFECTS": str(effects)}

    codes = []
    while space.rows("SELECT state FROM fencerow.jobs WHERE task = 'order'") != [("done",)]:
        # A burst ends when nothing is due: while the lease of the dead one lasts, one after another finds nothing.
        codes.append(subprocess.run(command, cwd=ROOT, env=environment, timeout=50).returncode)

    assert codes[0] == -signal.SIGKILL
    assert effects.read_text().splitlines() == [
        "charge 5",
        "attempt 1 with receipt for 5",
        "attempt 2 with receipt for 5",
    ]
    assert space.rows("SELECT kind FROM fencerow.attempt") == [("lost",)]
    assert space.value("SELECT count(*) FROM fencerow.job WHERE parent_id IS NOT NULL") == 1
    assert space.rows("SELECT generation, place, name FROM fencerow.step") == [(1, 1, "charge")]


@pytest.mark.slow
def test_steps_and_children_of_a_handler_in_a_process_of_its_own(space: Space, tmp_path: Path) -> None:
    """Slow: a worker and its child start."""
    (job,) = space.run(jobs.enqueue([NewJob("apart", '{"amount": 5}')]))
    command = [sys.executable, "-m", "fencerow", "worker", "tests.handler.shop:app", "--burst"]
    environment = {**os.environ, "FENCEROW_DSN": space.dsn, "EFFECTS": str(tmp_path / "effects")}

    answer = subprocess.run(command, cwd=ROOT, env=environment, timeout=50, capture_output=True, text=True)

    assert answer.returncode == 0, answer.stderr
    ((child, parent),) = space.rows("SELECT id, parent_id FROM fencerow.jobs WHERE task = 'child'")
    assert parent == job.id
    assert space.value("SELECT result FROM fencerow.ended") == ["receipt for 5", child], answer.stderr
    assert space.rows("SELECT name, result FROM fencerow.step") == [("charge", '"receipt for 5"')]
