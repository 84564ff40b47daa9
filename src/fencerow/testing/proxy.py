"""
A proxy between a client and a PostgreSQL server, on unix sockets, that loses a chosen answer or stands still.

It passes bytes on as they are and reads along: where messages begin, and which statement each execution means (prepared
ones included). So a reply can be lost exactly after the server has done the work, and a request exactly before.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

SOCKET_NAME = ".s.PGSQL.5432"
CHUNK = 1 << 16
CANCEL, SSL, GSS = 80877102, 80877103, 80877104

Loss = Literal["request", "reply"]


@dataclass(eq=False)
class Cut:
    """
    One loss to come: of the *nth* execution of a statement that matches *pattern*.

    ``request``: it is not passed on, and the connection is cut. ``reply``: it is passed on, its answers are kept back
    until the server is ready for the next one (what was asked is committed by then), and then the connection is cut.
    """

    pattern: re.Pattern[bytes]
    lose: Loss
    left: int
    done: threading.Event = field(default_factory=threading.Event)

    def wait(self, seconds: float = 20.0) -> None:
        """Return when it has happened."""
        if not self.done.wait(seconds):
            raise AssertionError(
                f"no {self.lose} was lost: nothing executed {self.pattern.pattern!r} often enough"
            )


class Messages:
    """Cuts a stream into protocol messages; *untyped* of them at the start have no type byte."""

    def __init__(self, untyped: int) -> None:
        self._untyped = untyped
        self._rest = b""

    def read(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The whole messages that are there now, as (type, all bytes of it)."""
        self._rest += data
        found: list[tuple[bytes, bytes]] = []
        while True:
            head = 0 if self._untyped else 1
            if len(self._rest) < head + 4:
                return found
            size = head + struct.unpack_from("!I", self._rest, head)[0]
            if len(self._rest) < size:
                return found
            message, self._rest = self._rest[:size], self._rest[size:]
            found.append((message[:head], message))
            if self._untyped:
                code = struct.unpack_from("!I", message, 4)[0]
                self._untyped -= code not in (SSL, GSS)


class Proxy:
    """
    Listens in a folder of its own and passes on to the server whose socket is in *upstream*.

    Use as a context; ``dsn(of)`` is where clients connect. Not for TCP, and not for encrypted connections.
    """

    def __init__(self, upstream: str | os.PathLike[str]) -> None:
        self._upstream = os.fspath(Path(upstream) / SOCKET_NAME)
        self._made = tempfile.TemporaryDirectory(prefix="fencerow-proxy-")
        self.folder = Path(self._made.name)
        self._lock = threading.Lock()
        self._cuts: list[Cut] = []
        self._links: set[_Link] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._open = True
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.fspath(self.folder / SOCKET_NAME))
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def dsn(self, database: str, user: str) -> str:
        """A libpq URI through the proxy."""
        return f"postgresql://{quote(user)}@/{quote(database)}?host={quote(os.fspath(self.folder))}"

    def lose(self, pattern: str, what: Loss, *, nth: int = 1) -> Cut:
        """Lose request or reply of the *nth* execution from now on of a statement in which *pattern* (a regex) is found."""
        cut = Cut(re.compile(pattern.encode()), what, nth)
        with self._lock:
            self._cuts.append(cut)
        return cut

    def stand_still(self) -> None:
        """Pass nothing on, in any direction, and close nothing: what a network that swallows packets looks like."""
        self._flowing.clear()

    def go_on(self) -> None:
        """Pass on again what has waited."""
        self._flowing.set()

    def sever(self) -> None:
        """Cut all connections of this moment."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()

    def close(self) -> None:
        """Cut everything and listen no more."""
        self._open = False
        self.go_on()
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()
        self._thread.join()
        self.sever()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.join()
        self._made.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._upstream)
            except OSError:
                client.close()
                server.close()
                continue
            link = _Link(client, server, self.due, self._flowing, self._forget)
            with self._lock:
                self._links.add(link)
            link.start()

    def _forget(self, link: _Link) -> None:
        with self._lock:
            self._links.discard(link)

    def due(self, sql: bytes) -> Cut | None:
        """The loss that this execution meets, if any; called once for each execution."""
        with self._lock:
            for cut in self._cuts:
                if cut.pattern.search(sql):
                    cut.left -= 1
                    if cut.left == 0:
                        self._cuts.remove(cut)
                        return cut
        return None


class _Link:
    """One connection: a thread for each direction."""

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        due: Callable[[bytes], Cut | None],
        flowing: threading.Event,
        forget: Callable[[_Link], None],
    ) -> None:
        self._client = client
        self._server = server
        self._due = due
        self._flowing = flowing
        self._forget = forget
        self._prepared: dict[bytes, bytes] = {}
        self._losing: Cut | None = None
        self._threads = [
            threading.Thread(target=self._requests, name="proxy requests", daemon=True),
            threading.Thread(target=self._replies, name="proxy replies", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """End both sides; the threads see it and clean up."""
        for end in (self._client, self._server):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _requests(self) -> None:
        messages = Messages(untyped=1)
        try:
            while data := self._client.recv(CHUNK):
                self._flowing.wait()
                for kind, message in messages.read(data):
                    cut = self._execution(kind, message)
                    if cut is not None and cut.lose == "request":
                        self.cut()
                        cut.done.set()
                        return
                    if cut is not None:
                        self._losing = cut
                    self._server.sendall(message)
        except OSError:
            pass
        finally:
            self.cut()

    def _execution(self, kind: bytes, message: bytes) -> Cut | None:
        match kind:
            case b"P":
                name, sql, _ = message[5:].split(b"\0", 2)
                self._prepared[name] = sql
            case b"Q":
                return self._due(message[5:-1])
            case b"B":
                _, name, _ = message[5:].split(b"\0", 2)
                return self._due(self._prepared.get(name, b""))
        return None

    def _replies(self) -> None:
        messages = Messages(untyped=0)
        try:
            while data := self._server.recv(CHUNK):
                self._flowing.wait()
                for kind, message in messages.read(data):
                    if self._losing is None:
                        self._client.sendall(message)
                    elif kind == b"Z":
                        self.cut()
                        self._losing.done.set()
                        return
        except OSError:
            pass
        finally:
            self.cut()
            self._threads[0].join()
            self._client.close()
            self._server.close()
            self._forget(self)
