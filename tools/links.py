"""
Verifies every relative link and anchor in the Markdown files, and prints the ones that lead nowhere.

Links to other sites are not followed: a check that needs the network fails for reasons that are not ours.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def pages() -> list[Path]:
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "bench").rglob("*.md")),
    ]


def anchor(heading: str) -> str:
    """The id that a heading gets: its words in lower case, joined by hyphens, without marks."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")


def broken(page: Path, text: str) -> list[str]:
    faults = []
    for target in LINK.findall(FENCED.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists():
            faults.append(f"{page.relative_to(ROOT)}: {target} does not exist")
        elif fragment and path.suffix == ".md":
            body = text if path == page else path.read_text()
            if fragment not in {anchor(heading) for heading in HEADING.findall(FENCED.sub("", body))}:
                faults.append(f"{page.relative_to(ROOT)}: {target} has no such heading")
    return faults


def main() -> int:
    faults = [fault for page in pages() for fault in broken(page, page.read_text())]
    print("\n".join(faults) or f"{len(pages())} pages, every relative link leads somewhere")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
