"""
Payloads and results ⇄ JSON text. What is enqueued is what the handler gets, or it is refused with its place.

Plain values (the default) are those that JSON gives back as they were: dict with string keys, list, str, int, float,
bool, None. A tuple, set, date, Decimal, Enum, bytes or object of a class is refused there: the parameter's annotation has
to say so, then fencerow.task converts both ways. No message repeats a value.
"""

from __future__ import annotations

import json
import re
import sys
from enum import Enum
from typing import Any

import msgspec

from fencerow import limits
from fencerow.errors import InvalidPayload, PayloadTooDeep, PayloadTooLarge

_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,39}", re.ASCII)
_FLOAT_WRITTEN_AS_INT = 1e16
"""From here on Python and msgspec write floats with an exponent, which jsonb gives back as an integer."""


class _Fault(Exception):
    """A fault on its way up; each container adds its step to the path."""

    def __init__(self, kind: type[InvalidPayload], message: str, hint: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint
        self.steps: list[str | int] = []


class Typed:
    """Marks a value made by builtins_of(): its tuples are arrays, because an annotation converts them back."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def step(key: str | int) -> str:
    """One step of a path: ``[2]``, ``.name``, or ``["a key"]`` cut to 40 characters."""
    if isinstance(key, int):
        return f"[{key}]"
    if _IDENTIFIER.fullmatch(key):
        return f".{key}"
    return f"[{json.dumps(key[:40])}]"


class _Plain:
    """Copies a value into plain JSON values, checking each; ``left`` is the size still allowed, counted from below."""

    __slots__ = ("_left", "_limit", "_loose", "_what")

    def __init__(self, limit: int, what: str, *, loose: bool) -> None:
        self._limit = limit
        self._left = limit
        self._what = what
        self._loose = loose

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _Fault(PayloadTooLarge, f"the {self._what} has more than {self._limit} bytes", _LARGE_HINT)

    def value(self, value: Any, depth: int = 1) -> Any:
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind is bool or value is None:
            self._spend(4)
            return value
        if kind is int:
            self._spend(1)
            if not -limits.INT64_MAX - 1 <= value <= limits.INT64_MAX:
                raise _Fault(InvalidPayload, "an integer beyond 64 bits", "Send it as a string.")
            return value
        if kind is float:
            return self._float(value)
        if kind is dict:
            return self._dict(value, depth)
        if kind is list or (self._loose and kind in (tuple, set, frozenset)):
            return self._list(value, depth)
        return self._other(value, kind, depth)

    def _text(self, value: str) -> str:
        self._spend(len(value) + 2)
        if "\0" in value:
            raise _Fault(InvalidPayload, "U+0000", "PostgreSQL cannot store it; remove it.")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise _Fault(
                    InvalidPayload,
                    f"a lone surrogate U+{ord(value[error.start]):04X}",
                    "Send bytes as base64 text.",
                ) from None
        return value

    def _float(self, value: float) -> Any:
        self._spend(1)
        if value != value or value in (float("inf"), float("-inf")):
            raise _Fault(InvalidPayload, "NaN or Infinity, which JSON has not", "Send None or a string.")
        if abs(value) >= _FLOAT_WRITTEN_AS_INT:
            return msgspec.Raw(format(value, ".1f").encode())
        return value

    def _enter(self, depth: int) -> None:
        self._spend(2)
        if depth > limits.PAYLOAD_DEPTH_MAX:
            raise _Fault(
                PayloadTooDeep,
                f"the {self._what} nests deeper than {limits.PAYLOAD_DEPTH_MAX} levels",
                "Flatten it, or store it and send its id.",
            )

    def _dict(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        self._enter(depth)
        plain: dict[str, Any] = {}
        for key, entry in value.items():
            if type(key) is not str:
                raise _Fault(InvalidPayload, f"a key of type {type(key).__name__}", "JSON keys are strings.")
            try:
                plain[self._text(key)] = self.value(entry, depth + 1)
            except _Fault as fault:
                fault.steps.append(key)
                raise
        return plain

    def _list(self, value: Any, depth: int) -> list[Any]:
        self._enter(depth)
        plain: list[Any] = []
        place = 0
        try:
            for entry in value:
                plain.append(self.value(entry, depth + 1))
                place += 1
        except _Fault as fault:
            fault.steps.append(place)
            raise
        return plain

    def _other(self, value: Any, kind: type, depth: int) -> Any:
        if kind is Typed:
            before, self._loose = self._loose, True
            try:
                return self.value(value.value, depth)
            finally:
                self._loose = before
        if not isinstance(value, Enum):
            # Subclasses such as a marked-up string or numpy.float64 are values of their base.
            if isinstance(value, str):
                return self._text(str.__str__(value))
            if isinstance(value, int):
                return self.value(int.__int__(value), depth)
            if isinstance(value, float):
                return self._float(float.__float__(value))
        if self._loose:
            try:
                return self.value(builtins_of(value), depth)
            except (TypeError, ValueError, RecursionError):
                pass  # refused below, like any other type
        raise _Fault(
            InvalidPayload,
            f"a value of type {kind.__name__[:80]}, which JSON would not give back as it was",
            "Annotate the parameter with its type, or send plain values.",
        )


_LARGE_HINT = "Store it and send its id."


def is_model(kind: object) -> bool:
    """True for a pydantic model class; pydantic is never imported for the question."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _model_builtins(value: Any) -> Any:
    if is_model(type(value)):
        return value.model_dump(
            mode="json", by_alias=True, round_trip=True, warnings="none"
        )  # a warning quotes values
    raise TypeError(f"{type(value).__name__} has no JSON form")


def builtins_of(value: Any) -> Any:
    """
    A typed value (dataclass, Struct, model, date, UUID, Decimal, Enum, bytes …) as dict, list, tuple, str and numbers,
    sets in sorted order, so that equal values give equal text.

    Raises:
        TypeError: something in it has no JSON form.
    """
    return msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_model_builtins)


