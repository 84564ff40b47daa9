"""Where what comes back from JSON differs from what was given: the proof that a typed argument survives the way."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from fencerow.codec import step


def difference(given: Any, got: Any) -> str | None:
    """
    The path of the first difference of type or value, ``""`` for the value itself; None when there is none.

    An int may come back as the float that equals it, a subclass as the equal value of its base.
    """
    if given is got:
        return None
    if isinstance(got, msgspec.Struct) and type(given) is type(got):
        return _parts({name: (getattr(given, name), getattr(got, name)) for name in got.__struct_fields__})
    if dataclasses.is_dataclass(got) and not isinstance(got, type) and type(given) is type(got):
        names = [field.name for field in dataclasses.fields(got)]
        return _parts({name: (getattr(given, name, None), getattr(got, name, None)) for name in names})
    if isinstance(got, dict) and isinstance(given, dict):
        if given.keys() != got.keys():
            return ""
        return _parts({str(key): (given[key], got[key]) for key in got})
    if isinstance(got, list | tuple):
        if type(given) is not type(got) or len(given) != len(got):
            return ""
        return _parts(dict(enumerate(zip(given, got, strict=True))))
    fits = isinstance(given, type(got)) or (type(given) is int and type(got) is float)
    try:
        return None if fits and bool(given == got) else ""
    except Exception:  # noqa: BLE001 (an __eq__ of the user's; whatever it raises, equality is not proven)
        return ""


def _parts(pairs: dict[Any, tuple[Any, Any]]) -> str | None:
    for name, (given, got) in pairs.items():
        place = difference(given, got)
        if place is not None:
            return step(name) + place
    return None
