"""What an App offers around its handlers: hooks around each attempt, and a worker inside another asyncio program."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fencerow import limits
from fencerow.errors import UsageError
from fencerow.types import Duration

if TYPE_CHECKING:
    from fencerow.job import AsyncJob, Job

    Hook = Callable[[AsyncJob | Job], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]

H = TypeVar("H", bound="Callable[[Any], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]")
Queues = Mapping[str, int | None] | Iterable[str]


class Inside(Protocol):
    """A worker that runs inside this process."""

    @property
    def name(self) -> str:
        """As it is registered in the database."""
        ...

    @property
    def running(self) -> bool:
        """False once it has ended, also by itself: its database or schema is gone for good, which is logged."""
        ...


class Hosting:
    """The part of App that hosts attempts."""

    hooks: tuple[Hook, ...] = ()

    def around(self, hook: H) -> H:
        """
        Enter ``hook(job)``, a context manager, around each attempt of every task, in the order of registration.

        Async handlers take sync and async context managers, sync handlers (in their thread) sync ones. What a hook raises
        counts as the attempt's error; a hook cannot swallow what the handler raises. May be used as a decorator.
        """
        if not callable(hook):
            raise UsageError(f"a hook of type {type(hook).__name__} was given", hint="Give a function.")
        self.hooks = (*self.hooks, hook)
        return hook

    def worker(
        self,
        *,
        queues: Queues | None = None,
        concurrency: int = limits.CONCURRENCY_DEFAULT,
        grace: Duration = limits.GRACE_SECONDS_DEFAULT,
        lease: Duration | None = None,
        name: str | None = None,
        ref: str | None = None,
    ) -> AbstractAsyncContextManager[Inside]:
        """
        Run a worker in this event loop for as long as the block lasts: ``async with app.worker(): …``.

        It works from the block's beginning on, installs no signal handlers, and drains at the end. A handler that blocks
        the loop blocks the program.

        Args:
            queues: names, or a mapping from name to slots of its own (None: shares *concurrency*); None: the queues of
                this app's tasks.
            grace: how long running jobs may go on at the end.  lease: instead of the app's.
            ref: ``module:name`` of this app, for processes that run suspect jobs alone; None: found by itself. An app
                that cannot be imported leaves suspects to other workers.

        Raises:
            FencerowError: the worker cannot start: wrong password, schema missing or behind. A database that is away is
                waited for.
        """
        # By name, because the worker stands above the app; importing it is what asking for one means.
        inside = import_module("fencerow.worker.inside")
        settings = inside.settings_of(
            self, queues=queues, concurrency=concurrency, grace=grace, lease=lease, name=name, ref=ref
        )
        found: AbstractAsyncContextManager[Inside] = inside.running(self, settings)
        return found

    def lifespan(self, **settings: Any) -> Callable[[object], AbstractAsyncContextManager[None]]:
        """
        The same worker for an ASGI program: ``FastAPI(lifespan=app.lifespan(queues=["mail"]))``. Takes what worker() takes.
        """

        @asynccontextmanager
        async def lifespan(_: object) -> AsyncIterator[None]:
            async with self.worker(**settings):
                yield

        return lifespan
