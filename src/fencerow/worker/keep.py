"""
Keeping leases: when this process may trust that it owns what it holds, and telling it when it no longer may (I7).

A renewer process renews. It writes into shared memory until when each lease may be trusted: the time at which the
accepted request was sent, plus the lease, less a margin. Nothing here asks the database whether a lease still holds;
trust simply runs out, and then every handler under that lease is cancelled.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fencerow import limits
from fencerow.clock import boottime
from fencerow.errors import OutOfResources
from fencerow.log import logger
from fencerow.ops import workers
from fencerow.renewer import MEMORY_BYTES, PROMISE, SLOT, SLOTS
from fencerow.store.session import Target
from fencerow.store.stores import AsyncStore

LOOK_SECONDS = 0.05
SPAWN_AGAIN_SECONDS = 0.1


class Memory:
    """
    What the renewer writes and every ``job.check()`` reads: 16 bytes a lease, the same time twice; and a last cell that
    the worker writes and the renewer reads.
    """

    def __init__(self) -> None:
        self.fd = os.memfd_create("fencerow-trust") if hasattr(os, "memfd_create") else _unlinked_file()
        os.ftruncate(self.fd, MEMORY_BYTES)
        self._map = mmap.mmap(self.fd, MEMORY_BYTES)
        self._free = list(range(SLOTS))

    @property
    def full(self) -> bool:
        """Whether every slot is used by a lease."""
        return not self._free

    def promise(self, at: float) -> None:
        """By when the worker's loop will have looked at its jobs again (CLOCK_BOOTTIME)."""
        PROMISE.pack_into(self._map, SLOT.size * SLOTS, at)

    def take(self) -> int:
        """A slot that no lease uses."""
        return self._free.pop(0)

    def give_back(self, slot: int) -> None:
        """The lease of this slot is gone."""
        self.write(slot, 0.0)
        self._free.append(slot)

    def write(self, slot: int, until: float) -> None:
        """Trust until then (CLOCK_BOOTTIME)."""
        self._map[slot * SLOT.size : (slot + 1) * SLOT.size] = SLOT.pack(until, until)

    def read(self, slot: int) -> float:
        """The smaller of the two copies: a reader in the middle of a write trusts too short, never too long."""
        first, second = SLOT.unpack_from(self._map, slot * SLOT.size)
        return float(min(first, second))

    def close(self) -> None:
        """Unmap."""
        self._map.close()
        os.close(self.fd)


def _unlinked_file() -> int:
    import tempfile

    fd, path = tempfile.mkstemp(prefix="fencerow-trust-")
    os.unlink(path)
    os.set_inheritable(fd, False)
    return fd


@dataclass(eq=False)
class Lease:
    """
    One lease of this process. ``held`` maps the job ids under it to their generations.

    ``lost`` is set once and for ever: a lease that was not trusted for a moment is not used again.
    """

    id: int
    seconds: float
    slot: int
    memory: Memory
    claims: int = 0
    lost: bool = False
    held: dict[int, int] = field(default_factory=dict)

    @property
    def trusted_until(self) -> float:
        """CLOCK_BOOTTIME seconds until which this process may act as the owner."""
        return 0.0 if self.lost else self.memory.read(self.slot)

    @property
    def trusted(self) -> bool:
        """Whether it may act now."""
        return boottime() < self.trusted_until

    def digest(self) -> str:
        """SHA-256 over what is held, as fencerow.held_digest computes it."""
        import hashlib

        text = ",".join(f"{job}:{generation}" for job, generation in sorted(self.held.items()))
        return hashlib.sha256(text.encode()).hexdigest()


