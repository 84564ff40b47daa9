"""
What one worker holds after many jobs: memory of worker and renewer, descriptors, threads, asyncio tasks.

Jobs are enqueued while the worker runs, a bounded number ahead. It is looked at twice, each time idle, with the same
questions: from /proc from outside, and by a job that counts what its own process holds.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg

from bench import measure
from bench.soak import places, processes
from fencerow.ops import jobs
from fencerow.store.session import SyncSession, Target
from fencerow.store.stores import SESSIONS_MAX as SESSIONS_EACH
from fencerow.types import NewJob

AHEAD = 20_000
CHUNK = 2_000
GROWTH_KIB = 5 * 1024
MIX = ("noop", "noop", "noop", "small", "small_thread")
PAYLOADS = {
    "noop": json.dumps({"filler": "x" * 130}),
    "small": json.dumps({"words": ["one", "two", "three"]}),
    "small_thread": json.dumps({"words": ["four", "five"]}),
}
CENSUSES = 3
JOB_SECONDS_MAX = 0.02
SESSIONS_MAX = 8 + 2 * SESSIONS_EACH + 1
"""The worker's own store, those of async and sync handlers, and the listener."""
SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() "
    "AND application_name LIKE 'fencerow%' AND application_name NOT LIKE '% renew'"
)


@dataclass(frozen=True, slots=True)
class Look:
    """
    PSS in KiB; tasks, threads and objects as counted inside the worker.

    Attributes:
        descriptors: by what they point at; sockets without those of database sessions.
        sessions: of the worker; opened when several operations meet, at most as many as its stores may have.
    """

    jobs: int
    worker_kib: int
    renewer_kib: int
    descriptors: dict[str, int]
    sessions: int
    os_threads: int
    tasks: int
    threads: int
    objects: int

    @property
    def kib(self) -> int:
        """Worker and renewer."""
        return self.worker_kib + self.renewer_kib


class _Run:
    def __init__(self, dsn: str, mark: str) -> None:
        self.session = SyncSession(Target(dsn, name="producer"))
        self.connection = psycopg.connect(dsn, autocommit=True)
        self.mark = mark
        self.sent = 0

    def close(self) -> None:
        """Close both connections."""
        self.session.close()
        self.connection.close()

    def _value(self, statement: str, *parameters: object) -> Any:
        row = self.connection.execute(statement.encode(), parameters or None).fetchone()
        return None if row is None else row[0]

    def _enqueue(self, count: int) -> None:
        new = [
            NewJob(MIX[n % len(MIX)], PAYLOADS[MIX[n % len(MIX)]], queue="bench", priority=100)
            for n in range(self.sent, self.sent + count)
        ]
        self.session.run(jobs.enqueue(new))
        self.sent += count

    def fill(self, until: int) -> None:
        """Enqueue up to the *until*-th job, never more than AHEAD before the worker, and wait for the last one."""
        deadline = time.monotonic() + 60 + (until - self.sent) * JOB_SECONDS_MAX
        while self.sent < until:
            if self._live() < AHEAD:
                self._enqueue(min(CHUNK, until - self.sent))
            else:
                time.sleep(0.05)
            if time.monotonic() > deadline:
                raise TimeoutError("the worker is too slow")
        measure.until(
            lambda: self._live() == 0, max(60.0, deadline - time.monotonic()), "the jobs did not end"
        )

    def _live(self) -> int:
        counted = self._value(
            "SELECT (SELECT count(*) FROM fencerow.ready) + (SELECT count(*) FROM fencerow.running)"
        )
        return int(counted)

    def census(self) -> dict[str, int]:
        """The last of a few answers of the worker about itself: the first ones warm up what counting needs."""
        result: dict[str, int] = {}
        for _ in range(CENSUSES):
            number = self.session.run(jobs.enqueue([NewJob("census", "{}", queue="bench", priority=100)]))[
                0
            ].id
            ended = "SELECT result FROM fencerow.ended WHERE job_id = %s"
            measure.until(
                lambda ended=ended, number=number: self._value(ended, number) is not None, 30, "no census"
            )
            result = self._value(ended, number)
        return result

    def look(self) -> Look:
        """Look at the idle worker."""
        told = self.census()
        pids = {found.role: found.pid for found in processes.marked(self.mark)}
        worker, renewer = pids["worker"], pids["renewer"]
        names = processes.descriptors(worker)
        sessions = int(self._value(SESSIONS))
        counted = {name: names.count(name) for name in dict.fromkeys(names)}
        counted["socket"] -= sessions
        return Look(
            self.sent,
            processes.pss_kib(worker),
            processes.pss_kib(renewer),
            counted,
            sessions,
            processes.threads(worker),
            told["tasks"],
            told["threads"],
            told["objects"],
        )


