"""What every Python adapter shares: where the workers meet, and the line of JSON that answers the command."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

DSN = os.environ["PEER_DSN"]
FOLDER = Path(os.environ["PEER_FOLDER"])
WHO = os.environ.get("PEER_WHO", "")
LOOK_SECONDS = 0.02


def answer(**facts: object) -> None:
    """Answer the command."""
    sys.stdout.write(json.dumps(facts) + "\n")


def started() -> None:
    """Tell that this worker's handler runs."""
    (FOLDER / f"{WHO}.started").touch()


def may_go() -> bool:
    """Whether this worker's handler may go on."""
    return (FOLDER / f"{WHO}.go").exists()


def returning() -> str:
    """Tell that the handler ends now: A with success, B with a failure."""
    (FOLDER / f"{WHO}.returning").touch()
    if WHO == "B":
        raise RuntimeError("B failed")
    return WHO


async def handle() -> str:
    """The body of an async handler. The word comes from another process, so there is nothing but looking."""
    started()
    while not may_go():  # noqa: ASYNC110
        await asyncio.sleep(LOOK_SECONDS)
    return returning()


def handle_blocking() -> str:
    """The body of a handler in a thread."""
    started()
    while not may_go():
        time.sleep(LOOK_SECONDS)
    return returning()
