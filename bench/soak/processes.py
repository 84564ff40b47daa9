"""The processes of a run, found by a mark in their environment, and what they hold, read from /proc."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.soak.places import FOLDER_VARIABLE
from fencerow.config import DSN_VARIABLE
from fencerow.worker.settings import SETTINGS_VARIABLE

ROOT = Path(__file__).parents[2]
MARK_VARIABLE = "FENCEROW_SOAK_MARK"


@dataclass(frozen=True, slots=True)
class Found:
    """One live process. ``role``: supervisor, worker, alone, renewer, or other."""

    pid: int
    role: str


def _role(command: list[str], environment: Mapping[str, str]) -> str:
    if "fencerow.renewer" in command:
        return "renewer"
    if "fencerow.worker" in command:
        try:
            return "alone" if json.loads(environment[SETTINGS_VARIABLE])["alone"] else "worker"
        except (KeyError, ValueError):
            return "other"
    if "fencerow" in command and "worker" in command:
        one = "--processes" not in command
        return "worker" if one else "supervisor"
    return "other"


def _strings(path: str) -> list[str]:
    return Path(path).read_bytes().decode("utf-8", "replace").split("\0")


def marked(mark: str) -> list[Found]:
    """All live processes that carry the mark, by pid; zombies are no more."""
    found = []
    for entry in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):
        try:
            pairs = [item.partition("=") for item in _strings(f"/proc/{entry}/environ")]
            environment = {name: value for name, _, value in pairs}
            if environment.get(MARK_VARIABLE) == mark:
                found.append(Found(entry, _role(_strings(f"/proc/{entry}/cmdline"), environment)))
        except OSError:
            continue
    return found


def environment(mark: str, dsn: str, folder: Path) -> dict[str, str]:
    """For every process of a run."""
    own = {
        MARK_VARIABLE: mark,
        DSN_VARIABLE: dsn,
        FOLDER_VARIABLE: str(folder),
        "TMPDIR": str(folder / "tmp"),
    }
    return {**os.environ, **own}


def pss_kib(pid: int) -> int:
    """Proportional set size: pages shared with other processes are counted by their share."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise ValueError("no Pss in smaps_rollup")


def threads(pid: int) -> int:
    """Threads of a process."""
    return len(os.listdir(f"/proc/{pid}/task"))


def descriptors(pid: int) -> list[str]:
    """What the open descriptors of a process point at, without the numbers that differ from one start to the next."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}").split(":")[0])
        except OSError:
            continue
    return sorted(found)


class Child:
    """A program of this package that says a line when it is ready, and ends with its input."""

    def __init__(self, module: str, *arguments: str, env: Mapping[str, str], log: IO[bytes]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(env),
            cwd=ROOT,
            text=True,
        )

    def hear(self) -> str:
        """Its next line."""
        if self.process.stdout is None:
            raise RuntimeError("started without a pipe")
        return self.process.stdout.readline().strip()

    def end(self, seconds: float) -> int | None:
        """End its input and wait; its exit code, None if it had to be killed."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()


class Fleet:
    """
    Supervisors, started as a user would, and started again when one ends, as a service manager would.

    Args:
        arguments: of ``fencerow worker``.
    """

    def __init__(
        self, count: int, arguments: list[str], *, env: Mapping[str, str], folder: Path, app: str
    ) -> None:
        self._command = [sys.executable, "-m", "fencerow", "worker", app, *arguments]
        self._env = dict(env)
        self._folder = folder
        self._stopping = threading.Event()
        self._started = [0.0] * count
        self.exits: list[int] = []
        self.processes = [self._start(place) for place in range(count)]
        self._thread = threading.Thread(target=self._guard, name="fleet")
        self._thread.start()

    def _start(self, place: int) -> subprocess.Popen[bytes]:
        self._started[place] = time.monotonic()
        with (self._folder / f"worker-{place}.log").open("ab") as log:
            return subprocess.Popen(self._command, env=self._env, cwd=ROOT, stdout=log, stderr=log)

    def _guard(self) -> None:
        while not self._stopping.wait(0.1):
            for place, process in enumerate(self.processes):
                # One that cannot live at all is not started more than twice a second.
                if process.poll() is not None and time.monotonic() - self._started[place] > 0.5:
                    self.exits.append(process.returncode)
                    self.processes[place] = self._start(place)

    def stop(self, seconds: float) -> list[int | None]:
        """SIGTERM and wait; the exit codes, None for one that had to be killed."""
        self._stopping.set()
        self._thread.join()
        for process in self.processes:
            process.terminate()
        codes: list[int | None] = []
        deadline = time.monotonic() + seconds
        for process in self.processes:
            try:
                codes.append(process.wait(max(0.1, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                codes.append(None)
        return codes
