"""absurd: the SQL that its absurdctl carries, and the worker of its Python SDK."""

from __future__ import annotations

import signal
import sys
from importlib.metadata import version

import absurdctl
import meeting
import psycopg
from absurd_sdk import Absurd

CLAIM_SECONDS = {"A": 1, "B": 60}


def main() -> None:
    """One command."""
    if sys.argv[1] == "install":
        with psycopg.connect(meeting.DSN, autocommit=True) as connection:
            connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
    app = Absurd(meeting.DSN, queue_name="stale")

    @app.register_task(name="hold", default_max_attempts=2)
    def hold(_params: object, _context: object) -> str:
        return meeting.handle_blocking()

    match sys.argv[1]:
        case "install":
            app.create_queue()
            meeting.answer(version=version("absurd-sdk"))
        case "enqueue":
            app.spawn("hold", {})
            meeting.answer()
        case "work":
            signal.signal(signal.SIGTERM, lambda *_: app.stop_worker())
            app.start_worker(worker_id=meeting.WHO, claim_timeout=CLAIM_SECONDS[meeting.WHO])
    app.close()


main()
