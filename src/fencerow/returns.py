"""
What a function returns, as its annotation says: to JSON text and back to the same kind of value.

Without an annotation the value is plain JSON: a tuple comes back as a list, fresh or stored alike. Used for results of jobs
and of steps.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from fencerow import codec
from fencerow.errors import ConfigError, InvalidPayload, PayloadTooDeep
from fencerow.types import Cancel, Fail, Retry, Snooze

_OUTCOMES = (Retry, Snooze, Fail, Cancel)
_ANYTHING = (Any, object, inspect.Parameter.empty, typing.NoReturn, typing.Never)


class Returned:
    """
    The return annotation of a function.

    Args:
        function: any callable; outcomes such as Retry are left out of its annotation.
        name: what it is, for messages.

    Raises:
        ConfigError: the annotation names what does not exist when it runs, or cannot be read from JSON.
    """

    __slots__ = ("_decoder", "_name", "_plain")

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._name = name
        annotation = _annotation(function, name)
        self._plain = annotation is Any
        try:
            self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(annotation, dec_hook=_model_value)
            unreadable = _unreadable(annotation)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"what {name} returns cannot be read from JSON: {str(error)[:200]}") from None
        if unreadable is not None:
            raise ConfigError(
                f"{name} returns {unreadable}, which has no JSON form",
                hint="Return an id, a plain value, a dataclass, or a msgspec or pydantic model.",
            )

    def encode(self, value: Any, *, limit: int, what: str) -> str:
        """
        *value* as JSON text of at most *limit* bytes.

        Raises:
            InvalidPayload, PayloadTooLarge, PayloadTooDeep: it cannot be stored.
        """
        if not self._plain:
            try:
                value = codec.Typed(codec.builtins_of(value))
            except RecursionError:
                raise PayloadTooDeep(f"the {what} nests too deep") from None
            except (TypeError, ValueError):
                pass  # refused below, with its place
        return codec.encode(value, limit=limit, what=what, loose=True)

    def decode(self, text: str) -> Any:
        """
        The value that JSON text stands for.

        Raises:
            InvalidPayload: it is not what the annotation says; with the path, without the value.
        """
        try:
            return self._decoder.decode(text)
        except msgspec.ValidationError as error:
            fault, _, path = str(error).partition(" - at `")
            told = f"refused by its class ({type(error.__cause__).__name__})" if error.__cause__ else fault
            raise InvalidPayload(
                f"what {self._name} returned does not fit its annotation: {told[:200]}",
                path=path.rstrip("`")[:300] or "$",
            ) from None


def _annotation(function: Callable[..., Any], name: str) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = getattr(type(function), "__call__", function)  # noqa: B004 - its annotation is wanted
    plain = inspect.unwrap(function)
    given = getattr(plain, "__annotations__", {}).get("return", Any)

    def asked() -> None: ...

    # Alone, because its parameters may be known to type checkers only.
    asked.__annotations__ = {"return": Any if given is inspect.Parameter.empty else given}
    try:
        found = typing.get_type_hints(asked, globalns=getattr(plain, "__globals__", {}), include_extras=True)[
            "return"
        ]
    except NameError as error:
        raise ConfigError(
            f"what {name} returns is annotated with {error.name!r}, which does not exist when it runs",
            hint="Import it outside TYPE_CHECKING, at the top of the module.",
        ) from None
    return _without_outcomes(found)


def _without_outcomes(annotation: Any) -> Any:
    if typing.get_origin(annotation) in (Awaitable, Coroutine):
        annotation = typing.get_args(annotation)[-1]
    if isinstance(annotation, typing.TypeVar) or any(annotation is kind for kind in _ANYTHING):
        return Any
    members: tuple[Any, ...] = (annotation,)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = typing.get_args(annotation)
    left = [member for member in members if member not in _OUTCOMES]
    # A handler that returns nothing may still give a result by job.commit().
    if left in ([], [type(None)]) or any(member in (Any, object) for member in left):
        return Any
    return typing.Union[tuple(left)]  # noqa: UP007 - made at run time


def _unreadable(annotation: Any) -> str | None:
    """A class in an annotation that neither msgspec nor pydantic reads, by name."""
    open_: list[object] = [msgspec.inspect.type_info(annotation)]
    seen: set[int] = set()
    while open_:
        part = open_.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if (
            isinstance(part, msgspec.inspect.CustomType)
            and part.cls is not object
            and not codec.is_model(part.cls)
        ):
            return str(getattr(part.cls, "__qualname__", part.cls))[:80]
        if isinstance(part, msgspec.Struct):
            open_.extend(getattr(part, name) for name in part.__struct_fields__)
        elif isinstance(part, tuple | list):
            open_.extend(part)
    return None


def _model_value(kind: type, value: Any) -> Any:
    if kind is object:
        return value
    if not codec.is_model(kind):
        raise TypeError(f"{kind.__name__} has no JSON form")
    return kind.model_validate_json(msgspec.json.encode(value))  # type: ignore[attr-defined]
