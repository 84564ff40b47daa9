"""A throwaway server with its figures: CPU of its processes, WAL written; all read from outside."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg

from fencerow.server import Cluster
from fencerow.store.migrate import migrate_dsn

TICKS = os.sysconf("SC_CLK_TCK")
SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "4GB", "fsync": "on", "synchronous_commit": "on"}


@contextmanager
def server(settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """A fresh cluster on the real disk, fsync and synchronous_commit on."""
    folder = Path(tempfile.mkdtemp(prefix="fencerow-bench-"))
    cluster = Cluster(folder / "data", settings={**SETTINGS, **(settings or {})})
    try:
        cluster.init()
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        cluster.remove()
        shutil.rmtree(folder, ignore_errors=True)


def fresh(cluster: Cluster) -> str:
    """Drop and make the database again, migrated; its DSN."""
    with psycopg.connect(cluster.dsn("postgres"), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS fencerow WITH (FORCE)")
        connection.execute("CREATE DATABASE fencerow")
    dsn = cluster.dsn("fencerow")
    migrate_dsn(dsn)
    return dsn


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            children.setdefault(int(stat[1]), []).append(int(entry))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of a process family so far, its ended children included."""
    total = 0
    for member in family(pid):
        try:
            stat = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(int(value) for value in stat[11:15])
    return total / TICKS


def wal_position(connection: psycopg.Connection[tuple[object, ...]]) -> int:
    """WAL bytes written so far."""
    row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')").fetchone()
    return int(row[0]) if row else 0  # type: ignore[call-overload, no-any-return]


@contextmanager
def worker(dsn: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of bench.tasks, as a user would start it."""
    command = [sys.executable, "-m", "fencerow", "worker", "bench.tasks:app", "--queues", "bench", "--quiet"]
    process = subprocess.Popen(
        [*command, "--log-level", "warning", *arguments], env={**os.environ, "FENCEROW_DSN": dsn}
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def until(check: object, seconds: float, what: str) -> None:
    """Poll a condition; TimeoutError after *seconds*."""
    deadline = time.monotonic() + seconds
    while not check():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.01)
