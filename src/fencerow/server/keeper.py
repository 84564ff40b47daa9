"""The process that owns one shared embedded server; started by the first user, it outlives that user.

It keeps the server while anybody holds `use.lock` shared (and a grace longer), or while the file `standing`
is there. Killed, it takes the server down cleanly through the kernel's parent-death signal. Only the standard
library is loaded.

Signals: TERM and INT stop the server now; HUP has the file `standing` looked at again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fencerow.errors import ServerError

from . import locks, postmaster
from .binaries import find_binaries
from .cluster import ROLE, Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

GRACE_SECONDS = 2.0
"""How long the server stays after its last user: programs run one after the other share one start."""

START_SECONDS = 120.0
"""The longest wait for a server that may have to recover first."""

_YIELD_SECONDS = 0.5  # those who only look at the lock hold it for less
_REVIVALS = 5  # within _REVIVAL_SECONDS; a server that dies more often is left down
_REVIVAL_SECONDS = 60.0
_STOPS = (signal.SIGTERM, signal.SIGINT)
_NO_USER, _GRACE_OVER = signal.SIGUSR1, signal.SIGUSR2  # from our own threads
_WATCHED = (*_STOPS, signal.SIGCHLD, signal.SIGHUP, _NO_USER, _GRACE_OVER)


@dataclass(frozen=True, slots=True)
class Places:
    """Files in the folder of one embedded server."""

    folder: Path

    @property
    def use(self) -> Path:
        """Each user holds it shared; who holds it alone decides that there is no user."""
        return self.folder / "use.lock"

    @property
    def turn(self) -> Path:
        """Held alone by the process that starts a keeper."""
        return self.folder / "turn.lock"

    @property
    def keeper(self) -> Path:
        """Held alone by the living keeper; contains its pid."""
        return self.folder / "keeper.lock"

    @property
    def standing(self) -> Path:
        """Present: the server stays without users."""
        return self.folder / "standing"

    @property
    def record(self) -> Path:
        """JSON of the running server: dsn, server_pid, version, socket."""
        return self.folder / "server.json"

    @property
    def prepared(self) -> Path:
        """Present: the first user's preparation (its schema) is done."""
        return self.folder / "prepared"

    @property
    def keeper_log(self) -> Path:
        """What the keeper says."""
        return self.folder / "keeper.log"


class Keeper:
    """One server and the reasons to keep it."""

    def __init__(self, places: Places, cluster: Cluster, grace: float) -> None:
        self.places = places
        self.cluster = cluster
        self.grace = grace
        self.use = locks.open_lock(places.use)
        self.waiting = False
        self.revivals: deque[float] = deque(maxlen=_REVIVALS)

    def start(self) -> bool:
        """Bring the server up and publish it. Returns whether its data folder is new."""
        created = self.cluster.init()
        postmaster.stop_orphan(self.cluster.data, time.monotonic() + START_SECONDS)
        self.cluster.start(START_SECONDS)
        self.publish()
        return created

    def publish(self) -> None:
        """Write the record in one step: a reader sees the old one or the new one."""
        major, minor = self.cluster.binaries.version
        record = {
            "dsn": self.cluster.dsn(ROLE),
            "socket": str(self.cluster.sockets),
            "server_pid": self.cluster.pid,
            "version": f"{major}.{minor}",
            "bin": str(self.cluster.binaries.folder),
        }
        fresh = self.places.record.with_suffix(".new")
        fresh.write_text(json.dumps(record))
        fresh.replace(self.places.record)

    def watch(self) -> None:
        """Return when the server should stop."""
        self.await_no_user()
        while True:
            number = signal.sigwait(_WATCHED)
            if number in _STOPS:
                say(f"stopping on signal {number}")
                return
            if number == signal.SIGCHLD and not self.cluster.running():
                self.revive()
            elif number == signal.SIGHUP and not self.places.standing.exists():
                self.await_no_user()
            elif number == _NO_USER:
                locks.unlock(self.use)  # a new user need not wait out the grace
                grace = threading.Timer(self.grace, os.kill, (os.getpid(), _GRACE_OVER))
                grace.daemon = True
                grace.start()
            elif number == _GRACE_OVER and self.unused():
                return

    def await_no_user(self) -> None:
        """Have the kernel wake us when the last user is gone, unless it will already."""
        if not self.waiting:
            self.waiting = True
            threading.Thread(target=self._await_no_user, daemon=True).start()

    def _await_no_user(self) -> None:
        locks.lock(self.use, locks.ALONE)
        os.kill(os.getpid(), _NO_USER)

    def unused(self) -> bool:
        """After the grace: True, holding the lock alone, if the server should stop."""
        self.waiting = False
        if not locks.try_lock(self.use, locks.ALONE):
            self.await_no_user()
            return False
        # Who makes the server stand holds the lock shared meanwhile, so this answer cannot change below us.
        if self.places.standing.exists():
            say("no user is left; standing")
            locks.unlock(self.use)
            return False
        say("stopping: no user is left")
        return True

    def revive(self) -> None:
        """Start a server that died under us, which recovers it; ServerError if that happens too often."""
        now = time.monotonic()
        if len(self.revivals) == _REVIVALS and now - self.revivals[0] < _REVIVAL_SECONDS:
            raise ServerError(
                f"The server died {_REVIVALS} times in {_REVIVAL_SECONDS:.0f} s.",
                hint=f"Read {self.cluster.log}.",
            )
        self.revivals.append(now)
        say("the server died; starting it again")
        self.cluster.start(START_SECONDS)
        self.publish()


def say(text: str) -> None:
    """One line in keeper.log."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} [{os.getpid()}] {text}\n")
    sys.stderr.flush()


def keep(folder: Path, bin_folder: str, ready: int, grace: float) -> int:
    """Own the server of `folder` from start to stop.

    The outcome of the start goes to the descriptor `ready` as JSON.
    """
    places = Places(folder)
    life = locks.open_lock(places.keeper)
    # A starter that was killed may have started a keeper too. The first one wins; our starter joins it.
    if not locks.lock_by(life, locks.ALONE, time.monotonic() + _YIELD_SECONDS):
        answer(ready, created=False)
        return 0
    os.ftruncate(life, 0)
    os.pwrite(life, str(os.getpid()).encode(), 0)
    cluster = Cluster(folder, binaries=find_binaries(bin_folder))
    keeper = Keeper(places, cluster, grace)
    try:
        created = keeper.start()
        say(f"server {cluster.pid} is up")
        answer(ready, created=created)
        keeper.watch()
    except ServerError as error:
        say(str(error))
        answer(ready, error=error.args[0], hint=error.hint)
        return 1
    finally:
        cluster.stop("fast")
        places.record.unlink(missing_ok=True)
        say("stopped")
    return 0


def answer(ready: int, **outcome: object) -> None:
    """Tell the starter, once; it may be gone."""
    try:
        os.write(ready, json.dumps(outcome).encode())
        os.close(ready)
    except OSError:
        return


def main(arguments: Sequence[str]) -> int:
    """`FOLDER BIN READY GRACE`: become a process of nobody's, then keep."""
    folder, bin_folder, ready, grace = arguments
    # Signals wait from before the first thread, so that none of them interrupts a half-done step.
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    if os.fork() != 0:
        return 0
    return keep(Path(folder), bin_folder, int(ready), float(grace))
