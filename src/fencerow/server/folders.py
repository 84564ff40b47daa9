"""Where data and sockets live: never the working directory, always private (0700), never somebody else's."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

from fencerow.errors import ServerError

from .account import Account, shelter

SOCKET_NAME = ".s.PGSQL.5432"

_SOCKET_PATH_BYTES = 103  # the least of the systems we run on: macOS 103, Linux 107
# Nothing is taken on trust there: the folder must be new, or ours and private.
_SHORT_BASES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9/._-]*")  # commas, quotes and spaces mean something in a host list
_CURE = "Set FENCEROW_HOME to a folder that this account can write."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def home_of(name: str) -> Path:
    """Folder of the embedded server NAME: $FENCEROW_HOME/NAME, else in the account's data folder.

    Not created.
    """
    if not _NAME.fullmatch(name):
        raise ServerError(
            f"{name!r} cannot name an embedded server.", hint="Use up to 63 letters, digits, - and _."
        )
    chosen = os.environ.get("FENCEROW_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute() / name
    shared = os.environ.get("XDG_DATA_HOME", "")
    base = Path(shared) if shared.startswith("/") else Path("~/.local/share").expanduser()
    if not base.is_absolute():
        raise ServerError("This account has no home folder.", hint=_CURE)
    return base / "fencerow" / name


def make_private(folder: Path) -> bool:
    """Create a folder for us alone, or check that it is ours. True if this call created it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o700)
            return True
        except FileExistsError:
            pass
        found = folder.stat()
    except OSError as error:
        raise ServerError(
            f"{folder} cannot be used as a data folder: {error.strerror}.", hint=_CURE
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise ServerError(f"{folder} is not a folder of this account.", hint=_CURE)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ServerError(f"{folder} is not writable.", hint=_CURE)
    if stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)
    return False


def socket_folder(folder: Path, account: Account) -> Path:
    """A private folder for the socket of the cluster in `folder`, in the first place short and not full.

    Beside the data if that path is short enough: the run-time folder of a session goes at log-out and a
    temporary one is swept, while a server may stay longer than either.
    """
    label = f"{folder}:{os.geteuid()}"
    short = hashlib.sha256(os.fsencode(label)).hexdigest()[:12]
    if account.kind == "drop":
        places = [shelter("run") / short]
    else:
        bases = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), *_SHORT_BASES]
        places = [folder / "run", *(Path(base) / f"fencerow-{short}" for base in bases if _is_trusted(base))]
    refusals: list[str] = []
    for place in places:
        refusal = _try_place(place, account)
        if refusal is None:
            return place
        refusals.append(f"{place}: {refusal}")
    raise ServerError(
        f"No place for the server's socket ({'; '.join(refusals)}).", hint="Set TMPDIR to a short folder."
    )


def _try_place(place: Path, account: Account) -> str | None:
    """Make `place` usable. Returns why it is not, or None."""
    if len(os.fsencode(place / SOCKET_NAME)) > _SOCKET_PATH_BYTES:
        return "path too long"
    if not _PLAIN_PATH.fullmatch(str(place)):
        return "characters that a connection string cannot carry"
    owner, group = account.owner
    try:
        try:
            place.mkdir(mode=0o700)
            if account.kind == "drop":
                os.chown(place, owner, group)
        except FileExistsError:
            found = place.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner:
                return "belongs to another account"
            place.chmod(0o700)
        trial = place / "trial"  # a full disk still makes folders, but no lock file
        trial.write_bytes(b"\n" * 512)
        trial.unlink()
    except OSError as error:
        leave_sockets(place)
        return error.strerror or "unusable"
    return None


def _is_trusted(base: str) -> bool:
    """Whether nobody but us and root can replace a folder that we make in `base`."""
    try:
        found = os.stat(base)
    except OSError:
        return False
    safe = not found.st_mode & 0o022 or bool(found.st_mode & stat.S_ISVTX)
    return safe and found.st_uid in (0, os.geteuid())


def leave_sockets(place: Path) -> None:
    """Remove an empty socket folder; keep it if anything is in it."""
    try:
        place.rmdir()
    except OSError:
        return
