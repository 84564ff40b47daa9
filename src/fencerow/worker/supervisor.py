"""
A supervisor keeps N worker processes running. It starts them by exec, holds no thread and no connection itself, starts a
dead one again with a growing pause, and gives up when too many die in a minute.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, replace

from fencerow.clock import boottime
from fencerow.log import logger
from fencerow.worker.settings import SETTINGS_VARIABLE, SUPERVISOR_VARIABLE, WorkerSettings

DEATHS_MAX = 5
DEATHS_WINDOW_SECONDS = 60.0
PAUSE_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
EXIT_CRASH_LOOP = 5
EXIT_CONFIGURATION = 3
LOOK_SECONDS = 0.1


class Supervisor:
    """
    Args:
        command: what to exec for one worker; its settings travel in the environment.
    """

    def __init__(
        self, settings: WorkerSettings, command: tuple[str, ...] = (sys.executable, "-m", "fencerow.worker")
    ) -> None:
        self._settings = settings
        self._command = command
        self._children: dict[int, subprocess.Popen[bytes] | None] = dict.fromkeys(range(settings.processes))
        self._start_at: dict[int, float] = dict.fromkeys(range(settings.processes), 0.0)
        self._deaths: deque[float] = deque()
        self._done: set[int] = set()
        self._signals = 0
        self._exit = 0

    def run(self) -> int:
        """Keep them running until told to stop; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        forwarded = 0
        while len(self._done) < self._settings.processes:
            if self._signals > forwarded:
                forwarded += 1
                self._each_child(lambda child: child.terminate())
            for place in self._children:
                self._look_after(place)
            time.sleep(LOOK_SECONDS)
        return self._exit

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._signals += 1

    def _each_child(self, act: Callable[[subprocess.Popen[bytes]], None]) -> None:
        for child in self._children.values():
            if child is not None and child.poll() is None:
                act(child)

    def _look_after(self, place: int) -> None:
        child = self._children[place]
        if place in self._done:
            return
        if child is None:
            if self._signals or self._exit:
                self._done.add(place)
            elif boottime() >= self._start_at[place]:
                self._children[place] = self._spawn(place)
            return
        code = child.poll()
        if code is None:
            return
        self._children[place] = None
        if self._signals or self._exit or (self._settings.burst and code == 0):
            self._done.add(place)
            self._exit = self._exit or (max(0, code))
        elif code == EXIT_CONFIGURATION:
            self._give_up(code)
        else:
            self._died(place, code)

    def _died(self, place: int, code: int) -> None:
        now = boottime()
        self._deaths.append(now)
        while self._deaths[0] < now - DEATHS_WINDOW_SECONDS:
            self._deaths.popleft()
        end = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        if len(self._deaths) >= DEATHS_MAX:
            logger.error(
                "worker process %d ended %s: %d deaths in a minute, giving up", place, end, len(self._deaths)
            )
            self._give_up(EXIT_CRASH_LOOP)
            return
        pause = PAUSE_SECONDS[min(len(self._deaths), len(PAUSE_SECONDS)) - 1]
        logger.error("worker process %d ended %s; another starts in %.1f s", place, end, pause)
        self._start_at[place] = now + pause

    def _give_up(self, code: int) -> None:
        self._exit = code
        self._each_child(lambda child: child.terminate())

    def _spawn(self, place: int) -> subprocess.Popen[bytes]:
        name = f"{self._settings.name}/{place}" if self._settings.name else None
        settings = replace(self._settings, processes=1, name=name)
        environment = {
            **os.environ,
            SETTINGS_VARIABLE: json.dumps(asdict(settings)),
            SUPERVISOR_VARIABLE: str(os.getpid()),
        }
        # A group of its own: Ctrl-C reaches the supervisor alone, or each worker would count two signals and skip its grace.
        return subprocess.Popen(self._command, env=environment, process_group=0)