def run(count: int, first: int) -> dict[str, Any]:
    """Both looks, and what differs."""
    mark = secrets.token_hex(8)
    with measure.server() as cluster, tempfile.TemporaryDirectory(prefix="fencerow-soak-") as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        dsn = measure.fresh(cluster)
        arguments = ["--queues", "bench", "--quiet", "--log-level", "warning"]
        env = processes.environment(mark, dsn, folder)
        fleet = processes.Fleet(1, arguments, env=env, folder=folder, app=places.APP)
        try:
            during = _Run(dsn, mark)
            began = time.monotonic()
            during.fill(first)
            looks = [during.look()]
            for step in islice(_steps(first, count), 1, None):
                during.fill(step)
                print(f"{step} jobs, {step / (time.monotonic() - began):.0f} a second", flush=True)
            looks.append(during.look())
            row = during.connection.execute(
                "SELECT count(*) FILTER (WHERE outcome = 'done' AND generation = 1), count(*) FROM fencerow.ended"
            ).fetchone()
            during.close()
        finally:
            codes = fleet.stop(30)
    return _judge(looks, row, codes + list(fleet.exits), count)


def _steps(first: int, count: int) -> list[int]:
    return sorted({*range(first, count, max(first, 1)), count})


def _judge(
    looks: list[Look], row: tuple[Any, ...] | None, codes: list[int | None], count: int
) -> dict[str, Any]:
    before, after = looks
    wrong = []
    if after.kib - before.kib > GROWTH_KIB:
        wrong.append(f"worker and renewer grew by {after.kib - before.kib} KiB")
    wrong += [
        f"{what}: {getattr(before, what)}, later {getattr(after, what)}"
        for what in ("descriptors", "os_threads", "tasks", "threads")
        if getattr(before, what) != getattr(after, what)
    ]
    if after.sessions > SESSIONS_MAX:
        wrong.append(f"{after.sessions} database sessions, at most {SESSIONS_MAX}")
    total = count + 2 * CENSUSES
    if row != (total, total):
        wrong.append(f"done once and ended: {row}, not {total}")
    if codes != [0]:
        wrong.append(f"the worker ended with {codes}")
    return {
        "what": "memory",
        "looks": [{**asdict(look), "kib": look.kib} for look in looks],
        "growth_kib": after.kib - before.kib,
        "wrong": wrong,
    }


def main(count: int, first: int, evidence: Path | None) -> int:
    """Run, print, write the evidence; 1 when it grew."""
    found = run(count, first)
    for look in found["looks"]:
        print(
            f"after {look['jobs']:9,} jobs: {look['kib'] / 1024:7.1f} MiB PSS (worker {look['worker_kib'] / 1024:.1f}, "
            f"renewer {look['renewer_kib'] / 1024:.1f}), {sum(look['descriptors'].values())} descriptors "
            f"and {look['sessions']} sessions, "
            f"{look['os_threads']} threads, {look['tasks']} tasks, {look['objects']:,} objects"
        )
    print(f"growth {found['growth_kib']} KiB, allowed {GROWTH_KIB}")
    for fault in found["wrong"]:
        print(f"WRONG {fault}")
    if evidence is not None:
        evidence.write_text(json.dumps(found, indent=1) + "\n")
    return int(bool(found["wrong"]))
