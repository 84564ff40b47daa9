"""A short campaign of random faults, from its command to its exit code. The long one is run by hand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 5
# Its six faults have a restart, a frozen and a killed worker and a network that stands still among them.
SEED = 1453


# Slow: a server, four workers, five seconds of faults, and a queue that has to drain after them.
@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_short_campaign_keeps_every_promise(tmp_path: Path) -> None:
    evidence, kept = tmp_path / "evidence.json", tmp_path / "kept"
    command = [sys.executable, "-m", "bench.soak", "faults", "--seconds", str(SECONDS), "--seed", str(SEED)]
    command += ["--rate", "90", "--lease", "1.2", "--spacing", "0.75", "--drain", "120"]
    command += ["--evidence", str(evidence), "--keep", str(kept)]

    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert answer.returncode == 0, answer.stdout[-6000:] + answer.stderr[-2000:]
    figures = json.loads(evidence.read_text())
    assert figures["violations"] == []
    assert sum(figures["faults"].values()) + sum(figures["without_victim"].values()) == 6
    assert sum(figures["attempts"].values()) > 0
    assert list((kept / "effects").glob("*.jsonl"))
