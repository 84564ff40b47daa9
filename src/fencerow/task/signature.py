"""
A task's parameters: what they are, how a call becomes a payload, and how a payload becomes a call again.

The payload is a JSON object of arguments by name. Arguments that are not given are left out: the handler's own default
holds when it runs. ``*args`` and ``**kwargs`` have no names to be stored under and are refused.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from fencerow import codec, limits
from fencerow.errors import ConfigError, InvalidPayload, PayloadTooDeep
from fencerow.task.compare import difference

Call = tuple[list[Any], dict[str, Any]]

_JOB_CLASSES = {"AsyncJob", "Job"}
_JOB_TEXT = re.compile(r"(?:\w+\.)*(AsyncJob|Job)")
_FIT_HINT = "Send what the task's parameters are annotated with."
_PLAIN_TYPES = (Any, str, int, float, bool, None, type(None), dict, list)


class Parameter(NamedTuple):
    """One parameter of a task. ``plain``: its annotation holds only what JSON gives back as it was."""

    name: str
    annotation: Any
    required: bool
    positional_only: bool
    plain: bool


_JOB_MODULE = "fencerow.job.job"
"""Where the job classes stand: compared by name, because tasks are not to load what a handler needs only in a worker."""


def job_parameter(function: Callable[..., Any], task: str) -> str | None:
    """
    Which job class the first parameter asks for: ``"AsyncJob"``, ``"Job"`` or None.

    Raises:
        ConfigError: it is called ``job`` without an annotation, or the job stands elsewhere.
    """
    found: str | None = None
    for place, parameter in enumerate(inspect.signature(function).parameters.values()):
        asked = _job_class(parameter.annotation)
        if place == 0:
            found = asked
            if asked is None and parameter.name == "job" and parameter.annotation is parameter.empty:
                raise ConfigError(
                    f"task {task}: its first parameter is called job and has no annotation",
                    hint="Annotate it with AsyncJob (async) or Job (sync), or rename it.",
                )
        elif asked is not None:
            raise ConfigError(f"task {task}: the job is not its first parameter", hint="Put the job first.")
    return found


def _job_class(annotation: Any) -> str | None:
    if isinstance(annotation, str):
        found = _JOB_TEXT.fullmatch(annotation.strip("'\" "))
        return found[1] if found else None
    if getattr(annotation, "__module__", None) == _JOB_MODULE and annotation.__name__ in _JOB_CLASSES:
        return str(annotation.__name__)
    return None


class Signature:
    """
    The parameters of one handler, without its job.

    Annotations are resolved at the decoration if all their names exist by then, else at the first use.
    """

    __slots__ = ("_decoder", "_function", "_parameters", "_positional", "_signature", "_task")

    def __init__(self, function: Callable[..., Any], *, task: str, takes_job: bool) -> None:
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[1 if takes_job else 0 :]
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                mark = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
                raise ConfigError(
                    f"task {task}: {mark}{parameter.name} has no names to be stored under",
                    hint="Name every parameter; for many values take one list or dict.",
                )
        self._function = function
        self._task = task
        self._signature = signature.replace(parameters=parameters, return_annotation=signature.empty)
        self._positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        self._parameters: dict[str, Parameter] | None = None
        self._decoder: msgspec.json.Decoder[Any] | None = None
        try:
            self._resolve()
        except NameError:
            pass  # a class defined further down; _resolve() is asked again at the first use

    @property
    def parameters(self) -> dict[str, Parameter]:
        """By name, in order. Raises ConfigError when an annotation means nothing."""
        if self._parameters is None:
            try:
                self._resolve()
            except NameError as error:
                raise ConfigError(
                    f"task {self._task}: an annotation names {error.name!r}, which does not exist when it runs",
                    hint="Import it outside TYPE_CHECKING, at the top of the module.",
                ) from None
        assert self._parameters is not None
        return self._parameters

    def _resolve(self) -> None:
        hints = self._hints()
        parameters: dict[str, Parameter] = {}
        for name, given in self._signature.parameters.items():
            annotation = hints.get(name, Any)
            _check_annotation(annotation, self._task, name)
            parameters[name] = Parameter(
                name,
                annotation,
                given.default is given.empty,
                given.kind is given.POSITIONAL_ONLY,
                _is_plain(annotation),
            )
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
            (f"p{place}", entry.annotation)
            if entry.required
            else (f"p{place}", entry.annotation, msgspec.UNSET)
            for place, entry in enumerate(parameters.values())
        ]
        rename = {f"p{place}": name for place, name in enumerate(parameters)}
        struct = msgspec.defstruct("Payload", fields, rename=rename, forbid_unknown_fields=True, kw_only=True)
        self._decoder = msgspec.json.Decoder(struct, dec_hook=_model_value)
        self._parameters = parameters

    def _hints(self) -> dict[str, Any]:
        # Of these parameters alone: the job's class and what is returned may be known to type checkers only.
        def asked() -> None: ...

        asked.__annotations__ = {
            name: Any if entry.annotation in (entry.empty, object) else entry.annotation
            for name, entry in self._signature.parameters.items()
        }
        scope = getattr(inspect.unwrap(self._function), "__globals__", {})
        try:
            return typing.get_type_hints(asked, globalns=scope, include_extras=True)
        except (AttributeError, TypeError, SyntaxError) as error:
            raise ConfigError(
                f"task {self._task}: an annotation means nothing: {error}", hint="Name a type that exists."
            ) from None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """
        A call's arguments as payload: validated against names and types, encoded, and read back as the worker will.

        Raises:
            InvalidPayload: an argument is missing, unknown, of the wrong type, or cannot be stored; with its path.
        """
        parameters = self.parameters
        arguments = self._by_name(args, kwargs)
        plain: dict[str, Any] = {}
        typed = False
        for name, value in arguments.items():
            if parameters[name].plain:
                plain[name] = value
                continue
            typed = True
            plain[name] = codec.Typed(_builtins(value, name))
        text = codec.encode(plain, limit=limits.PAYLOAD_BYTES_MAX)
        call = self._read(text)
        if typed:
            for name, value in arguments.items():
                place = None if parameters[name].plain else difference(value, call[name])
                if place is not None:
                    raise InvalidPayload(
                        "a value that the annotation would not give back as it was",
                        path=f"$.{name}{place}",
                        hint=_FIT_HINT,
                    )
        return text

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if not kwargs and len(args) == len(self._positional) == len(self._signature.parameters):
            return dict(zip(self._positional, args, strict=True))
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidPayload(f"task {self._task}: {error}", hint=f"It takes {self._shown()}.") from None

    def _shown(self) -> str:
        return "(" + ", ".join(self._signature.parameters) + ")"

    def load(self, text: str | bytes) -> Call:
        """
        The positional and keyword arguments that a payload stands for, converted by annotation.

        Raises:
            InvalidPayload: the handler cannot take it; with the path, without the value.
        """
        parameters = self.parameters
        found = self._read(text)
        places = [entry.name for entry in parameters.values() if entry.positional_only]
        given = [name for name in places if name in found]
        if given != places[: len(given)]:
            raise InvalidPayload("an argument before it is missing", path=f"$.{given[-1]}", hint=_FIT_HINT)
        return [found.pop(name) for name in given], found

    def _read(self, text: str | bytes) -> dict[str, Any]:
        names = self.parameters
        assert self._decoder is not None
        try:
            struct = self._decoder.decode(text)
        except msgspec.ValidationError as error:
            raise _misfit(error) from None
        except msgspec.DecodeError:
            codec.decode(text)  # says where
            raise InvalidPayload("the payload cannot be read") from None
        except RecursionError:
            raise PayloadTooDeep("the payload nests too deep to be read") from None
        except UnicodeError:
            raise InvalidPayload("the payload is not UTF-8") from None
        values = ((name, getattr(struct, f"p{place}")) for place, name in enumerate(names))
        return {name: value for name, value in values if value is not msgspec.UNSET}


def _builtins(value: Any, name: str) -> Any:
    try:
        return codec.builtins_of(value)
    except RecursionError:
        raise PayloadTooDeep("the payload nests too deep", path=f"$.{name}") from None
    except UnicodeError:
        raise InvalidPayload("a lone surrogate", path=f"$.{name}") from None
    except (TypeError, ValueError):
        raise InvalidPayload(
            "a value that has no JSON form",
            path=f"$.{name}",
            hint="Send dates, UUIDs, Decimals, Enums, dataclasses, msgspec or pydantic models, or plain values.",
        ) from None


class _RefusedByModel(ValueError):
    """What a model refused: places and kinds of faults, without the values."""


def _model_value(kind: type, value: Any) -> Any:
    if not codec.is_model(kind):
        raise TypeError(f"{kind.__name__} has no JSON form")
    try:
        return kind.model_validate_json(msgspec.json.encode(value))  # type: ignore[attr-defined]
    except ValueError as error:
        faults = error.errors(include_input=False, include_url=False, include_context=False)  # type: ignore[attr-defined]
        told = [f"{'.'.join(map(str, fault['loc'])) or 'it'}: {fault['type']}" for fault in faults[:5]]
        raise _RefusedByModel("; ".join(told)[:300]) from None


def _misfit(error: msgspec.ValidationError) -> InvalidPayload:
    text, _, path = str(error).partition(" - at `")
    if isinstance(error.__cause__, _RefusedByModel):
        text = f"its model refuses it: {error.__cause__}"
        path = str(error).rpartition(" - at `")[2]
    elif error.__cause__ is not None:
        text, path = (
            f"its class refuses it with {type(error.__cause__).__name__}",
            str(error).rpartition(" - at `")[2],
        )
    elif text.startswith(("Invalid enum value", "Invalid value")):
        text = "Not one of the possible values"
    found = re.fullmatch(r"(?:key` in `)?(\$[^`]*)`", path)
    return InvalidPayload(text[:300], path=found[1][:300] if found else "$", hint=_FIT_HINT)


def _is_plain(annotation: Any) -> bool:
    if annotation in _PLAIN_TYPES:
        return True
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _is_plain(arguments[0])
    if origin is typing.Literal:
        return all(type(value) in (str, int, bool, type(None)) for value in arguments)
    if origin is dict:
        return arguments[0] in (str, Any) and _is_plain(arguments[1])
    if origin in (list, typing.Union, types.UnionType):
        return all(_is_plain(argument) for argument in arguments)
    return False


def _check_annotation(annotation: Any, task: str, name: str) -> None:
    try:
        info = msgspec.inspect.type_info(annotation)
        msgspec.json.Decoder(annotation, dec_hook=_model_value)
    except NameError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"task {task}: parameter {name} cannot be read from JSON: {str(error)[:200]}"
        ) from None
    for kind in _custom_classes(info):
        if not codec.is_model(kind):
            shown = getattr(kind, "__qualname__", str(kind))[:80]
            raise ConfigError(
                f"task {task}: parameter {name} holds {shown}, which has no JSON form",
                hint="Take an id, a plain value, a dataclass, or a msgspec or pydantic model.",
            )


def _custom_classes(info: object) -> Iterator[Any]:
    """Classes in a type description that msgspec itself cannot read."""
    open_: list[object] = [info]
    seen: set[int] = set()
    while open_:
        part = open_.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, msgspec.inspect.CustomType):
            yield part.cls
        elif isinstance(part, msgspec.Struct):
            open_.extend(getattr(part, field) for field in part.__struct_fields__)
        elif isinstance(part, tuple | list):
            open_.extend(part)
