"""
``job.commit(connection)``: the ticket is locked and settled in a transaction of the user's, which he commits himself.

Whether he did is not known when the block ends, so it is asked when the handler has ended: only the database can tell.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from fencerow.errors import ClaimLost, FencerowError, StoreError, UsageError
from fencerow.job.hold import Entrusted, Hold
from fencerow.ops import jobs
from fencerow.store import entrusted
from fencerow.store.protocols import VERDICTS, CommitWish, Protocol, ask_until_decided, refused
from fencerow.store.session import arun_on, run_on
from fencerow.store.stores import AsyncStore, SyncStore
from fencerow.types import Answer, Settlement

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection


def _settle(wish: CommitWish) -> Settlement:
    return Settlement(wish.claim, "complete", result=wish.result)


def _judge(hold: Hold, wish: CommitWish, answer: Answer) -> None:
    if not answer.accepted:
        raise refused(wish.claim, answer)
    assert hold.entrusted is not None
    hold.entrusted.settled = True


@contextmanager
def block(hold: Hold, store: SyncStore, wish: CommitWish, connection: Connection[Any]) -> Iterator[None]:
    """
    Around the user's statements: the ticket is locked at entry and settled at the end.

    Raises:
        ClaimLost: the claim was lost; his transaction must be rolled back, which an exception in it does.
        NotReadCommitted: his transaction's isolation forbids it.  UsageError: the connection does not fit.
    """
    schema = store.target.schema
    try:
        entrusted.check(connection, wanted="Connection")
        hold.entrusted = Entrusted(connection)
        run_on(connection, jobs.enter(wish.claim), schema=schema)
        yield
        hold.check()
        _judge(hold, wish, run_on(connection, jobs.settle([_settle(wish)]), schema=schema)[0])
    except BaseException as error:
        store.follow(_failed(hold, wish, error))
        raise


@asynccontextmanager
async def ablock(
    hold: Hold, store: AsyncStore, wish: CommitWish, connection: AsyncConnection[Any]
) -> AsyncIterator[None]:
    """As block, for an async connection."""
    schema = store.target.schema
    try:
        entrusted.check(connection, wanted="AsyncConnection")
        hold.entrusted = Entrusted(connection)
        await arun_on(connection, jobs.enter(wish.claim), schema=schema)
        yield
        hold.check()
        _judge(hold, wish, (await arun_on(connection, jobs.settle([_settle(wish)]), schema=schema))[0])
    except BaseException as error:
        await store.follow(_failed(hold, wish, error))
        raise


def _failed(hold: Hold, wish: CommitWish, error: BaseException) -> Protocol[None]:
    """Note how the block failed, and keep a refusal whose row his rollback takes away."""
    hold.open_commits.clear()
    hold.entrusted = None
    if isinstance(error, ClaimLost):
        hold.lost = hold.lost or error.verdict
        if error.verdict in VERDICTS:
            try:
                yield jobs.refuse(wish.claim, "commit", error.verdict, error.current)
            except FencerowError:
                pass  # the refusal stands without its row; the handler is told in any case


def learn(hold: Hold, store: SyncStore, *, returned: bool) -> None:
    """
    After the handler has ended: learn whether the transaction that was given the settlement committed it.

    Args:
        returned: whether the handler returned; then work that was not committed is an error of its own.

    Raises:
        UsageError: it returned without having committed, so its work is not done.
        ClaimLost: the claim was lost meanwhile.  StoreError: the database is away; not charged.
    """
    if (given := _given(hold)) is not None:
        if left := entrusted.is_open(given.connection):
            given.connection.close()  # it holds the ticket, and nobody is left to end it
        store.follow(_learnt(hold, returned=returned, left=left))


async def alearn(hold: Hold, store: AsyncStore, *, returned: bool) -> None:
    """As learn, in an event loop."""
    if (given := _given(hold)) is not None:
        if left := entrusted.is_open(given.connection):
            await given.connection.close()  # as above
        await store.follow(_learnt(hold, returned=returned, left=left))


def _given(hold: Hold) -> Entrusted | None:
    return hold.entrusted if hold.entrusted is not None and hold.entrusted.settled else None


def _learnt(hold: Hold, *, returned: bool, left: bool) -> Protocol[None]:
    try:
        state = yield from ask_until_decided(jobs.outcome(hold.claim))
    except StoreError as error:
        hold.trouble = error
        raise
    finally:
        hold.open_commits.clear()
    match state:
        case "accepted":
            hold.committed = True
        case "open" if returned:
            how = "left open, and is rolled back now" if left else "rolled back"
            raise UsageError(
                f"the transaction that job.commit() was given was {how}, so the job is not done",
                hint="Commit it before the handler returns.",
            )
        case "open":
            return
        case _:
            hold.lost = hold.lost or "expired"
            if returned:
                hold.check()
