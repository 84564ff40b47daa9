"""The demo's app and its one task. The database is named by FENCEROW_DSN, the folder by FENCEROW_DEMO_FOLDER."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import unquote_to_bytes

from fencerow import App, Job

FOLDER_VARIABLE = "FENCEROW_DEMO_FOLDER"
BLOCK_BYTES = 256 * 1024

app = App(os.environ.get("FENCEROW_DSN") or "embedded:demo")


def digest(path: Path, check: object = None) -> str:
    """SHA-256 of a file; *check* is called before each block."""
    state = hashlib.sha256()
    with path.open("rb") as file:
        while True:
            if callable(check):
                check()
            block = file.read(BLOCK_BYTES)
            if not block:
                return state.hexdigest()
            state.update(block)


@app.task(queue="files", max_attempts=5, timeout=60)
def hash_file(job: Job, name: str) -> str:
    """SHA-256 of one file below the folder; *name* is percent-encoded, because a file name need not be text."""
    folder = os.fsencode(os.environ[FOLDER_VARIABLE])
    return digest(Path(os.fsdecode(os.path.join(folder, unquote_to_bytes(name)))), job.check)
