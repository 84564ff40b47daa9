"""
The process executor: children that run one job each at a time. A dead child fails one job, never the pool.

A child is killed with its whole process group; its exit code or signal becomes the attempt's error.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from typing import Any

from fencerow.store.session import Target
from fencerow.types import Settlement
from fencerow.worker import outcome
from fencerow.worker.attempt import Attempt
from fencerow.worker.child import LENGTH, SETUP_VARIABLE, frame

START_SECONDS = 60.0
"""How long a child may take to import the app; a job's own time runs from then on."""
DEATH_SECONDS = 0.5
"""How long a child that closed its socket may take to show how it ended, before its group is killed."""


class ChildDied(Exception):
    """The process of an attempt ended before it answered; the message says how."""


class Children:
    """
    Children of one worker, kept for the next job while idle.

    Args:
        memory: descriptor of the shared memory in which trust in leases stands.
    """

    def __init__(self, app_ref: str, target: Target, memory: int) -> None:
        self._app_ref = app_ref
        self._target = target
        self._memory = memory
        self._idle: list[_Process] = []
        self._busy: dict[Attempt, _Process] = {}

    async def run(self, attempt: Attempt, space_id: str) -> Settlement:
        """
        Run an attempt in a child; what it settles with.

        Raises:
            ChildDied: the child ended first.
        """
        attempt.hold.deadline = None
        child = self._idle.pop() if self._idle else await self._start()
        self._busy[attempt] = child
        attempt.begin()
        try:
            answer = await child.ask(
                {
                    "claim": [*attempt.claim],
                    "slot": attempt.lease.slot,
                    "deadline": attempt.hold.deadline,
                    "space_id": space_id,
                    "memory": None if attempt.task is None else attempt.task.memory,
                }
            )
        except BaseException:
            child.kill()
            raise
        finally:
            del self._busy[attempt]
        if answer is None:
            ended = await child.end(DEATH_SECONDS)
            child.kill()
            raise ChildDied(ended or await child.end())
        self._idle.append(child)
        attempt.hold.committed = answer.pop("committed")
        attempt.hold.lost = attempt.hold.lost or answer.pop("lost")
        return Settlement(attempt.claim, **answer)

    def kill(self, attempt: Attempt) -> bool:
        """End the process group in which an attempt runs; False when it runs in none."""
        child = self._busy.get(attempt)
        if child is not None:
            child.kill()
        return child is not None

    async def stop(self) -> None:
        """End all of them."""
        children = [*self._idle, *self._busy.values()]
        self._idle.clear()
        for child in children:
            child.kill()
        for child in children:
            await child.end()

    async def _start(self) -> _Process:
        ours, theirs = socket.socketpair()
        setup = {
            "parent": os.getpid(),
            "app": self._app_ref,
            "dsn": self._target.dsn,
            "schema": self._target.schema,
            "socket": theirs.fileno(),
            "memory": self._memory,
        }
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "fencerow.worker.child",
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, SETUP_VARIABLE: json.dumps(setup)},
                pass_fds=(theirs.fileno(), self._memory),
                start_new_session=True,
            )
        child = _Process(process, *await asyncio.open_connection(sock=ours))
        try:
            if not await asyncio.wait_for(child.answer(), START_SECONDS):
                raise ChildDied(f"while it started, {await child.end()}")
        except BaseException:
            child.kill()
            raise
        return child


class _Process:
    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    async def ask(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Send a job; its answer, or None when the child ended first."""
        try:
            self._writer.write(frame(message))
            await self._writer.drain()
        except ConnectionError:
            return None
        return await self.answer()

    async def answer(self) -> dict[str, Any] | None:
        """The next frame; None at its end."""
        try:
            size = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))[0]
            return json.loads(await self._reader.readexactly(size))  # type: ignore[no-any-return]
        except (ConnectionError, asyncio.IncompleteReadError):
            return None

    def kill(self) -> None:
        """SIGKILL to the whole group: what the job started ends with it."""
        self._writer.close()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    async def end(self, seconds: float | None = None) -> str:
        """Wait for its end; how it ended, in words, or nothing when it has not within *seconds*."""
        try:
            code = await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            return ""
        if code < 0:
            return f"its process was ended by signal {signal.Signals(-code).name}"
        return f"its process ended with exit code {code}"


def died(attempt: Attempt, error: ChildDied) -> Settlement:
    """The settlement of an attempt whose child died by itself: charged, retried by back-off."""
    claim = attempt.claim
    return Settlement(claim, "retry", error=str(error), delay=outcome.backoff(claim, attempt.task))
