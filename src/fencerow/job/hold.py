"""What ties a job object to its claim: whether this process may still act as owner, and why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fencerow.errors import ClaimLost, StoreError
from fencerow.store.protocols import INFRASTRUCTURE, CommitWish, refused
from fencerow.types import Answer, Claim

CHAIN_MAX = 5


@dataclass(eq=False)
class Entrusted:
    """
    A settlement in a transaction of the user's, on his connection.

    Attributes:
        settled: True once it was written there; it counts when he commits.
    """

    connection: Any
    settled: bool = False


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
        entrusted: the user's transaction that was given the settlement, if any.
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
    entrusted: Entrusted | None = None

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

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Around a statement of Fencerow's own: if it fails for a reason that says nothing about the job, note it."""
        try:
            yield
        except StoreError as error:
            self.trouble = error if isinstance(error, INFRASTRUCTURE) else None
            raise
