"""Every error says what happened, has a code that programs can rely on, and explains itself."""

import importlib
import pkgutil

import fencerow
from fencerow.errors import FencerowError


def every_error() -> list[type[BaseException]]:
    """FencerowError and all that derive from it, in whichever module; imports every module on the way."""
    for module in pkgutil.walk_packages(fencerow.__path__, "fencerow."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: dict[type[BaseException], None] = {}
    queue: list[type[BaseException]] = [FencerowError]
    while queue:
        error = queue.pop()
        if error not in found:
            found[error] = None
            queue += error.__subclasses__()
    return list(found)


def unexplained(errors: list[type[BaseException]]) -> list[str]:
    faults = [
        f"{error.__name__} has no docstring of its own"
        for error in errors
        if not error.__dict__.get("__doc__")
    ]
    codes: dict[str, str] = {}
    for error in errors:
        code = error.__dict__.get("code")
        if not isinstance(code, str) or not code:
            faults.append(f"{error.__name__} has no code of its own")
        elif code in codes:
            faults.append(f"{error.__name__} and {codes[code]} share the code {code}")
        else:
            codes[code] = error.__name__
    return faults


def test_every_error_has_a_code_and_a_docstring() -> None:
    assert unexplained(every_error()) == []


def test_the_check_finds_each_fault() -> None:
    class Good(Exception):
        """Says what to do."""

        code = "good"

    class Bare(Good):
        pass

    class Twin(Good):
        """Says what to do."""

        code = "good"

    assert unexplained([Good]) == []
    assert unexplained([Good, Bare]) == ["Bare has no docstring of its own", "Bare has no code of its own"]
    assert unexplained([Good, Twin]) == ["Twin and Good share the code good"]
