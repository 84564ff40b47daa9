"""A way to the server that loses one reply: the statement arrives and commits, the client never hears of it."""

import selectors
import socket
import threading
from pathlib import Path
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

SOCKET = ".s.PGSQL.5432"
READY = (b"Z\x00\x00\x00\x05I", b"Z\x00\x00\x00\x05T", b"Z\x00\x00\x00\x05E")
"""How an answer ends: ready, outside or inside a transaction, or in one that failed."""


class LossyWire:
    """
    Forwards a Unix socket in *folder* to the server of *dsn*.

    After lose(marker), the next statement that contains *marker* is answered by a closed connection once the server has
    answered it. ``lost`` counts these.
    """

    def __init__(self, dsn: str, folder: Path) -> None:
        self._server = f"{conninfo_to_dict(dsn)['host']}/{SOCKET}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / SOCKET))
        self._listener.listen()
        self._marker: bytes | None = None
        self._threads: list[threading.Thread] = []
        self._ends: list[socket.socket] = []
        self.dsn = make_conninfo(dsn, host=str(folder))
        self.lost = 0

    def lose(self, marker: str) -> None:
        self._marker = marker.encode()

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        shut(self._listener, *self._ends)
        for thread in self._threads:
            thread.join(10)
        for end in (self._listener, *self._ends):
            end.close()

    def _start(self, run: object, *args: object) -> None:
        thread = threading.Thread(target=run, args=args)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            self._ends += [client, server]
            self._start(self._forward, client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        try:
            with selectors.DefaultSelector() as both:
                both.register(client, selectors.EVENT_READ, server)
                both.register(server, selectors.EVENT_READ, client)
                self._pass_on(both, client)
        except OSError:
            pass  # one side left without a word
        shut(client, server)

    def _pass_on(self, both: selectors.BaseSelector, client: socket.socket) -> None:
        losing, answer = False, b""
        while True:
            for key, _ in both.select():
                data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                if key.fileobj is client:
                    if self._marker is not None and self._marker in data:
                        self._marker, losing = None, True
                elif losing:
                    answer += data
                    if answer.endswith(READY):
                        self.lost += 1
                        return
                    continue
                if not data:
                    return
                key.data.sendall(data)


def shut(*ends: socket.socket) -> None:
    """Both directions, of ends that the other side may have shut before."""
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
