"""The import contract of pyproject.toml holds, and refuses an upward import, a cycle and a stray module."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

LINT = Path(sys.executable).with_name("lint-imports")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(LINT), "--no-cache", str(folder / "pyproject.toml")]
    return subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(folder / "src")}, capture_output=True, text=True
    )


def test_every_import_points_down() -> None:
    answer = lint(ROOT)

    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        (
            "policy.py",
            "from fencerow import worker\n",
            "fencerow.policy is not allowed to import fencerow.worker",
        ),
        ("stray.py", "", "- fencerow.stray"),
        ("worker/run.py", "from fencerow.worker import settle\n", "No cycles are allowed in fencerow.worker"),
    ],
    ids=["upward", "unplaced", "cycle"],
)
def test_the_contract_refuses(tmp_path: Path, file: str, text: str, told: str) -> None:
    package = tmp_path / "src" / "fencerow"
    for name in ("cli", "demo", "testing", "worker", "app", "store", "server", "ops", "sql"):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").touch()
    for name in ("__init__", "task", "job", "policy", "codec", "log", "types", "errors", "limits", "renewer"):
        (package / f"{name}.py").touch()
    (package / "worker" / "settle.py").write_text("from fencerow.worker import run\n")
    (package / "worker" / "run.py").touch()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert lint(tmp_path).returncode == 0

    (package / file).write_text(text)
    answer = lint(tmp_path)

    assert answer.returncode == 1
    assert told in answer.stdout
