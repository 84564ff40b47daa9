"""Real processes for the tests of the embedded server, and waiting for what they do."""

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg.sql import SQL, Identifier

SOURCES = Path(__file__).parents[2] / "src"
PAUSE = threading.Event()

# Uses the server until its standard input ends.
USER = """
import json, os, sys
from fencerow.server import embedded
used = embedded()
print(json.dumps({"dsn": used.dsn, "created": used.created}), flush=True)
sys.stdin.read()
"""

# Owns a cluster of its own until its standard input ends.
OWNER = """
import json, sys
from fencerow.server import Cluster
cluster = Cluster(sys.argv[1])
cluster.start()
print(json.dumps({"dsn": cluster.dsn(), "pid": cluster.pid, "data": str(cluster.data)}), flush=True)
sys.stdin.read()
cluster.stop()
"""


def until(true: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    """Return when `true()` is; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not seen in {seconds} s: {what}"
        PAUSE.wait(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def keep(dsn: str) -> str:
    """Commit a table of a new name; returns the name."""
    table = f"kept_{secrets.token_hex(4)}"
    with psycopg.connect(dsn) as connection:
        connection.execute(SQL("CREATE TABLE {} AS SELECT 42 AS value").format(Identifier(table)))
    return table


def kept(dsn: str, table: str) -> bool:
    """Whether what keep() committed is there."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(SQL("SELECT value FROM {}").format(Identifier(table))).fetchall() == [(42,)]


class Program:
    """A Python program that says one JSON line when it is ready; killed at the end of the block if it still runs."""

    def __init__(self, source: str, *arguments: str, command: list[str] | None = None, **extra: str) -> None:
        self.process = subprocess.Popen(
            [*(command or [sys.executable]), "-c", source, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **extra},
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    def answer(self) -> Any:
        """The next line it says, read as JSON."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate(timeout=20)
            raise AssertionError(errors)
        return json.loads(line)

    def end(self) -> None:
        """Let it end by itself."""
        self.process.communicate(timeout=20)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
