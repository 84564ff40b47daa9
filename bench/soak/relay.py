"""
``python -m bench.soak.relay``: a relay between two unix sockets that cuts connections when told to.

Arguments: the socket to listen on, the socket to connect to. Orders on standard input, one a line, each answered by one
line: ``now``: close both ends of a busy connection at once; ``request``: close them instead of passing on the client's
next bytes; ``reply``: pass those on and close instead of passing on the answer. A second word is a number in [0, 1) that
chooses the connection. The answer is ``cut`` or ``none``. It ends when its standard input ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import dataclass, field

CHUNK = 65536
BUSY_SECONDS = 1.0
PATIENCE_SECONDS = 2.0


@dataclass(eq=False)
class Pair:
    """One relayed connection. ``order`` is what is to happen at the client's next bytes."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    busy_at: float = 0.0
    order: str | None = None
    cut: asyncio.Event = field(default_factory=asyncio.Event)

    def close(self, *, by_order: bool = False) -> None:
        """Abort both ends, so that neither side gets what is still buffered."""
        if by_order:
            self.cut.set()
        for writer in (self.client, self.server):
            writer.transport.abort()


class Relay:
    """Everything that one process relays."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._pairs: dict[int, Pair] = {}
        self._count = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection until either side closes it or it is cut."""
        try:
            server_reader, server_writer = await asyncio.open_unix_connection(self._upstream)
        except OSError:
            writer.transport.abort()
            return
        self._count += 1
        number, pair = self._count, Pair(writer, server_writer)
        self._pairs[number] = pair
        up = asyncio.create_task(self._up(reader, pair))
        down = asyncio.create_task(self._down(server_reader, pair))
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        # What the other side still has to say (a FATAL message before a close) goes through first.
        await asyncio.wait((up, down), timeout=0.2)
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)
        pair.close()
        del self._pairs[number]

    async def _up(self, reader: asyncio.StreamReader, pair: Pair) -> None:
        try:
            while data := await reader.read(CHUNK):
                pair.busy_at = time.monotonic()
                if pair.order == "request":
                    pair.close(by_order=True)
                    return
                if pair.order == "reply":
                    pair.order = "drop"
                pair.server.write(data)
                await pair.server.drain()
        except OSError:
            pass
        if not pair.server.is_closing():
            pair.server.write_eof()

    async def _down(self, reader: asyncio.StreamReader, pair: Pair) -> None:
        try:
            while data := await reader.read(CHUNK):
                if pair.order == "drop":
                    pair.close(by_order=True)
                    return
                pair.client.write(data)
                await pair.client.drain()
        except OSError:
            pass
        if not pair.client.is_closing():
            pair.client.close()

    async def obey(self, order: str, chance: float) -> bool:
        """Carry out one order; False when no connection was there to be cut, or none that was used in time."""
        now = time.monotonic()
        open_ = [self._pairs[number] for number in sorted(self._pairs)]
        pairs = [pair for pair in open_ if now - pair.busy_at < BUSY_SECONDS] or open_
        if not pairs:
            return False
        pair = pairs[int(chance * len(pairs))]
        if order == "now":
            pair.close(by_order=True)
            return True
        pair.order = order
        try:
            await asyncio.wait_for(pair.cut.wait(), PATIENCE_SECONDS)
        except TimeoutError:
            pair.order = None
            return False
        return True


async def main(listen: str, upstream: str) -> None:
    """Listen, and obey standard input until it ends."""
    relay = Relay(upstream)
    server = await asyncio.start_unix_server(relay.serve, listen)
    os.chmod(listen, 0o600)
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    print("ready", flush=True)
    while line := await orders.readline():
        order, chance = line.decode().split()
        print("cut" if await relay.obey(order, float(chance)) else "none", flush=True)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
