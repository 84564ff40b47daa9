"""``@app.task``: a function that stays callable, and that can be enqueued with exactly its own arguments."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from fencerow import codec, limits
from fencerow.errors import ConfigError, UsageError
from fencerow.handle import Handle
from fencerow.policy import ErrorClasses
from fencerow.returns import Returned
from fencerow.task import options
from fencerow.task.options import NONE, UNSET, Options, Unset
from fencerow.task.signature import Call, Signature, job_parameter
from fencerow.types import Duration, NewJob, OnLost, TaskPolicy, Unique

if TYPE_CHECKING:
    from fencerow.job import AsyncJob, Job

P = ParamSpec("P")
R = TypeVar("R")
BACKOFF = (limits.BACKOFF_BASE_SECONDS, limits.BACKOFF_CAP_SECONDS)


class Enqueuer(Protocol):
    """Who sends new jobs to a space; an App."""

    def enqueue_many(self, jobs: Iterable[NewJob], *, connection: Any = None) -> list[Handle[Any]]: ...

    async def aenqueue_many(self, jobs: Iterable[NewJob], *, connection: Any = None) -> list[Handle[Any]]: ...


@dataclass(frozen=True, slots=True)
class Calls(Generic[P, R]):
    """A task together with what ``using()`` said about its next jobs; may be kept and used many times."""

    task: Task[P, R]
    options: Options

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The job that this call would enqueue, for ``enqueue_many``; its connection is given there."""
        return self.options.job(self.task.policy, self.task.encode(args, kwargs))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """As Task.enqueue."""
        handles = self.task.app.enqueue_many([self.bind(*args, **kwargs)], connection=self.options.connection)
        return cast("Handle[R]", handles[0])

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """As Task.aenqueue."""
        jobs = [self.bind(*args, **kwargs)]
        handles = await self.task.app.aenqueue_many(jobs, connection=self.options.connection)
        return cast("Handle[R]", handles[0])


