"""Chancy: Worker with its default plugins, leadership and recovery polling faster; the job runs in a thread."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

import meeting
from chancy import Chancy, Queue, Worker, job
from chancy.plugins.leadership import ImmediateLeadership
from chancy.plugins.recovery import Recovery


@job(queue="stale")
def hold() -> None:
    """Wait for the word to go on."""
    meeting.handle_blocking()


async def main() -> None:
    """One command."""
    plugins = [ImmediateLeadership(), Recovery(poll_interval=1)]
    async with Chancy(meeting.DSN, plugins=plugins, no_default_plugins=True) as chancy:
        match sys.argv[1]:
            case "install":
                await chancy.migrate()
                threads = Queue("stale", concurrency=1, executor=Chancy.Executor.Threaded, polling_interval=1)
                await chancy.declare(threads)
                meeting.answer(version=version("chancy"))
            case "enqueue":
                await chancy.push(hold)
                meeting.answer()
            case "work":
                async with Worker(
                    chancy, worker_id=meeting.WHO, heartbeat_poll_interval=1, heartbeat_timeout=2
                ) as worker:
                    await worker.wait_for_shutdown()


if __name__ == "__main__":
    asyncio.run(main())
