"""An App from its name ``module:attribute``, imported as the program in the current folder would import it."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from fencerow.config import DSN_VARIABLE
from fencerow.errors import ConfigError, FencerowError

if TYPE_CHECKING:
    from fencerow.app import App


def load_app(ref: str, *, dsn: str | None = None) -> App:
    """
    Import the App *ref*, with the current folder first on ``sys.path``.

    Args:
        dsn: what a bare ``App()`` in it reads where FENCEROW_DSN is not set.

    Raises:
        ConfigError: the module is not found or fails in its own code, the attribute is missing or no App.
    """
    from fencerow.app import App

    module, _, attribute = ref.partition(":")
    if (
        not module
        or not attribute
        or not all(part.isidentifier() for part in (module + "." + attribute).split("."))
    ):
        raise ConfigError(
            "an app is named as module:attribute", hint="For `app = App(…)` in shop.py: shop:app"
        )
    if dsn is not None:
        os.environ.setdefault(DSN_VARIABLE, dsn)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found: object = _imported(module)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigError(
                f"module {module} has no {attribute}", hint="Name the variable that holds the App."
            ) from None
    if not isinstance(found, App):
        raise ConfigError(
            f"{ref} is of type {type(found).__name__}, not an App",
            hint="Name the variable that holds the App.",
        )
    return found


def _imported(module: str) -> object:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(error.name + ".")):
            raise ConfigError(
                f"there is no module {error.name}", hint="Start in the folder that holds it, or install it."
            ) from error
        raise ConfigError(
            f"module {module} needs the module {error.name}", hint="Install that one."
        ) from error
    except FencerowError as error:
        raise ConfigError(f"module {module} cannot be imported: {error}") from error
    except Exception as error:
        # Its message may quote what the module reads: settings, secrets. Kind and place are enough to find it.
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"module {module} cannot be imported: {type(error).__name__} at {Path(last.filename).name}:{last.lineno}",
            hint="Import it with python to see all, or set FENCEROW_TRACEBACK=1.",
        ) from error