def encode(value: Any, *, limit: int, what: str = "payload", loose: bool = False) -> str:
    """
    *value* as JSON text of at most *limit* bytes (UTF-8).

    Args:
        what: what it is, for messages.
        loose: write tuples and sets as arrays, and dates, UUIDs, Decimals, Enums and dataclasses as text or objects,
            instead of refusing them: for values that nobody reads back by type.

    Raises:
        PayloadTooLarge: found by counting, before anything is serialised, or by its exact size after.
        PayloadTooDeep: beyond PAYLOAD_DEPTH_MAX levels; so is a value that holds itself.
        InvalidPayload: U+0000, a lone surrogate, NaN or Infinity, an integer beyond 64 bits, a key that is no string, or
            a value that JSON would change; with its path.
    """
    try:
        plain = _Plain(limit, what, loose=loose).value(value)
    except _Fault as fault:
        path = "$" + "".join(step(key) for key in reversed(fault.steps[-limits.PAYLOAD_DEPTH_MAX :]))
        raise fault.kind(fault.message, path=path, hint=fault.hint) from None
    text = msgspec.json.encode(plain)
    if len(text) > limit:
        raise PayloadTooLarge(
            f"the {what} has {len(text)} bytes, at most {limit} are possible", hint=_LARGE_HINT
        )
    return text.decode()


def decode(text: str | bytes, *, what: str = "payload") -> Any:
    """
    JSON text as plain values.

    Raises:
        InvalidPayload: it is not JSON; the message says where, never what.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        position = re.search(r"byte (\d+)", str(error))
        where = f" (byte {position[1]})" if position else ""
        raise InvalidPayload(f"the {what} is not JSON{where}") from None
    except RecursionError:
        raise PayloadTooDeep(f"the {what} nests too deep to be read") from None
    except UnicodeError:
        raise InvalidPayload(f"the {what} is not UTF-8") from None


def canonical(text: str) -> bytes:
    """JSON text with sorted keys: equal for payloads that differ in the order of their keys only."""
    return msgspec.json.encode(decode(text), order="sorted")
