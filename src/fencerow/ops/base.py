"""A database operation is a value: its name, SQL, parameters and how to read the answer. No I/O here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Op(Generic[T]):
    """
    One statement, and one transaction unless a caller's connection runs it.

    Attributes:
        name: as in logs, traces and errors.
        sql: written for the schema ``fencerow``, with ``%s`` for the parameters.
        decode: rows → answer.
        writes: False when losing its reply loses nothing.
        again: True when it may be sent again after its reply was lost and then answers truly.
    """

    name: str
    sql: str
    params: Sequence[Any]
    decode: Callable[[list[Row]], T]
    writes: bool = True
    again: bool = True


def int_array(values: Iterable[int]) -> str:
    """An integer array as PostgreSQL reads it: several times faster than adapting a list element by element."""
    return "{" + ",".join(map(str, values)) + "}"


def nothing(_: list[Row]) -> None:
    """Decode an answer that says nothing."""


def scalar(rows: list[Row]) -> Any:
    """Decode the one value of the one row."""
    return rows[0][0]
