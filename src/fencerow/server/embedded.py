"""The server behind `App("embedded")`: shared by every process of an account, there while anybody uses it.

A user is a process that holds `use.lock` shared. The kernel drops the lock with its last descriptor, so no
death is missed. Forks share the descriptor: a fork that ends takes nothing away, and one that lives on after
its parent still counts as a user. Programs started by exec do not get it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fencerow.errors import ServerError

from . import locks, wire
from .binaries import Binaries, find_binaries
from .cluster import ROLE
from .folders import SOCKET_NAME, home_of, make_private
from .keeper import GRACE_SECONDS, START_SECONDS, Places
from .spawn import environment

if TYPE_CHECKING:
    from collections.abc import Callable

_POLL_SECONDS = 0.02
_STARTS = 3  # keepers that one call starts, should they be killed before they answer
_LOG_BYTES = 1 << 20
_KEEPER = (
    "import os, sys; sys.path.extend(sys.argv[1].split(os.pathsep)); "
    "from fencerow.server.keeper import main; sys.exit(main(sys.argv[2:]))"
)


class Embedded:
    """One process's use of an embedded server, from embedded() to close() or the end of the process."""

    __slots__ = ("_use", "created", "dsn", "folder", "name")

    def __init__(self, name: str, folder: Path, dsn: str, use: int, *, created: bool) -> None:
        self.name = name
        self.folder = folder
        self.dsn = dsn
        self.created = created
        """True if this call created the data folder: there is no schema in it unless `prepare` made one."""
        self._use = use

    def fileno(self) -> int:
        """The descriptor whose life is this use."""
        return self._use

    def close(self) -> None:
        """Stop using the server. Forks that got a copy of the descriptor go on."""
        if self._use >= 0:
            os.close(self._use)
            self._use = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of an embedded server from outside. `used`: a process uses it; `standing`:

    it stays without.
    """

    name: str
    folder: Path
    exists: bool
    running: bool
    standing: bool
    used: bool
    dsn: str | None = None
    server_pid: int | None = None
    keeper_pid: int | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class _Record:
    dsn: str
    socket: Path
    server_pid: int
    version: str
    bin: Path

    def answers(self) -> bool:
        return wire.probe(self.socket / SOCKET_NAME, user=ROLE, database=ROLE) == wire.READY


def embedded(
    name: str = "default", *, prepare: Callable[[str], object] | None = None, timeout: float = START_SECONDS
) -> Embedded:
    """Use the embedded server `name`: start it, or join the one that runs. `timeout` in seconds.

    `prepare(dsn)` runs once in the life of the data folder, in the first caller that brings one; others wait
    for it.
    """
    deadline = time.monotonic() + timeout
    folder = home_of(name)
    make_private(folder)
    places = Places(folder)
    use = locks.open_lock(places.use)
    try:
        # Held alone, it says that the last server is being stopped; wait for that, then start the next.
        _take(use, locks.SHARED, deadline, f"The embedded server {name!r} does not finish stopping", places)
        record = _live(places)
        created = False
        unprepared = prepare is not None and not places.prepared.exists()
        if record is None or unprepared:
            record, created = _start(places, prepare, deadline)
    except BaseException:
        locks.release(use)
        raise
    return Embedded(name, folder, record.dsn, use, created=created)


def start(name: str = "default", *, prepare: Callable[[str], object] | None = None) -> Status:
    """Start the server, or join it, and leave it standing until stop()."""
    with embedded(name, prepare=prepare) as server:
        Places(server.folder).standing.touch()
    return status(name)


def stop(name: str = "default", *, now: bool = False, timeout: float = 90.0) -> bool:
    """Stop a standing server. True: it is stopped, data kept. False: others use it, it stops when they are
    gone.

    With `now` it stops under them: their connections break, committed work stays. `timeout` in seconds.
    """
    places = Places(home_of(name))
    places.standing.unlink(missing_ok=True)
    if not locks.is_held(places.keeper):
        return True
    use = locks.open_lock(places.use)
    try:
        # Alone: no user, and none can come while it stops. Not even shared: somebody else is stopping it
        # already.
        others = not locks.try_lock(use, locks.ALONE) and locks.try_lock(use, locks.SHARED)
        if others and not now:
            _signal(places, signal.SIGHUP)
            return False
        _signal(places, signal.SIGTERM)
        deadline = time.monotonic() + timeout
        while locks.is_held(places.keeper):
            if time.monotonic() > deadline:
                raise ServerError(
                    f"The embedded server {name!r} does not stop in time.", hint=f"Read {places.keeper_log}."
                )
            time.sleep(_POLL_SECONDS)
        return True
    finally:
        locks.release(use)


def status(name: str = "default") -> Status:
    """Look without touching: nothing is created or started."""
    places = Places(home_of(name))
    record = _live(places)
    return Status(
        name=name,
        folder=places.folder,
        exists=places.folder.is_dir(),
        running=record is not None,
        standing=places.standing.exists(),
        used=_is_used(places),
        dsn=record.dsn if record else None,
        server_pid=record.server_pid if record else None,
        keeper_pid=_keeper_pid(places),
        version=record.version if record else None,
    )


def url(name: str = "default") -> str:
    """DSN of a running server; ServerError if it does not run."""
    dsn = status(name).dsn
    if dsn is None:
        raise ServerError(
            f"The embedded server {name!r} is not running.", hint=f"Start it: fencerow db start --name {name}"
        )
    return dsn


def bin_psql(name: str = "default") -> Path:
    """The psql that belongs to the running server, else the one that would start it."""
    record = _read(Places(home_of(name)))
    if record is None:
        return find_binaries().tool("psql")
    return Binaries(record.bin, (int(record.version.split(".")[0]), 0)).tool("psql")


def _read(places: Places) -> _Record | None:
    try:
        row = json.loads(places.record.read_text())
        return _Record(row["dsn"], Path(row["socket"]), row["server_pid"], row["version"], Path(row["bin"]))
    except (OSError, ValueError, KeyError):
        return None


def _live(places: Places) -> _Record | None:
    """The record of a server that answers and is kept: one whose keeper died answers too, on its way down."""
    record = _read(places)
    return record if record is not None and locks.is_held(places.keeper) and record.answers() else None


def _take(descriptor: int, kind: int, deadline: float, failure: str, places: Places) -> None:
    if not locks.lock_by(descriptor, kind, deadline):
        raise ServerError(f"{failure}.", hint=f"Read {places.keeper_log}.")


def _start(places: Places, prepare: Callable[[str], object] | None, deadline: float) -> tuple[_Record, bool]:
    """Take the turn of starters: join what an earlier one started, or start it; prepare what nobody has."""
    turn = locks.open_lock(places.turn)
    try:
        _take(turn, locks.ALONE, deadline, f"Another start in {places.folder} takes too long", places)
        created, starts = False, 0
        while (record := _live(places)) is None:
            if time.monotonic() > deadline:
                raise ServerError(
                    f"The server in {places.folder} does not answer.", hint="Read its server.log."
                )
            if locks.is_held(places.keeper):  # it recovers, or it is on its way out
                time.sleep(_POLL_SECONDS)
            elif starts == _STARTS:
                raise ServerError("The server's keeper ends at once.", hint=f"Read {places.keeper_log}.")
            else:
                starts += 1
                created = _start_keeper(places, deadline) or created
        if prepare is not None and not places.prepared.exists():
            prepare(record.dsn)
            places.prepared.touch()
        return record, created
    finally:
        locks.release(turn)


def _start_keeper(places: Places, deadline: float) -> bool:
    """Start a keeper and wait until its server is up. Returns whether the data folder is new."""
    bin_folder = find_binaries().folder
    # -I -S starts quickly and reads no surprise from the environment; then it finds what we find, where we do.
    modules = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    reading, writing = os.pipe()
    try:
        command = [sys.executable, "-I", "-S", "-c", _KEEPER, modules]
        command += [str(places.folder), str(bin_folder), str(writing), str(GRACE_SECONDS)]
        scratch = {key: os.environ[key] for key in ("XDG_RUNTIME_DIR",) if key in os.environ}
        log_file = places.keeper_log
        long = log_file.exists() and log_file.stat().st_size > _LOG_BYTES
        with log_file.open("wb" if long else "ab") as log:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment(), **scratch},
                cwd="/",
                pass_fds=(writing,),
                start_new_session=True,
                check=False,
            )
    finally:
        os.close(writing)
    try:
        outcome = _await_outcome(reading, deadline)
    finally:
        os.close(reading)
    if outcome is None:  # it was killed, or took too long: the caller looks again
        return False
    if "error" in outcome:
        raise ServerError(str(outcome["error"]), hint=str(outcome.get("hint", "")))
    return bool(outcome["created"])


def _await_outcome(reading: int, deadline: float) -> dict[str, object] | None:
    text = b""
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(reading, 65536)
        if not chunk:
            break
        text += chunk
    try:
        outcome = json.loads(text)
    except ValueError:
        return None
    return outcome if isinstance(outcome, dict) else None


def _is_used(places: Places) -> bool:
    try:
        use = os.open(places.use, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not locks.try_lock(use, locks.ALONE)
    finally:
        locks.release(use)


def _keeper_pid(places: Places) -> int | None:
    """The pid in the lock file, which names a living keeper only while the lock is held."""
    if not locks.is_held(places.keeper):
        return None
    try:
        return int(places.keeper.read_text())
    except (OSError, ValueError):
        return None


def _signal(places: Places, number: signal.Signals) -> None:
    pid = _keeper_pid(places)
    if pid is not None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
