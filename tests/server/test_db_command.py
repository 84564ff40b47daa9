"""`fencerow db` as an operator meets it: text, JSON and exit codes."""

import json
import subprocess
import sys
from pathlib import Path

from fencerow.server.postmaster import working_in
from tests.server.processes import USER, Program

RUN = "import sys; from fencerow.cli.main import main; sys.exit(main())"


def db(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", RUN, "db", *arguments], capture_output=True, text=True, timeout=50
    )
    return done.returncode, done.stdout, done.stderr


def test_from_start_to_stop(new_home: Path) -> None:
    code, text, _ = db("status")
    assert (code, "not made yet" in text) == (1, True)
    code, text, _ = db("start", "--json")
    started = json.loads(text)
    assert (code, started["running"], started["standing"]) == (0, True, True)
    assert db("url") == (0, f"{started['dsn']}\n", "")
    assert db("psql", "-At", "-c", "SELECT current_database()") == (0, "fencerow\n", "")
    code, text, _ = db("status", "--json")
    assert (code, json.loads(text)["server_pid"]) == (0, started["server_pid"])
    assert db("stop")[0] == 0
    assert working_in(new_home / "default" / "data") == []
    code, _, errors = db("url")
    assert (code, "fencerow db start" in errors) == (1, True)


def test_stop_leaves_it_to_its_users(home: Path) -> None:
    with Program(USER) as user:
        user.answer()
        code, text, errors = db("stop")
        assert (code, "in use" in text, "--now" in errors) == (4, True, True)
        assert db("stop", "--now")[0] == 0
        assert db("status")[0] == 1


def test_psql_makes_no_server(new_home: Path) -> None:
    code, _, errors = db("psql", "--name", "other")

    assert (code, "There is no embedded server other" in errors) == (1, True)
    assert not new_home.exists()


def test_a_fault_is_one_sentence(new_home: Path) -> None:
    code, text, errors = db("start", "--name", "a/b")

    assert (code, text, errors.count("\n")) == (3, "", 1)
