"""
Generates docs/state-machine.md from the headers of the SQL files, the only place that states a transition.

Usage: transitions.py [--write | --check]    without either, prints the page
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "src" / "fencerow" / "sql" / "jobs"
PAGE = ROOT / "docs" / "state-machine.md"
CLAUSES = ("fence", "locks", "params", "returns", "plan")
# The order of a job's life, which the page follows; what is not named here comes after, by name.
ORDER = (
    *("enqueue", "enqueue_many", "promote", "claim", "adopt", "renew", "progress", "keep_step"),
    *("enqueue_child", "enter"),
    *("complete", "retry", "snooze", "fail", "cancelled", "release", "lost", "outcome"),
    *("expire", "cancel", "redrive", "purge"),
)
INTRODUCTION = """\
# State machine

Generated from the headers of `src/fencerow/sql/jobs/*.sql` by `make docs`; `make check` fails when it is
behind.

The state of a job is the table that holds its ticket: `scheduled`, `ready`, `running`, or `ended` (with
outcome `done`, `failed` or `cancelled`). Each transition is one SQL function in one file of the same name;
Python, psql and every other client call these functions, and nothing else moves a job.
"""


def parse(text: str) -> dict[str, str]:
    """Header of one file: name, transition and the clauses, continuation lines joined by a space."""
    parts: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        key, colon, rest = line[2:].strip().partition(":")
        if not parts and colon:
            parts = {"name": key, "transition": rest.strip()}
            last = "transition"
        elif colon and key in CLAUSES and not line.startswith("--  "):
            parts[key] = rest.strip()
            last = key
        elif last:
            parts[last] += " " + line[2:].strip()
    return parts


def page(headers: list[dict[str, str]]) -> str:
    def place(header: dict[str, str]) -> tuple[int, str]:
        name = header["name"]
        return (ORDER.index(name) if name in ORDER else len(ORDER), name)

    headers = sorted(headers, key=place)
    moves = [header for header in headers if "->" in header["transition"]]
    lines = [INTRODUCTION, "## Transitions", "", "| function | from | to | fence |", "|---|---|---|---|"]
    for header in moves:
        before, _, after = header["transition"].partition("->")
        cells = (
            f"[`{header['name']}`](#{header['name']})",
            before,
            after.replace("->", "→"),
            header.get("fence", ""),
        )
        lines.append("| " + " | ".join(cell.strip().replace("|", "or") for cell in cells) + " |")
    lines += ["", "## Each function", ""]
    for header in headers:
        lines += [f"### {header['name']}", "", header["transition"].replace("->", "→"), ""]
        lines += [f"- {clause}: {_prose(header[clause])}" for clause in CLAUSES if clause in header]
        lines.append(f"- source: [{header['name']}.sql](../src/fencerow/sql/jobs/{header['name']}.sql)")
        lines.append("")
    return "\n".join(lines)


def _prose(text: str) -> str:
    """Identifiers with underscores would be read as emphasis, angle brackets as tags."""
    return text.replace("_", "\\_").replace("<", "&lt;").replace("*", "\\*")


def generate() -> str:
    return page([parse(path.read_text()) for path in sorted(FOLDER.glob("*.sql"))])


def main(arguments: list[str]) -> int:
    text = generate()
    match arguments:
        case ["--write"]:
            PAGE.write_text(text)
            return 0
        case ["--check"]:
            if PAGE.exists() and PAGE.read_text() == text:
                return 0
            print(f"{PAGE.relative_to(ROOT)} is behind the SQL headers. Run `make docs` and commit the page.")
            return 1
        case []:
            print(text, end="")
            return 0
        case _:
            print((__doc__ or "").strip(), file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
