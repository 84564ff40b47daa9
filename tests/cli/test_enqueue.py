"""`fencerow enqueue`: what reaches the database, and what does not."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fencerow.testing.space import Space
from tests.cli import life
from tests.cli.conftest import Run, Said

Here = Callable[..., Said]

SHOP = """
import os
from fencerow import App

app = App(os.environ["SHOP_DSN"])

@app.task(name="mail.send", queue="mail", max_attempts=5)
def send(user: int, subject: str = "hello") -> None: ...
"""


@pytest.fixture
def shop(space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `shop` with an App in the current folder."""
    monkeypatch.setenv("SHOP_DSN", space.dsn)
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def test_a_job_is_stored_as_it_was_asked_for(space: Space, here: Here) -> None:
    said = here(
        *("enqueue", "mail.send", '{"to": "a"}', "--queue", "mail", "--priority", "-5", "--run-in", "10m"),
        *("--idempotency-key", "k1", "--unique", "u1", "--tag", "x", "--tag", "y"),
    )

    assert (said.code, said.out) == (0, "job 1\n")
    row = space.rows(
        "SELECT task, payload::text, queue, priority, run_at - created_at, idempotency_key, unique_key, tags FROM fencerow.job"
    )[0]
    assert (*row[:4], row[4].total_seconds(), *row[5:]) == (
        *("mail.send", '{"to": "a"}', "mail", -5, 600.0, "k1", "u1", ["x", "y"]),
    )


def test_the_same_key_answers_the_same_job(here: Here) -> None:
    first = here("enqueue", "t", '{"a": 1}', "--idempotency-key", "k", "--json")
    again = here("enqueue", "t", '{"a": 1}', "--idempotency-key", "k", "--json")
    other = here("enqueue", "t", '{"a": 2}', "--idempotency-key", "k")

    assert (first.json, again.json) == ({"id": 1, "created": True}, {"id": 1, "created": False})
    assert (other.code, other.out) == (1, "")


def test_the_payload_may_come_from_stdin(space: Space, program: Run) -> None:
    said = program("enqueue", "t", "-", "--dsn", space.dsn, stdin='{"n": [1, 2]}')

    assert said.code == 0
    assert space.value("SELECT payload FROM fencerow.job") == {"n": [1, 2]}


@pytest.mark.parametrize(
    "arguments",
    [
        ("t", '{"hunter2": 1'),
        ("t", '{"hunter2": 1, "hunter2": 2}'),
        ("t", '{"a":', '"hunter2"}'),
        ("t", '{"a": "hunter2\\u0000"}'),
        ("t", '{"a": "hunter2\\ud800"}'),
        ("t", "{}", "--run-in", "soon"),
        ("t", "{}", "--run-in", "1m", "--run-at", "2030-01-01T00:00Z"),
        ("t", "{}", "--run-at", "2030-01-01T00:00"),
        ("t", "{}", "--priority", "40000"),
        ("t", "{}", "--queue", "x" * 64),
        ("t", "{}", "--queue", "a\x1b[2J"),
        ("t", "{}", "--tag", ""),
        ("t", "{}", "--unique", ""),
        ("", "{}"),
        ("t" * 201,),
    ],
    ids=lambda arguments: ascii(" ".join(arguments)[:40]),
)
def test_bad_input_is_refused_and_never_quoted(space: Space, here: Here, arguments: tuple[str, ...]) -> None:
    """Bad inputs 1, 2, 5, 8, 10, 12 to 15: exit code 2, nothing stored, no payload in the message."""
    said = here("enqueue", *arguments)

    assert (said.code, said.out) == (2, "")
    assert "hunter2" not in said.err
    assert "\x1b" not in said.err
    assert "Traceback" not in said.err
    assert space.value("SELECT count(*) FROM fencerow.job") == 0


def test_an_app_checks_the_task_and_its_arguments(space: Space, shop: Path, program: Run) -> None:
    good = program("enqueue", "mail.send", '{"user": 7}', "--app", "shop:app")
    wrong = program("enqueue", "mail.send", '{"user": "hunter2"}', "--app", "shop:app")
    stray = program("enqueue", "mail.send", '{"user": 7, "hunter2": 1}', "--app", "shop:app")
    unknown = program("enqueue", "mail.sned", "{}", FENCEROW_APP="shop:app")

    assert (good.code, good.out) == (0, "job 1\n")
    assert good.err.endswith("(from --app shop:app)\n")
    assert space.rows("SELECT queue, payload->>'user' FROM fencerow.job") == [("mail", "7")]
    assert [said.code for said in (wrong, stray, unknown)] == [2, 2, 2]
    assert "$.user" in wrong.err
    assert "hunter2" not in wrong.err
    assert "It has: mail.send." in unknown.err
    assert "(from FENCEROW_APP shop:app)" in unknown.err


def test_an_explicit_dsn_comes_first_and_the_app_still_checks(space: Space, shop: Path, program: Run) -> None:
    variables = {"SHOP_DSN": "host=/nowhere dbname=other"}

    said = program(
        "enqueue", "mail.send", '{"user": 7}', "--app", "shop:app", "--dsn", space.dsn, **variables
    )
    stray = program("enqueue", "x", "{}", "--app", "shop:app", "--dsn", space.dsn, **variables)

    assert (said.code, "(from --dsn)" in said.err) == (0, True)
    assert stray.code == 2


def on_a_terminal(*arguments: str) -> str:
    """What the program shows on a terminal of 120 columns, stdout and stderr together."""
    import pty
    import sys

    child, master = pty.fork()
    if child == 0:
        os.environ.update(COLUMNS="120", TERM="xterm-256color")
        os.execv(sys.executable, [sys.executable, "-m", "fencerow", *arguments])
    shown = b""
    try:
        while chunk := os.read(master, 65536):
            shown += chunk
    except OSError:
        pass  # the terminal is gone with its last user
    os.close(master)
    os.waitpid(child, 0)
    return shown.decode()


def test_enqueue_on_a_terminal_warns_when_nobody_serves_the_queue(space: Space) -> None:
    """C111; a pipe gets no remark, because nobody reads it."""
    warned = on_a_terminal("enqueue", "mail.send", "{}", "--queue", "mail", "--dsn", space.dsn)
    life.worker(space)
    served = on_a_terminal("enqueue", "mail.send", "{}", "--queue", "mail", "--dsn", space.dsn)

    assert "remark: it waits for a worker: no live worker serves queue mail" in warned
    assert "remark" not in served
    assert "job 2" in served


def test_a_table_on_a_terminal_is_drawn_and_hostile_names_stay_text(space: Space) -> None:
    """C107: markup and terminal sequences in a task's name are shown, not obeyed."""
    life.enqueue(space, "[red]t[/red]")
    space.rows("SELECT fencerow.enqueue(%s)", ("e\u202e[bold]x",))

    shown = on_a_terminal("job", "list", "--dsn", space.dsn)

    assert "[red]t[/red]" in shown
    assert "e\\u202e[bold]x" in shown
    assert "\u202e" not in shown
    assert "─" in shown
