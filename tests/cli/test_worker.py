"""`fencerow worker` from its options to its exit code."""

from pathlib import Path

import pytest

from fencerow.testing.space import Space
from tests.cli import life
from tests.cli.conftest import Run

SHOP = """
import os
from fencerow import App

app = App(os.environ["SHOP_DSN"], lease=60)

@app.task(name="mail.send", queue="mail")
def send(user: int) -> int:
    return user + 1
"""


@pytest.fixture
def shop(space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SHOP_DSN", space.dsn)
    (tmp_path / "shop.py").write_text(SHOP)
    return "shop:app"


def test_a_burst_runs_what_is_due_and_ends(space: Space, shop: str, program: Run) -> None:
    for user in (1, 2):
        life.enqueue(space, payload=f'{{"user": {user}}}')
    life.enqueue(space, queue="other", payload='{"user": 3}')

    said = program("worker", shop, "--queues", "mail:2", "--burst")

    assert said.code == 0, said.err
    assert space.rows("SELECT job_id, outcome, result FROM fencerow.ended ORDER BY 1") == [
        (1, "done", 2),
        (2, "done", 3),
    ]
    assert "(from --app shop:app)" in said.err


def test_the_dsn_of_the_environment_comes_before_that_of_an_app_in_it(
    space: Space, shop: str, program: Run
) -> None:
    """--dsn, --app, FENCEROW_DSN, FENCEROW_APP, for a worker too: the app it must have need not say where."""
    life.enqueue(space, payload='{"user": 1}')

    said = program(
        *("worker", "--queues", "mail", "--burst"),
        FENCEROW_APP=shop,
        FENCEROW_DSN=space.dsn,
        SHOP_DSN="host=/nowhere dbname=x",
    )

    assert said.code == 0, said.err
    assert "(from FENCEROW_DSN)" in said.err
    assert space.value("SELECT count(*) FROM fencerow.ended") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--queues", "a,a"), "named twice"),
        (("--queues", "a:0"), "the concurrency of a queue is 1 to 10000"),
        (("--lease", "500ms"), "a lease is 1s to 24h"),
        (("--lease", "long"), "a duration is a number"),
        (("--concurrency", "0"), "--concurrency"),
        (("--processes", "0"), "--processes"),
        (("--grace", "2d"), "at most 1d"),
        (("--name", "a\x1b[2J"), "a worker name has 1 to"),
        (("--app", "other:app"), "name different apps"),
        (("--log-level", "loud"), "--log-level"),
    ],
    ids=lambda value: ascii(value) if isinstance(value, tuple) else "",
)
def test_contradictions_are_refused_at_the_start(
    shop: str, call: Run, arguments: tuple[str, ...], told: str
) -> None:
    """C111, bad input 16: a misconfiguration does not pass in silence."""
    said = call("worker", shop, *arguments)

    assert (said.code, said.out) == (2, "")
    assert told in " ".join(said.err.split())


def test_queues_that_no_task_uses_are_remarked(space: Space, shop: str, tmp_path: Path, program: Run) -> None:
    """C111: a worker for 'mial' while the app's tasks use 'mail'; an app whose tasks are not imported."""
    (tmp_path / "empty.py").write_text("import os, fencerow\napp = fencerow.App(os.environ['SHOP_DSN'])\n")

    wrong = program("worker", shop, "--queues", "mial,mail", "--burst")
    empty = program("worker", "empty:app", "--burst")

    assert "remark: queue mial is the queue of no task of this app; theirs: mail\n" in wrong.err
    assert wrong.err.count("remark: ") == 1
    assert "remark: the app has no task" in empty.err


def test_a_worker_needs_an_app(call: Run) -> None:
    said = call("worker")

    assert (said.code, said.err) == (
        3,
        "fencerow: no app is named (Give module:name, as in: fencerow worker shop:app)\n",
    )


@pytest.mark.parametrize("missing", ["schema", "database"])
def test_what_waiting_cannot_cure_ends_it_before_claiming(
    space: Space, shop: str, program: Run, missing: str
) -> None:
    """C029: exit code 3 and one clear line. (A server that is away is waited for: that may pass.)"""
    life.enqueue(space, payload='{"user": 1}')
    dsn = space.dsn if missing == "schema" else space.dsn.replace("/fencerow?", "/nothing?")

    said = program("worker", shop, "--queues", "mail", "--schema", "missing", "--dsn", dsn, "--quiet")

    assert said.code == 3, said.err
    assert len([line for line in said.err.splitlines() if "does not exist" in line]) == 1
    assert "Traceback" not in said.err
    assert space.value("SELECT count(*) FROM fencerow.ready") == 1
