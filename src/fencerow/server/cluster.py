"""One PostgreSQL server over a folder, run in the foreground as our own child.

The folder holds `data`, `server.log` and, where its path is short, `run` with the socket. There is no TCP
port: who can enter the socket folder (0700) is trusted, nobody else can connect. The server ends, cleanly,
with its starter (Linux).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, Self
from urllib.parse import quote

from fencerow.errors import ServerError

from . import locks, postmaster, wire
from .account import Account, choose_account, reachable, shelter
from .binaries import Binaries, find_binaries
from .folders import SOCKET_NAME, leave_sockets, make_private, socket_folder
from .spawn import launch, run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

StopMode = Literal["smart", "fast", "immediate"]

ROLE = "fencerow"
"""Superuser and owner of the database of the same name."""

DEFAULTS: Mapping[str, str] = {
    "listen_addresses": "",
    "port": "5432",  # part of the socket's name only
    "unix_socket_permissions": "0700",
    "shared_buffers": "64MB",
    "jit": "off",
    "log_lock_waits": "on",
    "track_io_timing": "on",
    "log_line_prefix": "%m [%p] %a ",
    # Statements may carry payloads, and a log is read by more eyes than a table.
    "log_min_error_statement": "panic",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
_SETTING_NAME = re.compile(r"[a-z_][a-z0-9_.]*")
_LOG_BYTES = 8 << 20  # a longer log is put aside at the next start
_POLL_SECONDS = 0.01
_RETRY_SECONDS = 10.0
# The kernel may show a killed server's pid or shared memory for a moment after its death.
_PASSING = (
    b'lock file "postmaster.pid" already exists',
    b"pre-existing shared memory block",
    b"still in use",
)


@dataclass(frozen=True, slots=True)
class _Site:
    account: Account
    binaries: Binaries
    data: Path


class Cluster:
    """A private server. Not for use by several threads at once; a fork of its owner cannot stop it."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        binaries: Binaries | None = None,
        settings: Mapping[str, str] | None = None,
        account: Account | None = None,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.settings: dict[str, str] = {**DEFAULTS, **(settings or {})}
        self._wanted_binaries = binaries
        self._wanted_account = account
        self._site: _Site | None = None
        self._sockets: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    @property
    def binaries(self) -> Binaries:
        """The installation in use (found at the first need)."""
        return self._place().binaries

    @property
    def data(self) -> Path:
        """PGDATA."""
        return self._place().data

    @property
    def log(self) -> Path:
        """What the server writes to stderr; the last 8 MiB or more."""
        return self.folder / "server.log"

    @property
    def pid(self) -> int | None:
        """The postmaster's pid while it runs."""
        return self._process.pid if self._process is not None and self.running() else None

    @property
    def sockets(self) -> Path:
        """Folder of the socket; ServerError before the first start."""
        if self._sockets is None:
            raise ServerError(
                "This server was not started yet.", hint="Call start() before asking for its address."
            )
        return self._sockets

    def running(self) -> bool:
        """Whether our postmaster lives (a zombie does not). It may still be starting or recovering."""
        return self._process is not None and self._process.poll() is None

    def answers(self, *, database: str = ROLE, timeout: float = 2.0) -> str:
        """SQLSTATE of a connection attempt: "00000" if it worked, "08001" if nobody listens.

        `timeout` in seconds.
        """
        return wire.probe(self.sockets / SOCKET_NAME, user=ROLE, database=database, timeout=timeout)

    def dsn(self, database: str = "postgres", user: str | None = None) -> str:
        """A libpq URI over the socket. The databases `postgres` and `fencerow` exist."""
        name, role = quote(database, safe=""), quote(user or ROLE, safe="")
        return f"postgresql://{role}@/{name}?host={quote(str(self.sockets))}"

    def log_tail(self, n: int = 20) -> str:
        """The last `n` lines of the log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - n * 400))
                return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-n:])
        except OSError:
            return ""

    def init(self) -> bool:
        """Create the data folder. Returns False, having done nothing but a check, if there is one."""
        make_private(self.folder)
        site = self._place()
        if (site.data / "PG_VERSION").exists():
            self._check_version(site)
            return False
        fresh = site.data.with_name(site.data.name + ".new")
        if fresh.exists():  # an earlier initdb was killed half-way
            shutil.rmtree(fresh)
        fresh.mkdir(mode=0o700)
        if site.account.kind == "drop":
            os.chown(fresh, *site.account.owner)
        with self._open_log() as log:
            if run(site.account.spec, _initdb(site.binaries, fresh), output=log.fileno()) != 0:
                raise ServerError(f"initdb failed:\n{self.log_tail()}", hint=f"Read {self.log}.")
        if self.settings.get("fsync") != "off":
            os.sync()  # initdb -N leaves it to us, and one sync is quicker than a thousand
        fresh.rename(site.data)
        return True

    def start(self, timeout: float = 60.0) -> None:
        """Start, and return when connections are accepted. `timeout` in seconds, crash recovery included."""
        if self.running():
            return
        deadline = time.monotonic() + timeout
        make_private(self.folder)
        turn = locks.open_lock(self.folder / "start.lock")
        try:
            if not locks.lock_by(turn, locks.ALONE, deadline):
                raise ServerError(
                    f"Another start of {self.folder} takes too long.", hint="Wait for it, or end it."
                )
            self._start(deadline)
        finally:
            locks.release(turn)

    def stop(self, mode: StopMode = "fast", timeout: float = 60.0) -> None:
        """Shut down and wait.

        After `timeout` seconds the next harsher mode is used; none of them loses commits.
        """
        if os.getpid() != self._owner:
            return  # a fork holds a copy of this object, not the server
        process = self._process
        if process is not None:
            harsher: list[StopMode] = ["smart", "fast", "immediate"]
            for step in harsher[harsher.index(mode) :]:
                if _signal_and_wait(process, _SIGNALS[step], timeout):
                    break
            else:
                self.kill()
            self._process = None
        if self._sockets is not None:
            leave_sockets(self._sockets)

    def restart(self, mode: StopMode = "fast", timeout: float = 60.0) -> None:
        """Stop and start; the address stays the same."""
        self.stop(mode, timeout)
        self.start(timeout)

    def kill(self) -> None:
        """SIGKILL the postmaster: the next start recovers, with all commits."""
        if self._process is not None and os.getpid() == self._owner:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Stop without a checkpoint and delete everything this server ever wrote."""
        self.stop("immediate")
        site = self._place()
        postmaster.wait_until_gone(site.data, time.monotonic() + _RETRY_SECONDS)
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
        for place in (site.data, site.data.with_name(site.data.name + ".new"), self.folder):
            shutil.rmtree(place, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, deadline: float) -> None:
        self.init()
        site = self._place()
        self._sockets = socket_folder(self.folder, site.account)
        postmaster.clear_stale(site.data, self._sockets, deadline)
        self._write_settings(site)
        retry_until = min(deadline, time.monotonic() + _RETRY_SECONDS)
        while not self._start_once(site, deadline):
            if time.monotonic() > retry_until:
                raise ServerError(f"The server does not start:\n{self.log_tail()}", hint=f"Read {self.log}.")
            time.sleep(_POLL_SECONDS)
        if self.answers() == wire.NO_SUCH_DATABASE:
            wire.execute(
                self.sockets / SOCKET_NAME, f"CREATE DATABASE {ROLE}", user=ROLE, database="postgres"
            )

    def _place(self) -> _Site:
        if self._site is None:
            found = self._wanted_binaries or find_binaries()
            account = self._wanted_account or choose_account(found)
            if account.kind == "drop":
                # An account that is not ours cannot be expected to pass through the parents of our folder.
                data = shelter("data") / re.sub(r"[^a-z0-9]", "", self.folder.name.lower())[:20]
                data = data.with_name(f"{data.name}-{_short(self.folder)}")
            else:
                data = self.folder / "data"
            self._site = _Site(account, reachable(found, account), data)
        return self._site

    def _check_version(self, site: _Site) -> None:
        made_by = (site.data / "PG_VERSION").read_text().strip()
        if made_by != str(site.binaries.version[0]):
            raise ServerError(
                f"{site.data} was made by PostgreSQL {made_by}, and {site.binaries.folder} is "
                f"{site.binaries.version[0]}.",
                hint=f"Set FENCEROW_PG_BIN to version {made_by}, or use another folder.",
            )

    def _write_settings(self, site: _Site) -> None:
        """Our own file includes initdb's and comes after it; ALTER SYSTEM still comes last."""
        values = {**self.settings, "unix_socket_directories": str(self.sockets)}
        lines = ["include 'postgresql.conf'"]
        for name, value in values.items():
            if not _SETTING_NAME.fullmatch(name) or "\n" in value:
                raise ServerError(
                    f"{name!r} is no setting that fits a configuration file.", hint="Correct its name."
                )
            escaped = value.replace("\\", "\\\\").replace("'", "''")
            lines.append(f"{name} = '{escaped}'")
        fresh = site.data / "fencerow.conf.new"
        fresh.unlink(missing_ok=True)
        # O_EXCL: under a dropped-to account the folder is not ours, and a link in it must not be followed.
        made = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(made, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
            if site.account.kind == "drop":
                os.fchown(file.fileno(), *site.account.owner)
        fresh.replace(site.data / "fencerow.conf")

    def _start_once(self, site: _Site, deadline: float) -> bool:
        """True: accepts connections. False: the start failed for a passing reason. Else ServerError."""
        with self._open_log() as log:
            before = log.tell()
            conf = site.data / "fencerow.conf"
            argv = [str(site.binaries.tool("postgres")), "-D", str(site.data), f"--config-file={conf}"]
            self._owner = os.getpid()
            self._process = launch(site.account.spec, argv, output=log.fileno())
        while self._process.poll() is None:
            if postmaster.says_ready(site.data) and self.answers() in (wire.READY, wire.NO_SUCH_DATABASE):
                return True
            if time.monotonic() > deadline:
                tail = self.log_tail()
                self.stop("immediate", 5.0)
                raise ServerError(f"The server was not ready in time:\n{tail}", hint=f"Read {self.log}.")
            time.sleep(_POLL_SECONDS)
        self._process = None
        with self.log.open("rb") as log:
            log.seek(before)
            written = log.read()
        if any(reason in written for reason in _PASSING):
            return False
        raise ServerError(f"The server does not start:\n{self.log_tail()}", hint=f"Read {self.log}.")

    def _open_log(self) -> BinaryIO:
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES:
            self.log.replace(self.log.with_name("server.log.1"))
        log = self.log.open("ab")
        log.seek(0, os.SEEK_END)
        return log


def _initdb(binaries: Binaries, data: Path) -> list[str | os.PathLike[str]]:
    argv: list[str | os.PathLike[str]] = [binaries.tool("initdb"), "-D", data, "-U", ROLE, "-N"]
    # Collation "C" exists everywhere and never changes under an index; `host` lines reject, should a port
    # ever open.
    argv += ["--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=reject"]
    if binaries.version >= (17, 0):
        argv += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    return argv


def _signal_and_wait(process: subprocess.Popen[bytes], number: signal.Signals, timeout: float) -> bool:
    process.send_signal(number)
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        return False
    return True


def _short(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
