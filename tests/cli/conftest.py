"""The program as a process, and the same entry in this process for what needs no terminal of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from fencerow.cli.main import main
from fencerow.testing.space import Space


@dataclass(frozen=True)
class Said:
    """What one run of the program said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def last(self) -> str:
        """The last line on stdout."""
        return self.out.splitlines()[-1]


class Run(Protocol):
    def __call__(self, *arguments: str, stdin: str = "", **variables: str) -> Said: ...


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("FENCEROW_") and name != "FENCEROW_PG_BIN"]:
        monkeypatch.delenv(name)
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def program() -> Run:
    """Run `python -m fencerow` to its end."""

    def run(*arguments: str, stdin: str = "", **variables: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-m", "fencerow", *arguments],
            input=stdin,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=50,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the program's entry in this process: the same code without the start of an interpreter."""

    def run(*arguments: str, stdin: str = "", **variables: str) -> Said:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            capsys.readouterr()
            code = main(list(arguments))
            captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return run


@pytest.fixture
def here(space: Space, call: Run) -> Callable[..., Said]:
    """Run a command on the test's space, without remarks."""

    def run(*arguments: str) -> Said:
        return call(*arguments, "--dsn", space.dsn, "--quiet")

    return run
