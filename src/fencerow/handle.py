"""What an enqueue returns: a job, to cancel it or to wait for what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from fencerow.types import Duration

R = TypeVar("R")


class Owner(Protocol):
    """Who answers for a job by its id; an App."""

    def cancel(self, job_id: int, *, reason: str | None = None) -> str: ...

    async def acancel(self, job_id: int, *, reason: str | None = None) -> str: ...

    def result(self, job_id: int, *, timeout: Duration | None = None, task: str | None = None) -> Any: ...

    async def aresult(
        self,
        job_id: int,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109 - it says how patient to be, and is the same as in result()
        task: str | None = None,
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class Handle(Generic[R]):
    """
    A job that was enqueued; ``R`` is what its task returns.

    Attributes:
        id: of the job. Where a key was held, of the job that holds it.
        created: True when this call created the job.
    """

    id: int
    created: bool
    _app: Owner = field(repr=False, compare=False)
    _task: str | None = field(default=None, repr=False, compare=False)

    def cancel(self, *, reason: str | None = None) -> str:
        """Cancel it; see App.cancel."""
        return self._app.cancel(self.id, reason=reason)

    async def acancel(self, *, reason: str | None = None) -> str:
        """As cancel, in an event loop."""
        return await self._app.acancel(self.id, reason=reason)

    def result(self, *, timeout: Duration | None = None) -> R:
        """
        Wait for the job to end; what its handler returned, as the task's return annotation says.

        Args:
            timeout: timedelta or seconds; None waits for as long as it takes. 0 looks once.

        Raises:
            JobFailed, JobCancelled: it ended so. After a redrive the newest run counts.
            JobGone: there is no such job: purged, or its transaction is not committed.
            ResultTimeout: it has not ended in time.
            UsageError: an event loop runs in this thread; await aresult() there.
        """
        return self._app.result(self.id, timeout=timeout, task=self._task)  # type: ignore[no-any-return]

    async def aresult(self, *, timeout: Duration | None = None) -> R:  # noqa: ASYNC109 - as above
        """As result, in an event loop."""
        return await self._app.aresult(self.id, timeout=timeout, task=self._task)  # type: ignore[no-any-return]
