"""
How an operation becomes a transaction, without I/O: generators that yield statements and receive rows or errors.

The async and the sync session drive the same generators, so nothing is written twice. An operation goes as a single
statement where the session's default isolation allows it; if the database answers QF001 (a stricter default), it is sent
again inside BEGIN ISOLATION LEVEL READ COMMITTED, and the session keeps to that.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fencerow.errors import NotReadCommitted, StoreError
from fencerow.ops.base import Op, Row
from fencerow.store.classify import Phase

T = TypeVar("T")

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"


@dataclass(frozen=True, slots=True)
class Statement:
    """One round trip; ``phase`` says what losing its reply means."""

    name: str
    sql: str
    params: Sequence[Any] | None
    phase: Phase


Steps = Generator[Statement, list[Row], T]


def single(op: Op[T]) -> Steps[T]:
    """The operation as a transaction of its own, under the session's default isolation."""
    return op.decode(
        (yield Statement(op.name, op.sql, op.params, Phase.COMMIT if op.writes else Phase.INSIDE))
    )


def explicit(op: Op[T]) -> Steps[T]:
    """The operation inside a transaction that says READ COMMITTED itself."""
    yield Statement("begin", BEGIN, None, Phase.INSIDE)
    try:
        rows = yield Statement(op.name, op.sql, op.params, Phase.INSIDE)
        answer = op.decode(rows)
    except BaseException:
        try:
            yield Statement("rollback", "ROLLBACK", None, Phase.INSIDE)
        except StoreError:
            pass
        raise
    yield Statement(op.name, "COMMIT", None, Phase.COMMIT if op.writes else Phase.INSIDE)
    return answer


class Isolation:
    """Remembers whether the server's default isolation needs explicit transactions."""

    __slots__ = ("strict_default",)

    def __init__(self) -> None:
        self.strict_default = False

    def transact(self, op: Op[T]) -> Steps[T]:
        """The operation as one transaction in READ COMMITTED, by the cheapest form that holds."""
        if not self.strict_default:
            try:
                return (yield from single(op))
            except NotReadCommitted:
                self.strict_default = True
        return (yield from explicit(op))
