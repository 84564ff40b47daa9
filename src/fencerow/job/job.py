"""
What a handler receives: ``Job`` in sync handlers, ``AsyncJob`` in async ones, with the same names.

Everything here stops with ClaimLost as soon as this process may no longer act as the job's owner.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from fencerow import codec, limits
from fencerow.clock import boottime
from fencerow.errors import ClaimLost, InvalidValue, UsageError
from fencerow.handle import Handle, Owner
from fencerow.job import entrusted
from fencerow.job.calling import called, finished
from fencerow.job.hold import Hold
from fencerow.job.steps import Keeping, inside_step
from fencerow.log import JobLog
from fencerow.ops import jobs
from fencerow.store.protocols import INFRASTRUCTURE, CommitWish, commit_job, resolved
from fencerow.store.stores import AsyncStore, SyncStore
from fencerow.store.transaction import AsyncTransaction, SyncTransaction
from fencerow.types import NewJob

if TYPE_CHECKING:
    from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor


P = ParamSpec("P")
T = TypeVar("T")


class _Running:
    """The parts that need no I/O."""

    __slots__ = ("_hold", "_kept", "_owner", "log")

    def __init__(self, hold: Hold, owner: Owner) -> None:
        self._hold = hold
        self._kept: Keeping | None = None
        self._owner = owner
        self.log = JobLog(hold.claim)

    @property
    def id(self) -> int:
        """The job's id, the same for every attempt."""
        return self._hold.claim.job_id

    @property
    def generation(self) -> int:
        """Raised by one with every claim of this job."""
        return self._hold.claim.generation

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1; snoozes and releases do not count."""
        return self._hold.claim.attempt

    @property
    def task(self) -> str:
        """Name of the task."""
        return self._hold.claim.task

    @property
    def queue(self) -> str:
        """Name of the queue it was claimed from."""
        return self._hold.claim.queue

    @property
    def tags(self) -> Sequence[str]:
        """Tags given at the enqueue."""
        return tuple((self._hold.claim.extra or {}).get("tags") or ())

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers given at the enqueue."""
        return (self._hold.claim.extra or {}).get("headers") or {}

    @property
    def fence(self) -> int:
        """
        A number that rises over all claims of the space, also across a failover (timeline * 2**48 + a sequence value drawn
        at claim): a destination that keeps the highest one seen can refuse an older holder.
        """
        return self._hold.claim.fence

    @property
    def idempotency_key(self) -> str:
        """The enqueue's key if it had one, else ``space uuid/job id``: the same for every attempt and after a redrive."""
        given = (self._hold.claim.extra or {}).get("idempotency_key")
        return given or f"{self._hold.space_id}/{self._hold.claim.job_id}"

    @property
    def deadline(self) -> float | None:
        """When this attempt's time is over, on fencerow.clock.boottime(); None: never."""
        return self._hold.deadline

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline; None: no deadline."""
        return None if self._hold.deadline is None else self._hold.deadline - boottime()

    @property
    def cancel_requested(self) -> bool:
        """True once somebody asked for this job to be cancelled."""
        return self._hold.cancel_requested

    def check(self) -> None:
        """
        Go on only as the owner: local and free, call it before each effect.

        Raises:
            ClaimLost: the lease may be over, the write of this attempt was refused, or the job was settled.
        """
        self._hold.check()

    @property
    def _keeping(self) -> Keeping:
        if self._kept is None:
            self._kept = Keeping(self._hold)
        return self._kept

    def _progress(self, fraction: float, note: str | None) -> Any:
        if isinstance(fraction, bool) or not 0 <= fraction <= 1:
            raise InvalidValue("progress must lie between 0 and 1", hint="Give a fraction, such as 0.4.")
        self._hold.check()
        cut = None if note is None else note[: limits.REASON_CHARACTERS_MAX].replace("\0", "")
        return jobs.progress(self._hold.claim, fraction, cut)

    def _begin_commit(self) -> CommitWish:
        hold = self._hold
        if hold.open_commits or hold.committed:
            raise UsageError(
                "job.commit() was used before in this attempt", hint="Do all of it in one block."
            )
        hold.check()
        wish = CommitWish(hold.claim)
        hold.open_commits.append(wish)
        return wish

    def _end_commit(self, error: BaseException | None, *, in_block: bool = False) -> None:
        hold = self._hold
        hold.open_commits.clear()
        if error is None:
            hold.committed = True
        elif isinstance(error, ClaimLost):
            hold.lost = error.verdict
        elif not in_block and isinstance(error, INFRASTRUCTURE):
            hold.trouble = error


class _Result:
    """``tx.result = …`` inside a commit block: stored as the job's result."""

    __slots__ = ("_value", "_wish")

    def __init__(self, wish: CommitWish) -> None:
        self._wish = wish
        self._value: Any = None

    @property
    def result(self) -> Any:
        """The result that will be stored."""
        return self._value

    @result.setter
    def result(self, value: Any) -> None:
        self._wish.result = codec.encode(value, limit=limits.RESULT_BYTES_MAX, what="result")
        self._value = value


