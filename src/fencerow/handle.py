"""What an enqueue returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

R = TypeVar("R")


class Canceller(Protocol):
    """Who can cancel a job by its id; an App."""

    def cancel(self, job_id: int, *, reason: str | None = None) -> str: ...

    async def acancel(self, job_id: int, *, reason: str | None = None) -> str: ...


@dataclass(frozen=True, slots=True)
class Handle(Generic[R]):
    """
    A job that was enqueued; ``R`` is what its task returns.

    Attributes:
        id: of the job. Where a key was held, of the job that holds it.
        created: True when this call created the job. False for a job that was there, and after a lost reply for one that
            was found by asking again.
    """

    id: int
    created: bool
    _app: Canceller = field(repr=False, compare=False)

    def cancel(self, *, reason: str | None = None) -> str:
        """Cancel it; see App.cancel."""
        return self._app.cancel(self.id, reason=reason)

    async def acancel(self, *, reason: str | None = None) -> str:
        """As cancel, in an event loop."""
        return await self._app.acancel(self.id, reason=reason)
