"""The program as a whole: quick, quiet, and with one meaning for each exit code."""

import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from fencerow import errors
from fencerow.cli import exits
from fencerow.cli.main import app
from fencerow.testing.space import Space
from tests.cli import life
from tests.cli.conftest import Run
from tests.server.processes import until

GROUPS = ("", "db", "demo", "enqueue", "job", "migrate", "queue", "stale", "worker")


@pytest.mark.parametrize("group", GROUPS)
def test_every_command_explains_itself(group: str) -> None:
    done = CliRunner().invoke(app, [*filter(None, [group]), "--help"])

    assert done.exit_code == 0
    assert "Usage: " in done.output


def test_every_command_that_prints_has_json() -> None:
    """`worker` logs (--json-logs) and `demo` tells a story; all others print one document."""
    commands = [
        *(("job", name) for name in ("list", "show", "cancel", "redrive")),
        *(("queue", name) for name in ("list", "pause", "resume")),
        *(("db", name) for name in ("start", "stop", "status", "url")),
        *((name,) for name in ("migrate", "enqueue", "stale")),
    ]

    assert [c for c in commands if "--json" not in CliRunner().invoke(app, [*c, "--help"]).output] == []


def test_help_loads_nothing_heavy() -> None:
    """What makes a start slow is what is imported: drivers, rich, msgspec, asyncio wait for a command."""
    script = (
        "import sys; from fencerow.cli.main import main; code = main(['--help']); "
        "sys.stderr.write(' '.join(sorted({'psycopg', 'rich', 'msgspec', 'asyncio', 'pydantic'} & set(sys.modules)))); "
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


def test_version_is_printed(program: Run) -> None:
    said = program("--version")

    assert said.code == 0
    assert said.out.startswith("fencerow")


@pytest.mark.parametrize(
    "arguments", [("nothing",), ("--nothing",), ("job",), ("job", "shwo"), ("migrate", "x")]
)
def test_wrong_usage_is_code_2_on_stderr(call: Run, arguments: tuple[str, ...]) -> None:
    said = call(*arguments)

    assert said.code == 2
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidName("x"), 2),
        (errors.Rejected("x"), 2),
        (errors.UnknownTask("x"), 2),
        (errors.ConfigError("x"), 3),
        (errors.DatabaseUnavailable("x"), 3),
        (errors.NotInstalled("x"), 3),
        (errors.PermissionDenied("x"), 3),
        (errors.ServerError("x"), 3),
        (errors.CommitUncertain("x"), 3),
        (errors.ResourceBusy("x"), 4),
        (errors.Deadlock("x"), 4),
        (errors.Duplicate("x", job_id=1), 1),
        (errors.IdempotencyConflict("x"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_each_error_has_its_exit_code(error: errors.FencerowError, code: int) -> None:
    assert exits.code_of(error) == code


def test_every_error_of_the_store_says_a_cure() -> None:
    for kind in (errors.DatabaseUnavailable, errors.PermissionDenied, errors.ReadOnly, errors.ResourceBusy):
        assert exits.sentence(kind("what happened")).startswith("what happened (")
    assert exits.sentence(errors.NotInstalled("x")) == "x (Run: fencerow migrate)"


def test_a_traceback_comes_only_when_asked_for(program: Run) -> None:
    arguments = ("queue", "list", "--dsn", "postgresql://u:hunter2@127.0.0.1:1/x")

    assert "Traceback" not in program(*arguments).err
    asked = program(*arguments, FENCEROW_TRACEBACK="1")
    assert "Traceback" in asked.err
    assert "hunter2" not in asked.err


def test_a_reader_that_leaves_ends_it_quietly(space: Space) -> None:
    """`fencerow job list | head -1`: no message, exit code 0."""
    for _ in range(3):
        life.enqueue(space)
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "fencerow", "job", "list", "--dsn", space.dsn, "--quiet"],
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    os.close(reading)  # before it can write: every write meets a closed pipe
    _, told = process.communicate(timeout=50)

    assert (process.returncode, told) == (0, b"")


def test_output_survives_a_terminal_of_another_encoding(space: Space, program: Run) -> None:
    space.rows("SELECT fencerow.enqueue('t', queue => '日本')")

    said = program("job", "list", "--dsn", space.dsn, PYTHONIOENCODING="ascii", PYTHONUTF8="0")

    assert said.code == 0
    assert "\\u65e5\\u672c" in said.out


def test_an_interrupt_is_code_130(space: Space) -> None:
    """Ctrl-C while a command waits for a lock."""
    life.enqueue(space)
    holder = space.connect(autocommit=False)
    holder.execute("LOCK TABLE fencerow.space IN ACCESS EXCLUSIVE MODE")
    process = subprocess.Popen(
        [sys.executable, "-m", "fencerow", "job", "show", "1", "--dsn", space.dsn, "--quiet"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencerow cli' AND wait_event_type = 'Lock'"
    until(lambda: space.value(waiting) == 1, "the command waits for the lock")
    process.send_signal(signal.SIGINT)
    out, told = process.communicate(timeout=50)

    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in told


def test_json_of_every_list_is_one_document(space: Space, call: Run) -> None:
    life.enqueue(space)
    for command, key in ((("job", "list"), "jobs"), (("queue", "list"), "queues"), (("stale",), "stale")):
        said = call(*command, "--dsn", space.dsn, "--json")
        assert said.out.count("\n") == 1
        assert isinstance(json.loads(said.out)[key], list)
