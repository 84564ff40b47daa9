"""
Start a worker, stop it, look for what is left; many times.

A quarter is told to stop 0 to 300 ms after it began and a quarter within 1.2 s, wherever it is then; the others once they
serve and are idle, or in the middle of a job. Nothing may be left: processes, sessions, leases, temporary files.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench import measure
from bench.soak import places, processes
from fencerow.ops import jobs
from fencerow.store.session import SyncSession, Target
from fencerow.types import NewJob

BLIND_SECONDS = {"early": (0.0, 0.3), "young": (0.2, 1.2)}
START_SECONDS = 60.0
STOP_SECONDS = 20.0
SIDE_BY_SIDE = 2
GRACE_SECONDS = 5
SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
BEFORE_PYTHON = -signal.SIGTERM
"""Exit of a process that was told to stop before it had asked to be told: nothing had been opened by then."""


@dataclass
class _Cycles:
    dsn: str
    mark: str
    folder: Path
    seed: int
    exits: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def one(self, number: int) -> None:
        """One start and stop."""
        chance = random.Random(f"{self.seed}:{number}")
        way = ("early", "idle", "young", "working")[number % 4]
        name = f"cycle-{number}"
        command = [sys.executable, "-m", "fencerow", "worker", places.APP, "--queues", "bench", "--quiet"]
        command += ["--name", name, "--log-level", "warning", "--grace", str(GRACE_SECONDS)]
        env = processes.environment(self.mark, self.dsn, self.folder)
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, env=env, cwd=processes.ROOT, stdout=log, stderr=log)
        try:
            if way in BLIND_SECONDS:
                time.sleep(chance.uniform(*BLIND_SECONDS[way]))
            else:
                self._await_service(name, process, working=way == "working")
            process.terminate()
            code = process.wait(STOP_SECONDS)
        except (subprocess.TimeoutExpired, TimeoutError) as error:
            process.kill()
            process.wait()
            self.wrong.append(f"cycle {number} ({way}): {type(error).__name__}: {self._said(name)}")
            return
        self.exits[f"{way} {code}"] += 1
        if code != 0 and not (way in BLIND_SECONDS and code == BEFORE_PYTHON):
            self.wrong.append(f"cycle {number} ({way}) ended with {code}: {self._said(name)}")
        (self.folder / f"{name}.log").unlink()

    def _said(self, name: str) -> str:
        lines = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
        return " | ".join(lines[-3:])

    def _await_service(self, name: str, process: subprocess.Popen[bytes], *, working: bool) -> None:
        serves = "SELECT count(*) FROM fencerow.live_workers() WHERE name LIKE %s"
        holds = (
            "SELECT count(*) FROM fencerow.running AS r JOIN fencerow.lease AS l ON l.id = r.lease_id "
            "WHERE l.worker LIKE %s"
        )
        if working:
            session = SyncSession(Target(self.dsn))
            session.run(jobs.enqueue([NewJob("wait", '{"seconds": 0.2}', queue="bench")] * 20))
            session.close()
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            deadline = time.monotonic() + START_SECONDS
            while True:
                row = connection.execute((holds if working else serves).encode(), (f"{name}:%",)).fetchone()
                if row is not None and row[0]:
                    return
                if working and self._none_ready(connection):
                    return  # the other worker was quicker
                if process.poll() is not None or time.monotonic() > deadline:
                    raise TimeoutError
                time.sleep(0.01)

    def _none_ready(self, connection: psycopg.Connection[Any]) -> bool:
        return connection.execute("SELECT count(*) FROM fencerow.ready").fetchone() == (0,)

    def look(self) -> None:
        """What is left after all of them."""
        deadline = time.monotonic() + 10
        while (left := processes.marked(self.mark)) and time.monotonic() < deadline:
            time.sleep(0.05)
        if left:
            self.wrong.append(f"processes left: {[(found.role, found.pid) for found in left]}")
            for found in left:
                os.kill(found.pid, signal.SIGKILL)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for what, statement in (
                ("leases", "SELECT count(*) FROM fencerow.lease"),
                ("tickets under a lease", "SELECT count(*) FROM fencerow.running"),
                ("sleepers", "SELECT count(*) FROM fencerow.asleep"),
                (
                    "workers that did not retire",
                    "SELECT count(*) FROM fencerow.worker WHERE stopped_at IS NULL",
                ),
                ("sessions", SESSIONS),
            ):
                row = connection.execute(statement.encode()).fetchone()
                if row != (0,):
                    self.wrong.append(f"{what} left: {row}")
        temporary = sorted(path.name for path in (self.folder / "tmp").iterdir())
        if temporary:
            self.wrong.append(f"temporary files left: {temporary[:5]}")


def run(count: int, seed: int) -> dict[str, Any]:
    """All cycles, two side by side; exit codes by the way of stopping."""
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    began = time.monotonic()
    with measure.server({"shared_buffers": "128MB"}) as cluster:
        shared = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
        with tempfile.TemporaryDirectory(prefix="fencerow-soak-") as name:
            (Path(name) / "tmp").mkdir()
            cycles = _Cycles(measure.fresh(cluster), secrets.token_hex(8), Path(name), seed)
            with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
                for number, _ in enumerate(pool.map(cycles.one, range(count)), 1):
                    if number % 100 == 0:
                        print(f"{number} cycles, {time.monotonic() - began:.0f} s", flush=True)
            cycles.look()
    new = (set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()) - before - shared
    return {
        "what": "cycles",
        "count": count,
        "seed": seed,
        "seconds": round(time.monotonic() - began, 1),
        "exits": dict(sorted(cycles.exits.items())),
        "new_shared_memory_names": sorted(new),
        "wrong": cycles.wrong,
    }


def main(count: int, seed: int, evidence: Path | None) -> int:
    """Run, print, write the evidence; 1 when something was left or an exit code was wrong."""
    found = run(count, seed)
    print(f"{count} cycles in {found['seconds']} s, seed {seed}")
    for what, number in found["exits"].items():
        print(f"  {what:20} {number}")
    for fault in found["wrong"]:
        print(f"WRONG {fault}")
    if evidence is not None:
        evidence.write_text(json.dumps(found, indent=1) + "\n")
    return int(bool(found["wrong"]))
