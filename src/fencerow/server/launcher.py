"""Last step before a PostgreSQL program: `python -I -S launcher.py IDENTITY PARENT PROGRAM ARGUMENT…`.

IDENTITY is `same`, `namespace:UID:GID` (ids inside a new user namespace) or `drop:UID:GID`. PARENT is the pid
of the starter, for whose death the kernel then sends SIGINT: a fast, clean shutdown of a postmaster. The
request comes after the change of identity, which would clear it. This file runs by path, alone, so that it
needs nothing importable.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG = 1


def enter_namespace(libc: ctypes.CDLL, uid: int, gid: int) -> None:
    """Become uid:gid of a new user namespace, which are our own ids outside it: files keep their owner."""
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    if libc.unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses a user namespace")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {outer_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {outer_gid} 1")


def drop(uid: int, gid: int) -> None:
    """Give up root for good."""
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def main(identity: str, parent: str, program: str, *arguments: str) -> None:
    """Change identity, tie our life to the parent's, become the program."""
    libc = ctypes.CDLL(None, use_errno=True)
    kind, *ids = identity.split(":")
    if kind == "namespace":
        enter_namespace(libc, *map(int, ids))
    elif kind == "drop":
        drop(*map(int, ids))
    # Python's handler would take a signal that arrives before exec to the grave; the default ends us.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)
        if os.getppid() != int(parent):
            raise ProcessLookupError("the starter was gone before its death could be watched")
    # The starter may block signals or run with a wide umask; a server must inherit neither.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o077)
    os.chdir("/")
    os.execv(program, [program, *arguments])  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        sys.stderr.write(f"fencerow launcher: {error}\n")
        sys.exit(126)
