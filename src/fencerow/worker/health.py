"""
Health of a worker process over HTTP: ``/live`` (restart me?) and ``/ready`` (do I get work done?), each with its reasons.

Live: the event loop answers, and the claim loop has looked for work lately. A long job, a paused queue or a database that is
away do not make a worker unlive: a restart would cure none of them. Ready: live, the database answers, leases are renewed,
and it is not draining. Notifications lost while polling goes on is ready, and said.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

READ_SECONDS = 2.0
LINE_BYTES_MAX = 8192


@dataclass(frozen=True, slots=True)
class Health:
    """What a probe is told; ``reasons`` in words, ``facts`` in numbers."""

    live: bool
    ready: bool
    reasons: tuple[str, ...] = ()
    facts: dict[str, float | int | str | None] = field(default_factory=dict)


class HealthServer:
    """
    A tiny HTTP/1.1 server for probes: GET and HEAD of two paths, one answer a connection.

    Args:
        look: the present health; must not block.
    """

    def __init__(self, look: Callable[[], Health]) -> None:
        self._look = look
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port (chosen by the kernel when 0)."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=LINE_BYTES_MAX)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                line = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                writer.write(self._answer(line.decode("latin-1").split()))
                await writer.drain()
        except (TimeoutError, ValueError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _answer(self, words: list[str]) -> bytes:
        if len(words) != 3 or words[0] not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", b"{}", head=False)
        health = self._look()
        match words[1].partition("?")[0]:
            case "/live":
                good = health.live
            case "/ready":
                good = health.ready
            case _:
                return _response("404 Not Found", b"{}", head=words[0] == "HEAD")
        body = json.dumps(asdict(health)).encode()
        return _response("200 OK" if good else "503 Service Unavailable", body, head=words[0] == "HEAD")


def _response(status: str, body: bytes, *, head: bool) -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + (b"" if head else body)