class Keeper:
    """
    The leases of this process and the renewer that keeps them.

    Args:
        on_lost: called once for a lease that may no longer be trusted.
        on_cancel: called with the ids of running jobs whose cancel was requested.
    """

    def __init__(
        self,
        target: Target,
        store: AsyncStore,
        *,
        worker: str,
        seconds: float,
        alone: bool,
        on_lost: Callable[[Lease], None],
        on_cancel: Callable[[list[int]], None],
    ) -> None:
        self.memory = Memory()
        self.leases: dict[int, Lease] = {}
        self._target = target
        self._store = store
        self._worker = worker
        self._seconds = seconds
        self._alone = alone
        self._on_lost = on_lost
        self._on_cancel = on_cancel
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._closing = False
        self._opening = asyncio.Lock()
        self._current: Lease | None = None

    async def start(self) -> None:
        """Start the renewer."""
        await self._spawn()

    async def current(self) -> Lease:
        """
        The lease for new claims: opened at first, after a loss, and after LEASE_CLAIMS_MAX claims.

        Raises:
            StoreError: it cannot be opened now.
        """
        async with self._opening:
            lease = self._current
            if (
                lease is None
                or lease.lost
                or (lease.claims >= limits.LEASE_CLAIMS_MAX and not self.memory.full)
            ):
                lease = self._current = await self._open()
        return lease

    async def _open(self) -> Lease:
        number = secrets.randbits(62) | 1
        while True:
            if self.memory.full:
                await self.retire_empty()
            if self.memory.full:
                raise OutOfResources(f"all {SLOTS} leases of this process still hold jobs")
            sent = boottime()
            left = await self._store.run(
                workers.open_lease(number, self._worker, seconds=self._seconds, alone=self._alone)
            )
            if left is not None:
                break
            number = secrets.randbits(62) | 1
        lease = Lease(number, self._seconds, self.memory.take(), self.memory)
        margin = limits.margin_seconds(self._seconds)
        self.memory.write(lease.slot, sent + left - margin)
        self.leases[number] = lease
        self._tell({"keep": number, "slot": lease.slot, "seconds": self._seconds, "margin": margin})
        return lease

    async def retire_empty(self) -> None:
        """Close leases that were replaced and hold nothing more."""
        for lease in list(self.leases.values()):
            if lease is not self._current and not lease.held:
                await self.close_lease(lease)

    async def close_lease(self, lease: Lease) -> None:
        """Forget a lease here and, unless it was lost, give it up in the database."""
        self._tell({"drop": lease.id})
        if self.leases.pop(lease.id, None) is None:
            return
        was_lost, lease.lost = lease.lost, True
        self.memory.give_back(lease.slot)
        if not was_lost:
            await self._store.run(workers.close_lease(lease.id))

    async def watch(self) -> None:
        """Look, for as long as the worker lives, whether trust in a lease has run out."""
        while True:
            now = boottime()
            soonest = now + min(1.0, self._seconds / 8)
            for lease in list(self.leases.values()):
                until = lease.trusted_until
                if not lease.lost and until <= now:
                    self.lose(lease)
                elif not lease.lost:
                    soonest = min(soonest, until)
            await asyncio.sleep(max(LOOK_SECONDS, soonest - now))

    def lose(self, lease: Lease) -> None:
        """Stop trusting a lease, for ever."""
        if lease.lost:
            return
        lease.lost = True
        self._tell({"drop": lease.id})
        self._on_lost(lease)

    def _tell(self, order: dict[str, Any]) -> None:
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(json.dumps(order).encode() + b"\n")

    async def _spawn(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "fencerow.renewer",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(self.memory.fd,),
        )
        setup = {
            "dsn": self._target.dsn,
            "schema": self._target.schema,
            "pooler": self._target.pooler,
            "name": self._target.name,
            "parent": os.getpid(),
            "memory": self.memory.fd,
        }
        self._tell(setup)
        for lease in self.leases.values():
            if not lease.lost:
                margin = limits.margin_seconds(lease.seconds)
                self._tell({"keep": lease.id, "slot": lease.slot, "seconds": lease.seconds, "margin": margin})
        self._reader = asyncio.create_task(self._read(self._process), name="fencerow renewer")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        if process.stdout is None:
            raise RuntimeError("the renewer was started without a pipe")
        while line := await process.stdout.readline():
            self._heard(json.loads(line))
        code = await process.wait()
        while not self._closing:
            logger.error("the renewer process ended with %s; starting another", code)
            await asyncio.sleep(SPAWN_AGAIN_SECONDS)
            try:
                await self._spawn()
            except OSError as error:
                code = error.errno or 0
            else:
                break

    def _heard(self, said: dict[str, Any]) -> None:
        if "lost" in said:
            lease = self.leases.get(said["lost"])
            if lease is not None:
                self.lose(lease)
        elif said.get("cancelling"):
            self._on_cancel(said["cancelling"])
        elif "trouble" in said:
            logger.warning("leases cannot be renewed: %s", said["trouble"])
        elif "well" in said:
            logger.info("leases are renewed again")

    async def stop(self) -> None:
        """End the renewer; leases not closed before run out by themselves."""
        self._closing = True
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), 2)
            except TimeoutError:
                try:
                    process.kill()
                except ProcessLookupError:
                    pass  # it ended just now
                await process.wait()
        if self._reader is not None:
            self._reader.cancel()
        for lease in self.leases.values():
            lease.lost = True  # a thread that still runs may ask
        self.memory.close()
