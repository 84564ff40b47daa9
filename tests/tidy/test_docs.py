"""What the documents point at exists, and what is generated is up to date."""

import re

import pytest

from tests.tidy.sources import ROOT
from tools import links, transitions

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
# A path in a table cell: begins with a folder of the project, ends with a suffix or a slash.
PATH = re.compile(
    r"`((?:src|sql|tests|docs|tools|bench|ops|store|worker|app|task|job|cli|server|testing)/[\w/.*-]+)"
)


def missing_paths(table: str) -> list[str]:
    """Paths named in backticks that exist neither from the root nor below the package."""
    bases = (ROOT, ROOT / "src" / "fencerow")
    named = [match.rstrip(".") for match in PATH.findall(table)]
    return [path for path in named if not any(list(base.glob(path)) for base in bases)]


def rule_table(text: str) -> str:
    """The section `Where is the rule`, up to the next heading."""
    found = re.search(
        r"^#+ +Where is the rule.*?$(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL | re.IGNORECASE
    )
    assert found, "ARCHITECTURE.md has no section `Where is the rule?`"
    return found[1]


def test_the_state_machine_page_is_what_the_sql_headers_say() -> None:
    assert transitions.generate() == transitions.PAGE.read_text(), "run `make docs`"


def test_the_page_shows_each_clause_of_a_header() -> None:
    text = (
        "-- finish: running -> done\n-- fence:   hold()\n-- plan:    one probe,\n--          by key\nCREATE"
    )

    assert transitions.parse(text) == {
        "name": "finish",
        "transition": "running -> done",
        "fence": "hold()",
        "plan": "one probe, by key",
    }
    assert "| [`finish`](#finish) | running | done | hold() |" in transitions.page([transitions.parse(text)])


def test_every_relative_link_leads_somewhere() -> None:
    assert [fault for page in links.pages() for fault in links.broken(page, page.read_text())] == []


def test_a_dead_link_and_a_dead_anchor_are_found() -> None:
    page = ROOT / "STYLE.md"
    text = "# One two\n[a](nowhere.md) [b](#one-two) [c](#three) [d](https://example.org)\n```\n[e](no.md)\n```\n"

    assert links.broken(page, text) == [
        "STYLE.md: nowhere.md does not exist",
        "STYLE.md: #three has no such heading",
    ]


def test_every_path_in_the_rule_table_exists() -> None:
    if not ARCHITECTURE.exists():
        pytest.skip("ARCHITECTURE.md is not written yet")
    table = rule_table(ARCHITECTURE.read_text())

    assert PATH.search(table)
    assert missing_paths(table) == []


def test_a_missing_path_is_found() -> None:
    table = rule_table(
        "# A\n## Where is the rule?\n| `sql/jobs/claim.sql` | `tests/no.py` |\n## B\n`docs/no.md`"
    )

    assert missing_paths(table) == ["tests/no.py"]
