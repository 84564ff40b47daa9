"""The worker: claim, run, keep, settle. ``main`` is what the command line calls."""

from __future__ import annotations

from fencerow.worker.settings import WorkerSettings

__all__ = ["WorkerSettings", "main"]


def main(settings: WorkerSettings) -> int:
    """
    Work in this process, or keep ``settings.processes`` worker processes running; the exit code.

    0: told to stop, or a burst found nothing more. 3: database or configuration. 5: too many deaths.
    """
    from fencerow import log

    log.configure(settings.log_level, as_json=settings.json_logs)
    if settings.processes > 1:
        from fencerow.worker.supervisor import Supervisor

        return Supervisor(settings).run()
    from fencerow.worker.process import work

    return work(settings)
