"""Both type checkers see exactly a task's own parameters, without its job."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
MYPY = [str(BIN / "mypy"), "--strict", "--no-incremental", "--follow-imports=silent", "--hide-error-context"]
PYRIGHT = [str(BIN / "basedpyright"), "--level", "error"]


def told(command: list[str], file: Path) -> set[int]:
    """Lines of *file* in which a checker sees an error."""
    answer = subprocess.run([*command, str(file)], cwd=ROOT, capture_output=True, text=True)
    lines = {int(n) for n in re.findall(rf"{file.name}:(\d+):(?:\d+ -)? error", answer.stdout)}
    assert bool(lines) == (answer.returncode != 0), answer.stdout + answer.stderr
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("command", [MYPY, PYRIGHT], ids=["mypy", "pyright"])
def test_checkers_accept_the_good_and_refuse_each_bad_call(command: list[str], tmp_path: Path) -> None:
    """Slow: each checker reads the package twice."""
    # Under another suffix, so that the project itself stays without errors.
    bad = tmp_path / "bad_calls.py"
    bad.write_text((HERE / "bad_calls.txt").read_text())
    marked = {n for n, line in enumerate(bad.read_text().splitlines(), 1) if line.endswith("# refused")}

    assert told(command, HERE / "good.py") == set()
    assert told(command, bad) == marked
