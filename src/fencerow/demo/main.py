"""
The demo from beginning to end: a throwaway server, real worker processes, real files, one frozen worker.

Its last line is ``demo: <n> files, <n> done, 0 lost, 0 different, <k> stale writes refused``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fencerow.demo import freeze
from fencerow.demo.files import Listing, listing
from fencerow.demo.progress import Bar
from fencerow.errors import FencerowError
from fencerow.ops import inspect, jobs
from fencerow.server import Cluster
from fencerow.store.migrate import migrate_dsn
from fencerow.store.session import Target
from fencerow.store.stores import SyncStore
from fencerow.types import NewJob

PROCESSES = 3
LEASE_SECONDS = 2
BATCHES = 25
START_SECONDS = 30.0
DRAIN_SECONDS = 300.0
LOOK_SECONDS = 0.05
QUEUE = "files"


def run(path: Path | None = None, *, processes: int = PROCESSES) -> int:
    """Run the demo; 0 when every file was hashed, rightly, once, and a stale write was refused."""
    try:
        return _Demo(path or Path(sysconfig.get_paths()["stdlib"]), processes).run()
    except (FencerowError, TimeoutError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


class _Demo:
    def __init__(self, folder: Path, processes: int) -> None:
        self.files = listing(folder.resolve())
        self.processes = processes
        self.ids: list[int] = []
        self.refused = 0

    def run(self) -> int:
        files = self.files
        print(f"{len(files.names)} files below {files.folder} (left out: {files.left_out})")
        if not files.names:
            raise FencerowError("there is nothing to hash", hint="Name a folder with files by --path.")
        with _server() as dsn, SyncStoreOf(dsn) as store:
            with _workers(dsn, files.folder, self.processes) as supervisor:
                self._await_workers(store, supervisor)
                self._work(store)
            return self._report(store)

    def _await_workers(self, store: SyncStore, supervisor: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while len(store.run(inspect.live_workers())) < self.processes:
            if supervisor.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError("the workers did not start")
            time.sleep(LOOK_SECONDS)
        print(f"{self.processes} worker processes, lease {LEASE_SECONDS} s; one job per file")

    def _work(self, store: SyncStore) -> None:
        names = self.files.names
        size = max(1, -(-len(names) // BATCHES))
        frozen: freeze.Frozen | None = None
        with Bar(len(names)) as bar:
            for start in range(0, len(names), size):
                self._enqueue(store, names[start : start + size])
                if frozen is None:
                    frozen = self._try_to_freeze(store, bar)
                bar.show(len(self.ids) - _live(store))
            if frozen is None:
                raise TimeoutError("no worker was caught holding a job; give it a folder with more files")
            self._thaw(store, frozen, bar)
            self._finish(store, bar)

    def _enqueue(self, store: SyncStore, names: Sequence[str]) -> None:
        new = [NewJob("fencerow.demo.tasks.hash_file", _payload(name), queue=QUEUE) for name in names]
        self.ids += [entry.id for entry in store.run(jobs.enqueue(new))]

    def _try_to_freeze(self, store: SyncStore, bar: Bar) -> freeze.Frozen | None:
        while _live(store):
            for worker in store.run(inspect.live_workers()):
                frozen = freeze.freeze(store, worker.name, worker.pid)
                if frozen is not None:
                    held = ", ".join(
                        f"{job}|{generation}" for job, generation in list(frozen.held.items())[:5]
                    )
                    bar.say(f"froze {worker.name} (SIGSTOP) while it holds {len(frozen.held)} jobs: {held} …")
                    return frozen
        return None

    def _thaw(self, store: SyncStore, frozen: freeze.Frozen, bar: Bar) -> None:
        try:
            job, generation, state = freeze.await_takeover(store, frozen)
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        bar.say(
            f"its lease ended; job {job} is {state} under generation {generation} elsewhere: thawed it (SIGCONT)"
        )
        row = freeze.await_refusal(store, frozen, job)
        bar.say(
            f"refused: worker {row.worker} job {row.job_id} generation {row.generation} {row.op} -> {row.verdict}"
            f" (now generation {row.current_generation})"
        )

    def _finish(self, store: SyncStore, bar: Bar) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        while live := _live(store):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{live} jobs have not ended")
            bar.show(len(self.ids) - live)
            time.sleep(LOOK_SECONDS)
        bar.show(len(self.ids))

    def _report(self, store: SyncStore) -> int:
        ended = {row.job_id: row for row in store.run(inspect.results(self.ids))}
        done = {job: row for job, row in ended.items() if row.outcome == "done"}
        different = 0
        for job, name in zip(self.ids, self.files.names, strict=True):
            if job in done and done[job].result != _digest(self.files, name):
                different += 1
                print(f"different: {name}")
        refused = len(store.run(inspect.recent_refusals(limit=100_000)))
        lost = len(self.ids) - len(done)
        print(
            f"demo: {len(self.ids)} files, {len(done)} done, {lost} lost, {different} different, "
            f"{refused} stale writes refused"
        )
        return 0 if lost == different == 0 and refused >= 1 else 1


def _payload(name: str) -> str:
    from fencerow import codec, limits

    return codec.encode({"name": name}, limit=limits.PAYLOAD_BYTES_MAX)


def _digest(files: Listing, name: str) -> str:
    import hashlib

    with files.path(name).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _live(store: SyncStore) -> int:
    return sum(row.ready + row.scheduled + row.running for row in store.run(inspect.queue_counts()))


@contextmanager
def _server() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="fencerow-demo-"))
    cluster = Cluster(folder / "data")
    try:
        cluster.init()
        cluster.start()
        dsn = cluster.dsn("fencerow")
        migrate_dsn(dsn)
        yield dsn
    finally:
        cluster.stop()
        cluster.remove()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _workers(dsn: str, folder: Path, processes: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "fencerow", "worker", "fencerow.demo.tasks:app", "--queues", QUEUE]
    command += ["--processes", str(processes), "--lease", str(LEASE_SECONDS), "--concurrency", "4", "--quiet"]
    environment = {**os.environ, "FENCEROW_DSN": dsn, "FENCEROW_DEMO_FOLDER": str(folder)}
    with tempfile.TemporaryFile() as log:
        supervisor = subprocess.Popen([*command, "--log-level", "warning"], env=environment, stderr=log)
        try:
            yield supervisor
        except BaseException:
            log.seek(0)
            sys.stderr.buffer.write(b"".join(log.readlines()[-20:]))
            raise
        finally:
            supervisor.terminate()
            try:
                supervisor.wait(30)
            except subprocess.TimeoutExpired:
                supervisor.kill()
                supervisor.wait()


class SyncStoreOf:
    """A store that closes at the end of a with block."""

    def __init__(self, dsn: str) -> None:
        self._store = SyncStore(Target(dsn, name="fencerow demo"))

    def __enter__(self) -> SyncStore:
        return self._store

    def __exit__(self, *_: object) -> None:
        self._store.close()
