"""
What a handler receives: ``Job`` in sync handlers, ``AsyncJob`` in async ones, with the same names.

Everything here stops with ClaimLost as soon as this process may no longer act as the job's owner.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fencerow import codec, limits
from fencerow.clock import boottime
from fencerow.errors import ClaimLost, InvalidValue, StoreError, UsageError
from fencerow.log import JobLog
from fencerow.ops import jobs
from fencerow.store.protocols import INFRASTRUCTURE, CommitWish, commit_job, refused, resolved
from fencerow.store.stores import AsyncStore, SyncStore
from fencerow.store.transaction import AsyncTransaction, SyncTransaction
from fencerow.types import Answer, Claim

if TYPE_CHECKING:
    from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor


CHAIN_MAX = 5


@dataclass(eq=False)
class Hold:
    """
    What ties a job object to its claim, shared with the worker.

    Attributes:
        trusted: whether this process may act as owner now; local and free.
        lost: why this attempt must stop, once it must: a refusing verdict, or ``untrusted``, ``timeout``,
            ``cancel_requested``, ``shutdown``.
        committed: True once ``job.commit()`` settled the job: the handler's outcome is no longer sent.
        cancel_requested: True once somebody asked for the job to be cancelled.
        trouble: the last failure of a statement or connection of Fencerow's own; it is not charged to the job.
    """

    claim: Claim
    space_id: str
    trusted: Callable[[], bool]
    deadline: float | None = None
    lost: str | None = None
    committed: bool = False
    cancel_requested: bool = False
    trouble: BaseException | None = None
    open_commits: list[CommitWish] = field(default_factory=list)

    def check(self) -> None:
        """Raise ClaimLost unless this process may act as owner now."""
        claim = self.claim
        if self.lost is None and not self.trusted():
            self.lost = "untrusted"
        if self.lost is not None:
            raise ClaimLost(
                f"the claim of job {claim.job_id} generation {claim.generation} is lost: {self.lost}",
                verdict=self.lost,
            )

    def is_ours(self, error: BaseException | None) -> bool:
        """Whether an exception, or what it was raised from, is a failure of Fencerow's own (I13)."""
        for _ in range(CHAIN_MAX):
            if error is None or self.trouble is None:
                return False
            if error is self.trouble:
                return True
            error = error.__cause__ or error.__context__
        return False

    def judge(self, answer: Answer) -> None:
        """Take note of an answer to a write; raise ClaimLost when it was refused."""
        if not answer.accepted:
            self.lost = answer.verdict
            raise refused(self.claim, answer)


class _Common:
    """The parts that need no I/O."""

    __slots__ = ("_hold", "log")

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
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


class AsyncJob(_Common):
    """The running job, in an async handler."""

    __slots__ = ("_store",)

    def __init__(self, hold: Hold, store: AsyncStore) -> None:
        super().__init__(hold)
        self._store = store

    async def progress(self, fraction: float, note: str | None = None) -> None:
        """Store how far it is (0..1), with a note of at most 500 characters. Raises ClaimLost."""
        try:
            answer = await self._store.follow(resolved(self._progress(fraction, note)))
        except StoreError as error:
            self._hold.trouble = error if isinstance(error, INFRASTRUCTURE) else None
            raise
        self._hold.judge(answer)

    @asynccontextmanager
    async def commit(self) -> AsyncIterator[AsyncCommit]:
        """
        Your change and "done" in one transaction: both commit, or neither does.

        The ticket is locked at entry and settled as the last statement before COMMIT, on a READ COMMITTED connection of
        its own. What the handler does or raises after the block changes nothing: the job is done.

        Raises:
            ClaimLost: the claim was lost; nothing of the block remains.
            CommitUncertain: COMMIT was sent and its effect could not be learnt.
        """
        wish = self._begin_commit()
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


class Job(_Common):
    """The running job, in a sync handler."""

    __slots__ = ("_store",)

    def __init__(self, hold: Hold, store: SyncStore) -> None:
        super().__init__(hold)
        self._store = store

    def progress(self, fraction: float, note: str | None = None) -> None:
        """As AsyncJob.progress."""
        try:
            answer = self._store.follow(resolved(self._progress(fraction, note)))
        except StoreError as error:
            self._hold.trouble = error if isinstance(error, INFRASTRUCTURE) else None
            raise
        self._hold.judge(answer)

    @contextmanager
    def commit(self) -> Iterator[Commit]:
        """As AsyncJob.commit."""
        wish = self._begin_commit()
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