class Task(Generic[P, R]):
    """
    A function under a name, with its policy. ``P`` are its parameters without the job, ``R`` is what it returns.

    Attributes:
        name: what jobs name; ``module.qualname`` unless given.
        function: the handler itself.
        is_async: it runs on the event loop.
        takes_job: its first parameter receives the running job.
        executor: ``"async"`` (on the loop), ``"thread"``, or ``"process"``: a child of its own, killed with all that it
            started when its time or its lease is over.
        memory: bytes of address space of a process job; None: no bound.
        retry_on, fail_on: exception classes that decide against the rule, see policy.decide().
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        app: Enqueuer,
        policy: TaskPolicy,
        retry_on: ErrorClasses = (),
        fail_on: ErrorClasses = (),
        executor: Literal["async", "thread", "process"] | None = None,
        memory: int | None = None,
    ) -> None:
        self.function = function
        self.app = app
        self.policy = policy
        self.name = policy.name
        self.is_async = inspect.iscoroutinefunction(function)
        self.executor = options.check_executor(executor, is_async=self.is_async)
        self.memory = options.check_memory(memory, executor=self.executor)
        self.retry_on = options.check_error_classes(retry_on, "retry_on")
        self.fail_on = options.check_error_classes(fail_on, "fail_on")
        if set(self.retry_on) & set(self.fail_on):
            raise ConfigError(f"task {self.name}: a class is in retry_on and in fail_on", hint="Choose one.")
        job = job_parameter(function, self.name)
        fitting = "AsyncJob" if self.is_async else "Job"
        if job is not None and job != fitting:
            kind = "async" if self.is_async else "sync"
            raise ConfigError(f"task {self.name}: a handler that is {kind} takes {fitting}, not {job}")
        self.takes_job = job is not None
        self._signature = Signature(function, task=self.name, takes_job=self.takes_job)
        self._returned: Returned | None = None
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the plain function, job included if it takes one; nothing is enqueued."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The payload of a call with these arguments. Raises InvalidPayload with the path of the fault."""
        return self._signature.bind(args, dict(kwargs))

    def load(self, payload: str) -> Call:
        """
        The arguments (positional, by name) that a payload stands for, converted by annotation; without the job.

        Raises:
            InvalidPayload: this handler cannot take it; with the path, without the value.
        """
        return self._signature.load(payload)

    def encode_result(self, value: Any) -> str:
        """
        What the handler returned, as JSON text for the database.

        Tuples and sets become arrays; dates, UUIDs, Decimals, Enums, dataclasses and models become text or objects.

        Raises:
            InvalidPayload, PayloadTooLarge: it cannot be stored.
        """
        return codec.encode(value, limit=limits.RESULT_BYTES_MAX, what="result", loose=True)

    def load_result(self, text: str) -> R:
        """
        What the handler returned, from the JSON text that is kept, as its return annotation says.

        Raises:
            InvalidPayload: it does not fit the annotation.  ConfigError: the annotation cannot be read from JSON.
        """
        if self._returned is None:
            self._returned = Returned(self.function, f"task {self.name}")
        return cast("R", self._returned.decode(text))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """
        The job that this call would enqueue, for ``enqueue_many``; nothing is sent.

        Raises:
            InvalidPayload: an argument is missing, unknown, of a wrong type, or cannot be stored; with its path.
        """
        return Calls(self, NONE).bind(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """
        Enqueue a call of this task, as a transaction of its own unless ``using(connection=…)`` gives one.

        Raises:
            InvalidPayload: see bind().  UsageError: an event loop runs in this thread; await aenqueue() there.
            Duplicate, IdempotencyConflict: a key is held.  CommitUncertain: the reply was lost and no key was given.
            StoreError: the database refused or is away; nothing was done.
        """
        return Calls(self, NONE).enqueue(*args, **kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """As enqueue, in an event loop."""
        return await Calls(self, NONE).aenqueue(*args, **kwargs)

    def using(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        run_at: datetime | None = None,
        run_in: Duration | None = None,
        unique: Unique | None = None,
        max_attempts: int | None = None,
        timeout: Duration | Unset = UNSET,
        on_lost: OnLost | None = None,
        tags: Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        connection: Any = None,
    ) -> Calls[P, R]:
        """
        Say more about the next jobs than their arguments.

        Args:
            priority: lower runs sooner.
            run_at: not before this instant; it has a time zone.
            run_in: not before this time from the moment the database gets the enqueue (its clock, also inside a long
                transaction); timedelta or seconds.
            unique: at most one live job holds this key.
            max_attempts, timeout, on_lost: instead of the task's.
            tags: at most 20.  headers: strings by name, at most 16 KiB.
            idempotency_key: the same enqueue may be sent again and answers the same job.
            connection: your psycopg connection (sync with enqueue, async with aenqueue): the job commits or rolls back
                with your transaction.

        Raises:
            InvalidName, InvalidValue, InvalidPayload: which one, and what is possible.
        """
        return Calls(
            self,
            options.given(
                queue=queue,
                priority=priority,
                run_at=run_at,
                run_in=run_in,
                unique=unique,
                max_attempts=max_attempts,
                timeout=timeout,
                on_lost=on_lost,
                tags=tags,
                headers=headers,
                idempotency_key=idempotency_key,
                connection=connection,
            ),
        )


class TaskDecorator(Protocol):
    """What ``@app.task(…)`` returns; the job, which the worker gives, is no parameter of the task."""

    @overload
    def __call__(self, function: Callable[Concatenate[AsyncJob, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Job, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


def default_name(function: Callable[..., Any]) -> str:
    """
    ``module.qualname``. In a program that is run as a file, the name under which that file would be imported: a worker
    that imports it finds its tasks. Give ``name=`` where that is not its name, as for a file inside a package.

    Raises:
        ConfigError: the program is no file that a worker could import, as an interactive session.
    """
    module = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), Path(getattr(main, "__file__", ""))
        if spec is None and not (file.suffix == ".py" and file.stem.isidentifier()):
            raise ConfigError(
                "a task of this program has no name, because no worker could import the program",
                hint='Give @app.task(name="…").',
            )
        module = file.stem if spec is None else spec.name
    return f"{module}.{function.__qualname__}"


def check_function(function: object) -> Callable[..., Any]:
    """
    A plain function, async or not.

    Raises:
        UsageError: a class, a method, a generator, or something else that a worker could not run by its name alone.
    """
    if not inspect.isfunction(function):
        raise UsageError(
            f"@app.task was put on a {type(function).__name__}",
            hint="Put it on a function, with app.task as the outermost.",
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{function.__qualname__} is a generator", hint="A task returns, it does not yield.")
    first = next(iter(inspect.signature(function).parameters), None)
    if first in ("self", "cls"):
        raise UsageError(
            f"{function.__qualname__} is a method", hint="Make it a function, or a staticmethod inside."
        )
    return function
