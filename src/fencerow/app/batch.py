"""Many jobs as few statements: chunks of bounded size; repeats of a key are found before anything is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fencerow import codec, limits
from fencerow.errors import DuplicateInBatch, UsageError
from fencerow.ops import jobs
from fencerow.store.protocols import Begin, Commit, Inside, Protocol, Rollback, Turn
from fencerow.types import Enqueued, NewJob

CHUNK_PAYLOAD_CHARACTERS = 4 * 1024 * 1024
"""A statement holds at most this much payload, and one job more: it bounds the memory of client and server."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Jobs for one statement, and the positions that they have among the inputs."""

    jobs: list[NewJob] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


class Batch:
    """
    Cuts jobs into chunks and puts the answers back in the order of the inputs.

    A key's second appearance is not sent: it is answered with the job of the first, ``created`` False.
    """

    def __init__(self) -> None:
        self._answers: list[Enqueued | None] = []
        self._firsts: dict[str, tuple[int, bytes]] = {}
        self._repeats: list[tuple[int, int]] = []

    def chunks(self, new: Iterable[NewJob]) -> Iterator[Chunk]:
        """
        The chunks to send, made as they are asked for.

        Raises:
            DuplicateInBatch: one key stands for different work.
        """
        chunk, size = Chunk(), 0
        for place, job in enumerate(new):
            if not isinstance(job, NewJob):
                raise UsageError(
                    f"entry {place} of the batch is of type {type(job).__name__}",
                    hint="Make it with task.bind(…).",
                )
            self._answers.append(None)
            if job.idempotency_key is not None and self._is_repeat(place, job, job.idempotency_key):
                continue
            chunk.jobs.append(job)
            chunk.places.append(place)
            size += len(job.payload)
            if len(chunk.jobs) == limits.ENQUEUE_BATCH_MAX or size >= CHUNK_PAYLOAD_CHARACTERS:
                yield chunk
                chunk, size = Chunk(), 0
        if chunk.jobs:
            yield chunk

    def _is_repeat(self, place: int, job: NewJob, key: str) -> bool:
        work = hashlib.sha256(job.task.encode() + b"\0" + codec.canonical(job.payload)).digest()
        first = self._firsts.setdefault(key, (place, work))
        if first[0] == place:
            return False
        if first[1] != work:
            raise DuplicateInBatch(
                "one idempotency key stands for different work in one batch", indexes=[first[0], place]
            )
        self._repeats.append((place, first[0]))
        return True

    def take(self, chunk: Chunk, answers: list[Enqueued]) -> None:
        """The answers to a chunk, aligned with it."""
        for place, answer in zip(chunk.places, answers, strict=True):
            self._answers[place] = answer

    def aligned(self) -> list[Enqueued]:
        """All answers, one per input, in their order."""
        for place, first in self._repeats:
            found = self._answers[first]
            assert found is not None
            self._answers[place] = Enqueued(found.id, False)
        return [answer for answer in self._answers if answer is not None]


def in_one_transaction(batch: Batch, chunks: Iterable[Chunk]) -> Protocol[None]:
    """
    All chunks in one transaction of our own: every job of them, or none.

    Raises:
        CommitUncertain: the reply of COMMIT was lost; with idempotency keys the same batch can be sent again.
    """
    yield Begin()
    try:
        for chunk in chunks:
            batch.take(chunk, (yield Inside(jobs.enqueue(chunk.jobs))))
        yield Turn()
    except BaseException:
        yield Rollback()
        raise
    yield Commit()
