"""Just enough of the frontend/backend protocol (version 3.0) to ask a server whether it is there.

The embedded server authenticates by the privacy of its socket folder, so a start-up packet is answered at
once; a driver would cost more to import than the whole question.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from fencerow.errors import ServerError

if TYPE_CHECKING:
    from pathlib import Path

READY = "00000"
UNREACHABLE = "08001"
"""No listener, or one that does not answer in time."""
NO_SUCH_DATABASE = "3D000"

_PROTOCOL = 3 << 16
_LONGEST = 1 << 20  # bytes; nothing asked here has a longer answer


def probe(path: Path, *, user: str, database: str, timeout: float = 2.0) -> str:
    """Connect and hang up. Returns READY, UNREACHABLE, or the SQLSTATE of the refusal.

    `timeout` in seconds.
    """
    try:
        with _connect(path, user, database, timeout):
            return READY
    except _Refusal as refusal:
        return refusal.sqlstate
    except (OSError, EOFError):
        return UNREACHABLE


def execute(path: Path, sql: str, *, user: str, database: str, timeout: float = 60.0) -> None:
    """Run one statement that returns nothing of interest. ServerError with the server's code if it fails."""
    try:
        with _connect(path, user, database, timeout) as wire:
            wire.sendall(_message(b"Q", sql.encode() + b"\0"))
            _until_ready(wire)
            wire.sendall(_message(b"X", b""))
    except _Refusal as refusal:
        raise ServerError(
            f"The server refused a set-up statement ({refusal.sqlstate}).", hint="Read its log."
        ) from refusal
    except (OSError, EOFError) as error:
        raise ServerError("The server went away during set-up.", hint="Read its log.") from error


class _Refusal(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


def _connect(path: Path, user: str, database: str, timeout: float) -> socket.socket:
    wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        wire.settimeout(timeout)
        wire.connect(str(path))
        pairs = b"".join(part.encode() + b"\0" for part in ("user", user, "database", database))
        wire.sendall(_message(b"", struct.pack("!I", _PROTOCOL) + pairs + b"\0"))
        _until_ready(wire)
    except BaseException:
        wire.close()
        raise
    return wire


def _until_ready(wire: socket.socket) -> None:
    refusal: _Refusal | None = None
    while True:
        kind, body = _read(wire)
        if kind == b"E":
            fields = {field[:1]: field[1:].decode("ascii", "replace") for field in body.split(b"\0") if field}
            refusal = _Refusal(fields.get(b"C", "XX000"))
            if fields.get(b"V") in ("FATAL", "PANIC"):
                raise refusal
        elif kind == b"R" and body[:4] != b"\0\0\0\0":
            raise _Refusal("28000")  # a password is asked for: somebody changed pg_hba.conf
        elif kind == b"Z":
            if refusal is not None:
                raise refusal
            return


def _read(wire: socket.socket) -> tuple[bytes, bytes]:
    kind, length = struct.unpack("!cI", _exactly(wire, 5))
    if not 4 <= length <= _LONGEST:
        raise EOFError
    return kind, _exactly(wire, length - 4)


def _exactly(wire: socket.socket, count: int) -> bytes:
    read = b""
    while len(read) < count:
        chunk = wire.recv(count - len(read))
        if not chunk:
            raise EOFError
        read += chunk
    return read


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body
