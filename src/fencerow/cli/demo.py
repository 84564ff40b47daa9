"""`fencerow demo`: the main job on real files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fencerow.cli import exits


def demo(
    path: Annotated[
        Path | None,
        typer.Option(
            "--path", metavar="DIR", help="Hash the files below this folder. [default: Python's library]"
        ),
    ] = None,
) -> None:
    """
    Hash real files with several workers, freeze one of them, and see its late write refused.

    It uses a server of its own that is removed afterwards. Exit code 1 when a file was lost or hashed differently.
    """
    if path is not None and not path.is_dir():
        raise typer.BadParameter("there is no such folder", param_hint="--path")
    from fencerow.demo.main import run

    code = run(path)
    if code != exits.OK:
        raise typer.Exit(code)
