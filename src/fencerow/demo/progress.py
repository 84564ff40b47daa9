"""A progress bar on a terminal, a line now and then in a pipe."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


class Bar:
    """Jobs done of *total*."""

    STEPS = 5

    def __init__(self, total: int) -> None:
        self._total = total
        self._shown = -1
        self._progress: Any = None
        self._task: Any = None
        if sys.stdout.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self._progress = Progress(
                TextColumn("hashing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), transient=False
            )
            self._task = self._progress.add_task("hashing", total=total)

    def __enter__(self) -> Bar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, done: int) -> None:
        """So many are done."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done)
        elif (step := done * self.STEPS // self._total) > self._shown:
            self._shown = step
            print(f"{done} of {self._total} done", flush=True)

    def say(self, line: str) -> None:
        """A line above the bar."""
        if self._progress is not None:
            self._progress.console.print(line, highlight=False, markup=False)
        else:
            print(line, flush=True)
