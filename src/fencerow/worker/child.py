"""
``python -m fencerow.worker.child``: runs process jobs one at a time for a worker, in a process group of its own.

It is killed as a group when a job's time or lease is over, and it dies with its worker. What it sends back is a settlement;
only its worker talks to the database about ownership.

Frames on the socket: four bytes of length, then JSON. In: ``{"claim", "slot", "deadline", "space_id", "memory"}``; out:
``{"verb", "result", "kind", "error", "delay", "committed"}``.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import mmap
import os
import signal
import socket
import struct
import sys
from typing import Any

from fencerow.app import App
from fencerow.clock import boottime
from fencerow.errors import UnknownTask
from fencerow.job.hold import Hold
from fencerow.loading import load_app
from fencerow.renewer import SLOT, SLOTS
from fencerow.store.stores import AsyncStore
from fencerow.task import Task
from fencerow.types import Claim, Settlement
from fencerow.worker import outcome
from fencerow.worker.call import in_thread, on_loop

LENGTH = struct.Struct("!I")
SETUP_VARIABLE = "FENCEROW_CHILD"
PR_SET_PDEATHSIG = 1


def receive(channel: socket.socket) -> dict[str, Any] | None:
    """The next frame; None at the end."""
    head = _exactly(channel, LENGTH.size)
    body = None if head is None else _exactly(channel, LENGTH.unpack(head)[0])
    return None if body is None else json.loads(body)


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        chunk = channel.recv(size - len(data))
        if not chunk:
            return None
        data += chunk
    return data


def frame(message: dict[str, Any]) -> bytes:
    """A message as it travels."""
    body = json.dumps(message).encode()
    return LENGTH.pack(len(body)) + body


def limit_memory(size: int | None) -> None:
    """Bound this process's address space in bytes; None: no bound. Beyond it an allocation raises MemoryError."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY if size is None else size, hard))


class Child:
    """Serves one worker until its socket closes."""

    def __init__(self, app: App, channel: socket.socket, memory: int) -> None:
        self._app = app
        self._channel = channel
        self._memory = mmap.mmap(memory, SLOT.size * SLOTS, prot=mmap.PROT_READ)

    def serve(self) -> None:
        """Say that the app is loaded, then run what is sent, one after the other."""
        self._channel.sendall(frame({"ready": os.getpid()}))
        while (message := receive(self._channel)) is not None:
            self._channel.sendall(frame(self._run(message)))

    def _run(self, message: dict[str, Any]) -> dict[str, Any]:
        claim = Claim(*message["claim"])
        slot = int(message["slot"])

        def trusted() -> bool:
            first, second = SLOT.unpack_from(self._memory, slot * SLOT.size)
            return bool(boottime() < min(first, second))

        hold = Hold(claim, message["space_id"], trusted, message["deadline"])
        limit_memory(message["memory"])
        try:
            settlement = self._handle(claim, hold)
        finally:
            limit_memory(None)
        return {
            "verb": settlement.verb,
            "result": settlement.result,
            "kind": settlement.kind,
            "error": settlement.error,
            "delay": settlement.delay,
            "committed": hold.committed,
            "lost": hold.lost,
        }

    def _handle(self, claim: Claim, hold: Hold) -> Settlement:
        task = self._app.tasks.get(claim.task)
        try:
            if task is None:
                raise UnknownTask(f"this worker knows no task {claim.task!r}")
            if task.is_async:
                value = asyncio.run(self._on_loop(task, hold))
            else:
                value = in_thread(self._app, task, hold, self._app.store())
            return outcome.returned(claim, task, value)
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything, SystemExit included
            return outcome.raised(hold, task, error)

    async def _on_loop(self, task: Task[Any, Any], hold: Hold) -> object:
        store = AsyncStore(self._app.target(name="fencerow child"))
        try:
            return await on_loop(self._app, task, hold, store)
        finally:
            await store.close()


def main() -> None:
    """Entry point."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setup = json.loads(os.environ.pop(SETUP_VARIABLE))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != setup["parent"]:
        return
    app = load_app(setup["app"], dsn=setup["dsn"])
    app.move(setup["dsn"], schema=setup["schema"])
    with socket.socket(fileno=setup["socket"]) as channel:
        Child(app, channel, setup["memory"]).serve()


if __name__ == "__main__":
    main()
