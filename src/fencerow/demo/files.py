"""The list of files, fixed before anything starts."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote_from_bytes


@dataclass(slots=True)
class Listing:
    """Names relative to the folder, percent-encoded, and what was left out."""

    folder: Path
    names: list[str] = field(default_factory=list)
    links: int = 0
    caches: int = 0
    unreadable: int = 0
    special: int = 0

    @property
    def left_out(self) -> str:
        """What was left out, in words."""
        return f"{self.caches} in __pycache__, {self.links} links, {self.unreadable} unreadable, {self.special} special files"

    def path(self, name: str) -> Path:
        """The file of a name."""
        from urllib.parse import unquote_to_bytes

        return Path(os.fsdecode(os.path.join(os.fsencode(self.folder), unquote_to_bytes(name))))


def listing(folder: Path) -> Listing:
    """Every readable regular file below *folder*, sorted; links are not followed."""
    found = Listing(folder)
    root = os.fsencode(folder)
    for place, folders, files in os.walk(root):
        for name in list(folders):
            if os.path.islink(os.path.join(place, name)):
                folders.remove(name)
                found.links += 1
            elif name == b"__pycache__":
                folders.remove(name)
                found.caches += sum(len(inside) for _, _, inside in os.walk(os.path.join(place, name)))
        for name in files:
            _note(found, root, os.path.join(place, name))
    found.names.sort()
    return found


def _note(found: Listing, root: bytes, path: bytes) -> None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        found.unreadable += 1
        return
    if stat.S_ISLNK(mode):
        found.links += 1
    elif not stat.S_ISREG(mode):
        found.special += 1
    elif not os.access(path, os.R_OK):
        found.unreadable += 1
    else:
        found.names.append(quote_from_bytes(os.path.relpath(path, root)))