class AsyncCommit(_Result):
    """The open transaction of ``async with job.commit() as tx``."""

    __slots__ = ("connection",)

    def __init__(self, wish: CommitWish, connection: AsyncConnection[Any]) -> None:
        super().__init__(wish)
        self.connection = connection

    async def execute(self, query: Any, params: Any = None) -> AsyncCursor[Any]:
        """Run one of your statements in the transaction; the driver's own cursor comes back."""
        return await self.connection.execute(query, params)


class Commit(_Result):
    """The open transaction of ``with job.commit() as tx``."""

    __slots__ = ("connection",)

    def __init__(self, wish: CommitWish, connection: Connection[Any]) -> None:
        super().__init__(wish)
        self.connection = connection

    def execute(self, query: Any, params: Any = None) -> Cursor[Any]:
        """Run one of your statements in the transaction; the driver's own cursor comes back."""
        return self.connection.execute(query, params)


class AsyncJob(_Running):
    """The running job, in an async handler."""

    __slots__ = ("_store",)

    def __init__(self, hold: Hold, store: AsyncStore, owner: Owner) -> None:
        super().__init__(hold, owner)
        self._store = store

    async def progress(self, fraction: float, note: str | None = None) -> None:
        """Store how far it is (0..1), with a note of at most 500 characters. Raises ClaimLost."""
        with self._hold.noting():
            answer = await self._store.follow(resolved(self._progress(fraction, note)))
        self._hold.judge(answer)

    @overload
    async def step(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    async def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """
        Call a function once for the whole job: its result is kept before the handler goes on, and a later attempt, also
        after a redrive, gets that result instead. What it raises is not kept.

        The value comes back as its JSON form, read by the function's return annotation, also the first time. A sync
        function runs in a thread. Steps are known by their order, name and function; begin them in the same order always.

        Raises:
            ClaimLost: this process may no longer act; if the function had run, its result was not kept.
            StepMismatch: an earlier attempt kept something else there; ends the job failed.
            InvalidPayload, PayloadTooLarge: the result cannot be kept (64 KiB at most); ends the job failed.
        """
        step = self._keeping.begin(name, function)
        with self._hold.noting():
            kept = await self._store.follow(self._keeping.find(step))
        if kept is not None:
            return step.returned.decode(kept)
        self._hold.check()
        with inside_step():
            value = await called(function, *args, **kwargs)
        with self._hold.noting():
            return await finished(self._store.follow(self._keeping.keep(step, value)))

    async def enqueue_child(self, job: NewJob) -> Handle[Any]:
        """
        Enqueue a job made by ``task.bind(…)`` under this job's fence, its parent: at most once over all attempts.

        Unless it has an idempotency key, it gets one of this job's key, its task, its payload, and a count of identical
        children: a later attempt that enqueues the same children gets the same handles.

        Raises:
            ClaimLost: nothing was enqueued.  Duplicate, IdempotencyConflict: a key is held.
        """
        child = self._keeping.child(job, self.idempotency_key)
        with self._hold.noting():
            answer = await self._store.follow(self._keeping.start(child))
        return Handle(answer.id, answer.created, self._owner)

    @asynccontextmanager
    async def commit(self, connection: AsyncConnection[Any] | None = None) -> AsyncIterator[AsyncCommit]:
        """
        Your change and "done" in one transaction: both commit, or neither does.

        The ticket is locked at entry and settled as the last statement before COMMIT, on a READ COMMITTED connection of
        its own. What the handler does or raises after the block changes nothing: the job is done.

        Args:
            connection: your psycopg connection, in a READ COMMITTED transaction that you begin before the block and
                commit after it, before the handler returns: the job is done if you do. A refusal raises at entry or at
                the end of the block, so that your transaction rolls back.

        Raises:
            ClaimLost: the claim was lost; nothing of the block remains.
            CommitUncertain: COMMIT was sent and its effect could not be learnt.
            UsageError, NotReadCommitted: your connection or its transaction does not fit.
        """
        wish = self._begin_commit()
        if connection is not None:
            async with entrusted.ablock(self._hold, self._store, wish, connection):
                yield AsyncCommit(wish, connection)
            return
        transaction = AsyncTransaction(self._store, commit_job(wish))
        in_block = False
        try:
            connection = await transaction.open()
            try:
                yield AsyncCommit(wish, connection)
                self._hold.check()
            except BaseException as error:
                in_block = True
                if transaction.lost(error):
                    self._hold.trouble = error
                await transaction.close(error)
                raise
            await transaction.close(None)
        except BaseException as error:
            self._end_commit(error, in_block=in_block)
            raise
        self._end_commit(None)


class Job(_Running):
    """The running job, in a sync handler."""

    __slots__ = ("_store",)

    def __init__(self, hold: Hold, store: SyncStore, owner: Owner) -> None:
        super().__init__(hold, owner)
        self._store = store

    def progress(self, fraction: float, note: str | None = None) -> None:
        """As AsyncJob.progress."""
        with self._hold.noting():
            answer = self._store.follow(resolved(self._progress(fraction, note)))
        self._hold.judge(answer)

    def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """As AsyncJob.step; the function is sync and runs in this thread."""
        step = self._keeping.begin(name, function)
        with self._hold.noting():
            kept = self._store.follow(self._keeping.find(step))
        if kept is not None:
            return step.returned.decode(kept)  # type: ignore[no-any-return]
        self._hold.check()
        with inside_step():
            value = function(*args, **kwargs)
        with self._hold.noting():
            return self._store.follow(self._keeping.keep(step, value))  # type: ignore[no-any-return]

    def enqueue_child(self, job: NewJob) -> Handle[Any]:
        """As AsyncJob.enqueue_child."""
        child = self._keeping.child(job, self.idempotency_key)
        with self._hold.noting():
            answer = self._store.follow(self._keeping.start(child))
        return Handle(answer.id, answer.created, self._owner)

    @contextmanager
    def commit(self, connection: Connection[Any] | None = None) -> Iterator[Commit]:
        """As AsyncJob.commit."""
        wish = self._begin_commit()
        if connection is not None:
            with entrusted.block(self._hold, self._store, wish, connection):
                yield Commit(wish, connection)
            return
        transaction = SyncTransaction(self._store, commit_job(wish))
        in_block = False
        try:
            connection = transaction.open()
            try:
                yield Commit(wish, connection)
                self._hold.check()
            except BaseException as error:
                in_block = True
                if transaction.lost(error):
                    self._hold.trouble = error
                transaction.close(error)
                raise
            transaction.close(None)
        except BaseException as error:
            self._end_commit(error, in_block=in_block)
            raise
        self._end_commit(None)
