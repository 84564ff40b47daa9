"""
Draw the picture of the README: the demo, run in a real terminal (tmux), its last screen as SVG.

``python tools/picture.py docs/demo.svg``; needs tmux.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 118, 16
SESSION = "fencerow-picture"
SECONDS = 180


def screen() -> str:
    """Run the demo to its end; the screen with its colours."""
    tmux = shutil.which("tmux")
    if tmux is None:
        raise SystemExit("tmux is needed to draw the picture")
    command = f"printf '$ make demo\\n'; {sys.executable} -m fencerow demo; printf '%s\\n' ended; sleep 600"
    subprocess.run(
        [tmux, "new-session", "-d", "-s", SESSION, "-x", str(COLUMNS), "-y", str(ROWS), command], check=True
    )
    try:
        deadline = time.monotonic() + SECONDS
        while True:
            shot = subprocess.run(
                [tmux, "capture-pane", "-p", "-e", "-t", SESSION], capture_output=True, text=True, check=True
            ).stdout
            if re.search(r"^ended$", shot, re.MULTILINE):
                return shot.replace("\nended", "")
            if time.monotonic() > deadline:
                raise SystemExit("the demo did not end")
            time.sleep(0.2)
    finally:
        subprocess.run([tmux, "kill-session", "-t", SESSION], check=False)


def main() -> None:
    """Write the SVG."""
    target = Path(sys.argv[1])
    here = str(Path(sys.base_prefix))
    text = Text.from_ansi(screen().rstrip().replace(here, "/usr"))
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(text)
    svg = console.export_svg(title="make demo")
    target.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
