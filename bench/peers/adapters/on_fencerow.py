"""Fencerow, by its own interface: App, migrate, and the worker as a user starts it."""

from __future__ import annotations

import os
import sys

import meeting

from fencerow import App, __version__

app = App(meeting.DSN)


@app.task(name="stale.hold", max_attempts=2)
def hold() -> str:
    """Wait for the word to go on. In a thread, which no loss of a lease can interrupt."""
    return meeting.handle_blocking()


def main() -> None:
    """One command."""
    match sys.argv[1]:
        case "install":
            from fencerow.store.migrate import migrate_dsn

            migrate_dsn(meeting.DSN)
            meeting.answer(version=__version__)
        case "enqueue":
            hold.enqueue()
            app.close()
            meeting.answer()
        case "work":
            os.environ["PYTHONPATH"] += os.pathsep + os.path.dirname(__file__)
            words = ["worker", "on_fencerow:app", "--lease", "2s", "--name", meeting.WHO]
            os.execv(sys.executable, [sys.executable, "-m", "fencerow", *words])


if __name__ == "__main__":
    main()
