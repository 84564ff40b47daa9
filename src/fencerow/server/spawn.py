"""Start PostgreSQL programs as children that do not outlive us.

The kernel's parent-death signal fires when the *thread* that forked ends, so every start runs on the main
thread or on one thread that lives as long as the process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from fencerow.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAUNCHER = Path(__file__).with_name("launcher.py")
# LD_ and FAKETIME reach the server on purpose: libraries of a relocated installation, and clock faults of
# tests.
_KEPT = ("PATH", "HOME", "TMPDIR")
_KEPT_PREFIXES = ("LD_", "DYLD_", "FAKETIME")

_Request = tuple[Future["subprocess.Popen[bytes]"], "list[str]", "int"]
_requests: SimpleQueue[_Request] | None = None
_requests_of: int = 0
_starting = threading.Lock()


def environment() -> dict[str, str]:
    """What a PostgreSQL program inherits:

    no PG* setting, no locale that may not exist, no secret of the caller.
    """
    kept = {key: value for key, value in os.environ.items() if key in _KEPT or key.startswith(_KEPT_PREFIXES)}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def launch(identity: str, argv: Sequence[str | os.PathLike[str]], *, output: int) -> subprocess.Popen[bytes]:
    """Start a program under an identity (Account.spec); stdout and stderr go to the descriptor `output`.

    Any thread may call this.
    """
    if not sys.executable:
        raise ServerError(
            "This program does not know its Python executable.", hint="Set sys.executable, or give a DSN."
        )
    command = [sys.executable, "-I", "-S", str(_LAUNCHER), identity, str(os.getpid())]
    command += [os.fspath(word) for word in argv]
    if threading.current_thread() is threading.main_thread():
        return _start(command, output)
    answer: Future[subprocess.Popen[bytes]] = Future()
    _lasting_thread().put((answer, command, output))
    return answer.result()


def run(identity: str, argv: Sequence[str | os.PathLike[str]], *, output: int = subprocess.DEVNULL) -> int:
    """Start a program, wait for it, return its exit code."""
    return launch(identity, argv, output=output).wait()


def _start(command: list[str], output: int) -> subprocess.Popen[bytes]:
    # A session of its own keeps the terminal's Ctrl-C away from the server.
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment(),
        cwd="/",
        start_new_session=True,
    )


def _lasting_thread() -> SimpleQueue[_Request]:
    global _requests, _requests_of
    with _starting:
        if _requests is None or _requests_of != os.getpid():  # a fork has the queue, but not the thread
            _requests, _requests_of = SimpleQueue(), os.getpid()
            threading.Thread(target=_serve, args=(_requests,), name="fencerow-spawn", daemon=True).start()
        return _requests


def _serve(requests: SimpleQueue[_Request]) -> None:
    while True:
        answer, command, output = requests.get()
        try:
            answer.set_result(_start(command, output))
        except BaseException as error:  # noqa: BLE001 - the caller raises it; this thread must live on
            answer.set_exception(error)
