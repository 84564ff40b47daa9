"""
What a handler keeps and starts across its attempts: the results of its steps, and the keys of its children. No I/O here.

A handler is taken to do the same steps in the same order in every attempt: a step is known by its name, its place and its
function, and whatever differs from what was kept stops the job instead of answering with a value that means something else.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from fencerow import codec, limits, names
from fencerow.errors import InvalidInput, StepMismatch, UsageError
from fencerow.job.hold import Hold
from fencerow.ops import jobs
from fencerow.returns import Returned
from fencerow.store.protocols import Protocol, resolved
from fencerow.types import Enqueued, KeptStep, NewJob

PAGE = 100
"""Steps read at once: it bounds the memory that a resumed job takes to a few MiB."""

GENTLE = ("shutdown", "timeout", "cancel_requested")
"""Reasons to stop that leave the claim in force: what a step has just done is still kept, then the handler stops."""

_in_step: ContextVar[bool] = ContextVar("fencerow_in_step", default=False)


@dataclass(frozen=True, slots=True)
class Step:
    """One call of ``job.step()``."""

    place: int
    name: str
    code: str
    returned: Returned


class Keeping:
    """The steps and children of one attempt."""

    __slots__ = ("_at_end", "_children", "_hold", "_kept", "_names", "_places", "_read_to")

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._places = itertools.count(1)
        self._names: set[str] = set()
        self._kept: dict[int, KeptStep] = {}
        self._read_to = 0
        self._at_end = hold.claim.generation <= 1  # nobody held it before
        self._children: Counter[tuple[str, str]] = Counter()

    def begin(self, name: str, function: Callable[..., Any]) -> Step:
        """
        Take the next place for a step.

        Raises:
            ClaimLost: see job.check().  StepMismatch: its name was used before in this attempt.
            UsageError, InvalidName, InvalidInput, ConfigError: it cannot be a step; nothing has run.
        """
        self._may_add("a step")
        names.check_key(name, "a step's name")
        step = Step(next(self._places), name, code_of(function), Returned(function, f"step {name!r}"))
        if step.place > limits.STEPS_MAX:
            raise InvalidInput(
                f"a job has at most {limits.STEPS_MAX} steps", hint="Enqueue children for the rest."
            )
        if name in self._names:
            raise StepMismatch(f"step {name!r} was taken twice in one attempt")
        self._names.add(name)
        return step

    def find(self, step: Step) -> Protocol[str | None]:
        """
        What an earlier attempt kept for a step, as JSON text, or None.

        Raises:
            StepMismatch: something else was kept at its place, or its name at another one.
        """
        while not self._at_end and step.place > self._read_to:
            rows: list[KeptStep] = yield from resolved(
                jobs.kept_steps(self._hold.claim.job_id, after=self._read_to, limit=PAGE)
            )
            self._kept.update((row.place, row) for row in rows)
            self._at_end = len(rows) < PAGE
            self._read_to = max(self._read_to, rows[-1].place) if rows else self._read_to
        found = self._kept.pop(step.place, None)
        if found is None:
            other = next((row for row in self._kept.values() if row.name == step.name), None)
            if other is not None:
                raise StepMismatch(
                    f"step {step.name!r} is number {step.place} now and was number {other.place} when it was kept"
                )
            return None
        if found.name != step.name:
            raise StepMismatch(
                f"step number {step.place} is {step.name!r} now and was kept as {found.name!r}"
            )
        if found.code != step.code:
            raise StepMismatch(f"step {step.name!r} calls {step.code} now and was kept by {found.code}")
        return found.result

    def keep(self, step: Step, value: Any) -> Protocol[Any]:
        """
        Keep what a step returned; the value as every later attempt will get it.

        Raises:
            ClaimLost: refused, nothing was kept.  InvalidPayload, PayloadTooLarge: it cannot be stored.
        """
        text = step.returned.encode(value, limit=limits.STEP_BYTES_MAX, what="step's result")
        same = step.returned.decode(text)
        hold = self._hold
        if hold.lost not in GENTLE or not hold.trusted():
            hold.check()
        answer = yield from resolved(jobs.keep_step(hold.claim, step.place, step.name, step.code, text))
        hold.judge(answer)
        hold.check()
        return same

    def child(self, job: NewJob, key: str) -> NewJob:
        """
        The child to send for *job*: with an idempotency key that is the same in every attempt, unless it has its own.

        Args:
            key: the parent's idempotency key.
        """
        self._may_add("a child")
        if not isinstance(job, NewJob):
            raise UsageError(
                f"a child of type {type(job).__name__} was given", hint="Make it with task.bind(…)."
            )
        if job.idempotency_key is not None:
            return job
        digest = hashlib.sha256(codec.canonical(job.payload)).hexdigest()[:16]
        self._children[job.task, digest] += 1
        full = f"{key}/child/{job.task}/{digest}/{self._children[job.task, digest]}"
        if len(full) > limits.KEY_CHARACTERS_MAX:
            full = f"child/{hashlib.sha256(full.encode()).hexdigest()}"
        return replace(job, idempotency_key=full)

    def start(self, job: NewJob) -> Protocol[Enqueued]:
        """Send a child under the fence. Raises ClaimLost: nothing was enqueued."""
        answer, child = yield from resolved(jobs.enqueue_child(self._hold.claim, job))
        self._hold.judge(answer)
        if child is None:
            raise RuntimeError("the database accepted a child and named none")
        return child

    def _may_add(self, what: str) -> None:
        if _in_step.get():
            raise UsageError(
                f"{what} was begun inside a step", hint="Take steps and children one after another."
            )
        if self._hold.committed or self._hold.open_commits:
            raise UsageError(
                f"{what} was begun in or after job.commit(), which ends the job",
                hint="Do it before; enqueue inside it by task.using(connection=tx.connection).",
            )
        self._hold.check()


@contextmanager
def inside_step() -> Iterator[None]:
    """Marks that the function of a step runs: steps and children inside it would lose their order."""
    token = _in_step.set(True)
    try:
        yield
    finally:
        _in_step.reset(token)


def code_of(function: Callable[..., Any]) -> str:
    """``module.qualname`` of a callable, at most 500 characters; of a partial, of what it calls."""
    while isinstance(function, functools.partial):
        function = function.func
    if not callable(function):
        raise UsageError(
            f"a step of type {type(function).__name__} was given", hint="Give the function and its arguments."
        )
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"[-500:]
