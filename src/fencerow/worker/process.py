"""One worker process from its settings to its exit."""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fencerow.clock import boottime
from fencerow.errors import FencerowError
from fencerow.loading import load_app
from fencerow.log import logger
from fencerow.worker.run import THREADS
from fencerow.worker.service import EXIT_CONFIGURATION, Service
from fencerow.worker.settings import SUPERVISOR_VARIABLE, WorkerSettings

PR_SET_PDEATHSIG = 1
THREADS_END_SECONDS = 0.5


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

    A handler's thread that never returns does not keep the process: then it ends by ``os._exit``.
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
    pool = ThreadPoolExecutor(thread_name_prefix=f"{THREADS}-asyncio")
    asyncio.get_running_loop().set_default_executor(pool)
    code = await Service(app, settings).run()
    pool.shutdown(wait=False, cancel_futures=True)
    deadline = boottime() + THREADS_END_SECONDS
    for thread in threading.enumerate():
        if thread.name.startswith(THREADS):
            thread.join(max(0.0, deadline - boottime()))
            if thread.is_alive():  # inside a handler, and the interpreter would wait for it
                logging.shutdown()
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()
                os._exit(code)
    return code
