"""Reading the SQL for a schema of another name changes the qualifier and nothing else, token by token."""

from collections.abc import Iterator

import pytest
from pglast.parser import scan

from fencerow import sql
from tests.tidy.sources import named, sql_files

NAMES = {
    "plain": "jobs",
    "quoted": 'it\'s "odd" %s',
    "capitals": "Fencerow",
    "wide": "очередь",
    "prefix": "fencerow_2",
}


def tokens(text: str) -> Iterator[str]:
    """The words of SQL without its comments; a dollar-quoted body is read as SQL itself."""
    for token in scan(text):
        if token.name in {"SQL_COMMENT", "C_COMMENT"}:
            continue
        word = text[token.start : token.end + 1]
        if word.startswith("$") and len(word) > 2 and word.endswith("$"):
            tag = word[: word.index("$", 1) + 1]
            yield tag
            yield from tokens(word[len(tag) : -len(tag)])
        else:
            yield word


def changes(text: str, other: str) -> set[tuple[str, str]]:
    """Pairs of words that differ between two texts of the same length in words."""
    return {(a, b) for a, b in zip(tokens(text), tokens(other), strict=True) if a != b}


@pytest.mark.parametrize("schema", NAMES.values(), ids=NAMES)
def test_only_the_qualifier_changes(schema: str) -> None:
    identifier = sql.quote_identifier(schema)
    for path in sql_files():
        text = path.read_text()
        for before, after in changes(text, sql.requalify(text, schema)):
            if before.startswith("'fencerow."):
                expected = "'" + (identifier + before[len("'fencerow") : -1]).replace("'", "''") + "'"
            else:
                expected = identifier if before == "fencerow" else before
            assert after == expected, f"{named(path)}: {before}"


@pytest.mark.parametrize("schema", NAMES.values(), ids=NAMES)
def test_nothing_of_the_default_schema_is_left(schema: str) -> None:
    left = [
        f"{named(path)}: {word}"
        for path in sql_files()
        for word in tokens(sql.requalify(path.read_text(), schema))
        if word == "fencerow" or word.startswith("'fencerow.")
    ]

    assert left == []


def test_the_comparison_sees_any_other_change() -> None:
    text = "CREATE FUNCTION fencerow.f() RETURNS int LANGUAGE sql AS $b$ SELECT 1 FROM fencerow.job $b$"

    assert changes(text, text.replace("SELECT 1", "SELECT 2")) == {("1", "2")}
    assert changes(text, text.replace("fencerow.", '"é".')) == {("fencerow", '"é"')}
