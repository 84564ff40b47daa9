"""One worker process from its settings to its exit."""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fencerow.errors import FencerowError
from fencerow.loading import load_app
from fencerow.log import logger
from fencerow.worker.service import EXIT_CONFIGURATION, Service
from fencerow.worker.settings import SUPERVISOR_VARIABLE, WorkerSettings

PR_SET_PDEATHSIG = 1


def follow_supervisor() -> bool:
    """Have the kernel send SIGTERM when the supervisor dies; False when it is dead already."""
    supervisor = os.environ.pop(SUPERVISOR_VARIABLE, None)
    if supervisor is None:
        return True
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    return os.getppid() == int(supervisor)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: the worker's own cost per job is about a third less."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop  # type: ignore[no-any-return, unused-ignore]


def work(settings: WorkerSettings) -> int:
    """
    Run a worker in this process and end the process's part in it; the exit code.

    A handler's thread that never returns must not keep the process: the caller exits by ``os._exit``.
    """
    if not follow_supervisor():
        return 0
    try:
        app = load_app(settings.app_ref)
        if settings.dsn is not None or settings.schema is not None:
            app.move(settings.dsn or app.dsn, schema=settings.schema)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_serve(app, settings))
    except FencerowError as error:
        logger.error("the worker cannot start: %s", error)
        return EXIT_CONFIGURATION


async def _serve(app: Any, settings: WorkerSettings) -> int:
    code = await Service(app, replace(settings)).run()
    if any(thread for thread in _threads() if thread.is_alive()):
        logging.shutdown()
        os._exit(code)
    return code


def _threads() -> list[Any]:
    import threading

    return [thread for thread in threading.enumerate() if thread.name.startswith("fencerow_")]
