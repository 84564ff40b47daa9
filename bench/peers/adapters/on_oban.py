"""Oban for Python, open-source edition: Oban in server mode."""

from __future__ import annotations

import asyncio
import signal
import sys
from importlib.metadata import version

import meeting
from oban import Oban, worker
from oban.schema import install


@worker(queue="stale", max_attempts=2)
class Hold:
    """Waits for the word to go on."""

    async def process(self, _job: object) -> None:
        """Run one job."""
        await meeting.handle()


async def main() -> None:
    """One command."""
    pool = await Oban.create_pool(meeting.DSN)
    match sys.argv[1]:
        case "install":
            await install(pool)
            meeting.answer(version=version("oban"))
        case "enqueue":
            await Oban(pool=pool).enqueue(Hold.new())
            meeting.answer()
        case "work":
            ended = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
            async with Oban(
                pool=pool,
                queues={"stale": 1},
                leadership=meeting.WHO == "B",
                lifeline={"interval": 1.0, "rescue_after": 8.0},
            ):
                await ended.wait()
    await pool.close()


asyncio.run(main())
