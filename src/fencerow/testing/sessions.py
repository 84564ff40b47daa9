"""
Sessions that ask now and are looked at later: how a test orders what two transactions do to each other.

Nothing here sleeps to give the other side time. A session is blocked when the server says so, and each wait has a
deadline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from fencerow.ops.base import Op, Row
from fencerow.store.session import run_on
from fencerow.testing.space import Space

T = TypeVar("T")

PATIENCE_SECONDS = 20.0
"""How long a test waits for a state that has to come; only a fault makes it wait so long."""

_GLANCE_SECONDS = 0.002
_BLOCKERS = "SELECT pg_blocking_pids(%s)"


class Answered(AssertionError):
    """A session was to wait for a lock, and it answered."""


class SessionThread:
    """One connection and the thread that speaks on it, so that a statement can wait while the test goes on."""

    def __init__(self, space: Space, *, name: str = "session", **options: Any) -> None:
        self.space = space
        self.connection = space.connect(name=name, **options)
        self.pid = self.connection.info.backend_pid
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        space.at_end(self.close)

    def start(self, op: Op[T]) -> Asking[T]:
        """Send an operation and return at once."""
        return self.call(lambda: run_on(self.connection, op, schema=self.space.schema))

    def start_sql(self, text: str, params: tuple[Any, ...] = ()) -> Asking[list[Row]]:
        """Send a statement written for the schema ``fencerow`` and return at once."""
        return self.call(lambda: self._execute(text, params))

    def call(self, work: Callable[[], T]) -> Asking[T]:
        """Do any work on the session's thread."""
        asking = Asking[T](self)
        self._work.put(lambda: asking.carry_out(work))
        return asking

    def run(self, op: Op[T]) -> T:
        """Send an operation and wait for its answer."""
        return self.start(op).answer()

    def sql(self, text: str, params: tuple[Any, ...] = ()) -> list[Row]:
        """Send a statement and wait for its rows."""
        return self.start_sql(text, params).answer()

    def begin(self) -> None:
        """Open a READ COMMITTED transaction."""
        self.sql("BEGIN ISOLATION LEVEL READ COMMITTED")

    def commit(self) -> None:
        """Commit it."""
        self.sql("COMMIT")

    def rollback(self) -> None:
        """Roll it back."""
        self.sql("ROLLBACK")

    def close(self) -> None:
        """End the thread, cancelling what it still waits for, and close the connection."""
        self.connection.cancel()
        self._work.put(None)
        self._thread.join(PATIENCE_SECONDS)
        self.connection.close()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _execute(self, text: str, params: tuple[Any, ...]) -> list[Row]:
        sql = self.space.target.sql(text) if params else self.space.sql(text)
        cursor = self.connection.execute(sql.encode(), params or None)
        return cursor.fetchall() if cursor.description else []


class Asking(Generic[T]):
    """A question that a session has sent: it is waiting for a lock, or answered."""

    def __init__(self, session: SessionThread) -> None:
        self._session = session
        self._done = threading.Event()
        self._answer: T | None = None
        self._error: BaseException | None = None

    @property
    def answered(self) -> bool:
        """True when the answer, or an error, has come."""
        return self._done.is_set()

    def wait_until_blocked(self, by: SessionThread | None = None) -> None:
        """Return when the server says that the session waits for a lock (of *by*). Raises when it answers instead."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        space = self._session.space
        while True:
            blockers = space.value(_BLOCKERS, (self._session.pid,))
            if blockers and (by is None or by.pid in blockers):
                return
            if self._done.wait(_GLANCE_SECONDS):
                raise Answered(f"expected it to wait for a lock, and it answered: {self._describe()}")
            if time.monotonic() > deadline:
                raise AssertionError("the session neither waits for a lock nor answers")

    def blocked(self) -> bool:
        """True when it came to wait for a lock before it answered. Raises when it does neither in time."""
        try:
            self.wait_until_blocked()
        except Answered:
            return False
        return True

    def answer(self) -> T:
        """Wait for the answer; raises what the session raised."""
        if not self._done.wait(PATIENCE_SECONDS):
            raise AssertionError(f"no answer in {PATIENCE_SECONDS:.0f} s")
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]

    def error(self) -> BaseException:
        """Wait for the answer, which has to be an error."""
        try:
            found = self.answer()
        except BaseException as error:
            if error is not self._error:
                raise
            return error
        raise AssertionError(f"expected an error, and it answered {found!r}")

    def carry_out(self, work: Callable[[], T]) -> None:
        """Do the work and keep its answer or error; called by the session's thread."""
        try:
            self._answer = work()
        except BaseException as error:  # noqa: BLE001 — it is raised again where the answer is read
            self._error = error
        finally:
            self._done.set()

    def _describe(self) -> str:
        return repr(self._error) if self._error is not None else repr(self._answer)
