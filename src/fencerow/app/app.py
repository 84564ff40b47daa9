"""The App: where jobs go, the registry of tasks, and the producer's calls."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload
from weakref import WeakKeyDictionary

from fencerow import limits
from fencerow.app.batch import Batch, Chunk, in_one_transaction
from fencerow.app.caller import asend_on, check_connection, send_on
from fencerow.app.hosting import Hosting
from fencerow.app.results import Waiting, refuse_in_loop
from fencerow.config import DSN_VARIABLE, check_dsn, embedded_name, redact
from fencerow.errors import ConfigError, DuplicateTask, InvalidName, InvalidValue, NotInstalled, UsageError
from fencerow.handle import Handle
from fencerow.ops import jobs as job_ops
from fencerow.policy import ErrorClasses, sanitise
from fencerow.sql import SCHEMA, check_schema_name
from fencerow.store.migrate import Report, contract, migrate_dsn
from fencerow.store.protocols import resolved
from fencerow.store.session import Target
from fencerow.store.stores import AsyncStore, SyncStore
from fencerow.store.transaction import AsyncTransaction, SyncTransaction
from fencerow.task import options
from fencerow.task.task import BACKOFF, Task, TaskDecorator, check_function, default_name
from fencerow.types import Duration, NewJob, OnLost

if TYPE_CHECKING:
    from fencerow.job import AsyncJob, Job
    from fencerow.server import Embedded

P = ParamSpec("P")
R = TypeVar("R")


class App(Hosting, Waiting):
    """
    One space of jobs and the tasks that they name. Making one connects to nothing.

    Args:
        dsn: of PostgreSQL, ``"embedded"`` or ``"embedded:NAME"`` for the server inside Fencerow, which is started
            at the first use; None reads FENCEROW_DSN.
        schema: of the space.
        pooler: True behind a transaction-mode pooler.
        lease: how long a worker holds jobs without renewing; timedelta or seconds, 1 s … 24 h.

    Raises:
        ConfigError: there is no DSN.  InvalidName, InvalidValue: of schema and lease.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        schema: str = SCHEMA,
        pooler: bool = False,
        lease: Duration = limits.LEASE_SECONDS_DEFAULT,
    ) -> None:
        given = os.environ.get(DSN_VARIABLE) if dsn is None else dsn
        if not given and dsn is None:
            raise ConfigError(
                "App() was given no database", hint=f'Set {DSN_VARIABLE}, or write App("postgresql://…").'
            )
        self.dsn = check_dsn(given)
        self.schema = _checked_schema(schema)
        if not isinstance(pooler, bool):
            raise InvalidValue(f"pooler is of type {type(pooler).__name__}", hint="Give True or False.")
        self.pooler = pooler
        self.lease = options.seconds(
            lease, "lease", least=limits.LEASE_SECONDS_MIN, most=limits.LEASE_SECONDS_MAX
        )
        self.tasks: dict[str, Task[Any, Any]] = {}
        self._lock = threading.RLock()
        self._server: Embedded | None = None
        self._store: SyncStore | None = None
        self._astores: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncStore] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"App({redact(self.dsn)!r}, schema={self.schema!r})"

    @overload
    def task(self, function: Callable[Concatenate[AsyncJob, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Job, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = limits.PRIORITY_DEFAULT,
        max_attempts: int = limits.ATTEMPTS_DEFAULT,
        timeout: Duration | None = limits.TIMEOUT_SECONDS_DEFAULT,
        on_lost: OnLost = "retry",
        retry_on: ErrorClasses | type[Exception] = (),
        fail_on: ErrorClasses | type[Exception] = (),
        backoff: tuple[Duration, Duration] = BACKOFF,
        keep: Duration = limits.KEEP_SECONDS_DEFAULT,
        keep_failed: Duration = limits.KEEP_FAILED_SECONDS_DEFAULT,
        executor: Literal["async", "thread", "process"] | None = None,
        memory: int | None = None,
    ) -> TaskDecorator: ...
    def task(self, *function: Any, **policy: Any) -> Any:
        """
        Make a function a task: ``@app.task`` or ``@app.task(queue="mail", timeout=30)``.

        Args:
            name: what jobs name; ``module.qualname`` unless given. Renaming a task strands the jobs that name it.
            timeout: of one attempt; None: no limit, which also gives up the end of a stuck one.
            on_lost: ``"retry"``, or ``"fail"`` for work that must not be repeated blindly: a person decides.
            retry_on, fail_on: exception classes; the one nearest to the error decides. All others are retried.
            backoff: (base, cap) between attempts.
            keep, keep_failed: how long ended jobs are kept.
            executor: ``"async"``, ``"thread"`` or ``"process"``; None: by the kind of function. A process job is killed, with
                all that it started, when its time or its lease is over.
            memory: bytes of address space that a process job may use.

        Raises:
            DuplicateTask: the name is taken.  InvalidName, InvalidValue, ConfigError: what is possible instead.
        """
        return self._make(*function, **policy) if function else partial(self._make, **policy)

    def _make(
        self,
        function: object,
        /,
        *,
        name: str | None = None,
        retry_on: ErrorClasses | type[Exception] = (),
        fail_on: ErrorClasses | type[Exception] = (),
        executor: Literal["async", "thread", "process"] | None = None,
        memory: int | None = None,
        **policy: Any,
    ) -> Task[Any, Any]:
        handler = check_function(function)
        task: Task[Any, Any] = Task(
            handler,
            app=self,
            policy=options.policy(default_name(handler) if name is None else name, **policy),
            retry_on=options.check_error_classes(retry_on, "retry_on"),
            fail_on=options.check_error_classes(fail_on, "fail_on"),
            executor=executor,
            memory=memory,
        )
        return self._register(task)

    def _register(self, task: Task[Any, Any]) -> Task[Any, Any]:
        if task.name in self.tasks:
            raise DuplicateTask(
                f"two functions claim the task name {task.name}", hint='Give one of them @app.task(name="…").'
            )
        self.tasks[task.name] = task
        return task

    def enqueue_many(self, jobs: Iterable[NewJob], *, connection: Any = None) -> list[Handle[Any]]:
        """
        Enqueue many jobs made by ``task.bind(…)``: all of them, or none. The handles are aligned with the jobs.

        An iterator is read as it is sent, in an open transaction once there are more than ENQUEUE_BATCH_MAX jobs, so that
        its jobs need not be in memory together: let it make jobs and wait for nothing. A key that appears again with the
        same work answers the same job.

        Raises:
            DuplicateInBatch: a key appears again with other work; nothing was enqueued.
            See Task.enqueue for the others.
        """
        refuse_in_loop("enqueue", "aenqueue")
        if connection is not None:
            check_connection(connection, wanted="Connection")
        batch = Batch()
        first, rest = _split(batch.chunks(jobs))
        if first is None:
            return []
        if connection is not None:
            send_on(connection, batch, first, rest, self.schema)
        elif rest is None:
            batch.take(first, self.store().follow(resolved(job_ops.enqueue(first.jobs))))
        else:
            transaction = SyncTransaction(self.store(), in_one_transaction(batch, chain([first], rest)))
            transaction.open()
            transaction.close(None)
        return [Handle(answer.id, answer.created, self) for answer in batch.aligned()]

    async def aenqueue_many(self, jobs: Iterable[NewJob], *, connection: Any = None) -> list[Handle[Any]]:
        """As enqueue_many, in an event loop."""
        if connection is not None:
            check_connection(connection, wanted="AsyncConnection")
        batch = Batch()
        first, rest = _split(batch.chunks(jobs))
        if first is None:
            return []
        if connection is not None:
            await asend_on(connection, batch, first, rest, self.schema)
        elif rest is None:
            store = await self.ready()
            batch.take(first, await store.follow(resolved(job_ops.enqueue(first.jobs))))
        else:
            transaction = AsyncTransaction(
                await self.ready(), in_one_transaction(batch, chain([first], rest))
            )
            await transaction.open()
            await transaction.close(None)
        return [Handle(answer.id, answer.created, self) for answer in batch.aligned()]

    def cancel(self, job_id: int, *, reason: str | None = None) -> str:
        """
        Cancel a job: ``cancelled``, ``requested`` (it runs and is asked to stop), the state it ended in before, or
        ``unknown``.
        """
        refuse_in_loop("cancel", "acancel")
        return self.store().follow(
            resolved(job_ops.cancel(options.check_job_id(job_id), reason=_reason(reason)))
        )

    async def acancel(self, job_id: int, *, reason: str | None = None) -> str:
        """As cancel, in an event loop."""
        operation = job_ops.cancel(options.check_job_id(job_id), reason=_reason(reason))
        return await (await self.ready()).follow(resolved(operation))

    def redrive(self, job_id: int) -> str:
        """A failed job back to ``ready`` with a fresh budget; else the state it is in, or ``unknown``."""
        refuse_in_loop("redrive", "aredrive")
        return self.store().run(job_ops.redrive(options.check_job_id(job_id)))

    async def aredrive(self, job_id: int) -> str:
        """As redrive, in an event loop."""
        return await (await self.ready()).run(job_ops.redrive(options.check_job_id(job_id)))

    def migrate(self) -> Report:
        """Bring the space to this release's schema; what was done. Raises MigrationFailed."""
        return migrate_dsn(self._located(), self.schema)

    def move(self, dsn: str, *, schema: str | None = None) -> None:
        """
        Mean another database, for a program that was told one (``--dsn``). Before the first use only.

        Raises:
            UsageError: this app is in use.
        """
        with self._lock:
            if self._store is not None or self._server is not None or self._astores:
                raise UsageError("this app has a database in use", hint="Move it before its first use.")
            self.dsn = check_dsn(dsn)
            self.schema = self.schema if schema is None else _checked_schema(schema)

    def target(
        self, *, name: str = "fencerow", statement_seconds: float = limits.STATEMENT_TIMEOUT_SECONDS
    ) -> Target:
        """Where sessions connect, under *name* in pg_stat_activity; starts the embedded server if that is meant."""
        return Target(
            self._located(),
            schema=self.schema,
            name=name,
            pooler=self.pooler,
            statement_seconds=statement_seconds,
        )

    def store(self) -> SyncStore:
        """The connections of this process's threads; a fork has its own."""
        if self._store is None:
            with self._lock:
                if self._store is None:
                    self._store = SyncStore(self.target())
        return self._store

    def astore(self) -> AsyncStore:
        """The connections of the running event loop, one store for each loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            store = self._astores.get(loop)
            if store is None:
                store = self._astores[loop] = AsyncStore(self.target())
        return store

    async def ready(self) -> AsyncStore:
        """As astore, when the embedded server, if that is meant, has started."""
        if self._server is None and embedded_name(self.dsn) is not None:
            await asyncio.to_thread(self._located)  # a start may take seconds
        return self.astore()

    def _located(self) -> str:
        """A DSN that the driver understands."""
        name = embedded_name(self.dsn)
        if name is None:
            return self.dsn
        with self._lock:
            if self._server is None:
                self._server = self._start(name)
            return self._server.dsn

    def _start(self, name: str) -> Embedded:
        from fencerow.server import embedded

        def prepare(dsn: str) -> None:
            migrate_dsn(dsn, self.schema)

        server = embedded(name, prepare=prepare)
        try:
            store = SyncStore(Target(server.dsn, schema=self.schema))
            try:
                store.run(contract())
            except NotInstalled:
                prepare(server.dsn)  # another space in a data folder that was made for a first one
            finally:
                store.close()
        except BaseException:
            server.close()
            raise
        return server

    def close(self) -> None:
        """
        Close the idle connections of this process's threads, those that ended event loops left, and leave the embedded
        server. The app can be used again.
        """
        with self._lock:
            store, self._store = self._store, None
            server, self._server = self._server, None
        self.abandon_loops(ended=True)
        if store is not None:
            store.close()
        if server is not None:
            server.close()

    async def aclose(self) -> None:
        """As close, and the connections of the running loop."""
        await self.leave_loop()
        self.close()

    def abandon_loops(self, *, ended: bool) -> None:
        """Close the connections of event loops from outside: of those that have *ended*, or of all, none of which runs."""
        with self._lock:
            left = [self._astores.pop(loop) for loop in list(self._astores) if loop.is_closed() or not ended]
        for store in left:
            store.abandon()

    async def leave_loop(self) -> None:
        """Close the connections of the running loop alone: before it ends."""
        with self._lock:
            store = self._astores.pop(asyncio.get_running_loop(), None)
        if store is not None:
            await store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _split(chunks: Iterator[Chunk]) -> tuple[Chunk | None, Iterator[Chunk] | None]:
    """The first chunk, and the others; None where there is none."""
    first = next(chunks, None)
    second = next(chunks, None) if first is not None else None
    return first, None if second is None else chain([second], chunks)


def _checked_schema(schema: object) -> str:
    if not isinstance(schema, str):
        raise InvalidName(
            f"a schema name of type {type(schema).__name__} is not possible", hint="Give a string."
        )
    return check_schema_name(schema)


def _reason(reason: str | None) -> str | None:
    return None if reason is None else sanitise(str(reason), limits.REASON_CHARACTERS_MAX)
