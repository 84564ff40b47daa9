"""procrastinate: run_worker_async, and the recovery that its documentation tells users to write."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

import meeting
import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=meeting.DSN))


@app.task(name="hold")
async def hold() -> str:
    """Wait for the word to go on."""
    return await meeting.handle()


async def main() -> None:
    """One command."""
    async with app.open_async():
        match sys.argv[1]:
            case "install":
                await app.schema_manager.apply_schema_async()
                meeting.answer(version=version("procrastinate"))
            case "enqueue":
                await hold.defer_async()
                meeting.answer()
            case "work":
                await app.run_worker_async(
                    concurrency=1,
                    fetch_job_polling_interval=0.2,
                    update_heartbeat_interval=0.3,
                    stalled_worker_timeout=1,
                )
            case "recover":
                stalled = list(await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=1))
                for job in stalled:
                    await app.job_manager.retry_job(job)
                meeting.answer(recovered=len(stalled))


asyncio.run(main())
