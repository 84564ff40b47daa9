"""PgQueuer: QueueManager over asyncpg."""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import timedelta
from importlib.metadata import version

import asyncpg
import meeting
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries


async def work(queries: Queries) -> None:
    """Run until SIGTERM."""
    queue = QueueManager(queries)

    @queue.entrypoint("hold")
    async def hold(_job: Job) -> None:
        await meeting.handle()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
    await queue.run(
        dequeue_timeout=timedelta(seconds=0.2),
        batch_size=1,
        heartbeat_timeout=timedelta(seconds=1),
        log_aggregation_interval=timedelta(0),
    )


async def main() -> None:
    """One command."""
    connection = await asyncpg.connect()
    queries = Queries(AsyncpgDriver(connection))
    match sys.argv[1]:
        case "install":
            await queries.install()
            meeting.answer(version=version("pgqueuer"))
        case "enqueue":
            await queries.enqueue("hold", None)
            meeting.answer()
        case "work":
            await work(queries)
    await connection.close()


asyncio.run(main())
