"""`fencerow migrate`, and what other commands say before it."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fencerow.sql import quote_identifier
from fencerow.store.migrate import CONTRACT
from fencerow.testing.space import Space
from tests.cli.conftest import Run


@dataclass(frozen=True)
class Bare:
    """A schema's name that nothing has yet, in the database of a space."""

    dsn: str
    schema: str


@pytest.fixture(params=["plain", 'A "b"; -- é%', "select"])
def bare(request: pytest.FixtureRequest, space: Space) -> Iterator[Bare]:
    """C099: names that must be quoted."""
    yield Bare(space.dsn, request.param)
    space.connection.execute(f"DROP SCHEMA IF EXISTS {quote_identifier(request.param)} CASCADE".encode())


def test_migrate_installs_once_and_says_so(bare: Bare, call: Run) -> None:
    where = ("--dsn", bare.dsn, "--schema", bare.schema)

    missing = call("queue", "list", *where)
    planned = call("migrate", "--plan", "--json", *where)
    script = call("migrate", "--sql", *where)
    still_missing = call("queue", "list", *where)
    done = call("migrate", *where)
    again = call("migrate", *where)

    assert (missing.code, still_missing.code) == (3, 3)
    assert "(Run: fencerow migrate)" in missing.err
    assert planned.json["planned"] is True
    assert {"kind": "migration", "name": "0001_initial"} in planned.json["steps"]
    assert script.out.startswith("BEGIN;")
    assert (done.code, again.code) == (0, 0)
    assert f"schema {bare.schema}: applied " in done.out
    assert again.out == f"schema {bare.schema} is up to date\n"
    assert call("enqueue", "t", *where).out == "job 1\n"
    assert call("job", "show", "1", *where).code == 0


def test_a_schema_that_is_ahead_is_one_line(space: Space, call: Run) -> None:
    """Bad input 23: the schema serves newer clients alone."""
    space.rows(
        "UPDATE fencerow.space SET contract = %s, oldest = %s RETURNING 1", (CONTRACT + 1, CONTRACT + 1)
    )
    try:
        said = [call(*command, "--dsn", space.dsn) for command in (("queue", "list"), ("migrate",))]
    finally:
        space.rows("UPDATE fencerow.space SET contract = %s, oldest = 1 RETURNING 1", (CONTRACT,))

    assert [(one.code, one.out) for one in said] == [(3, ""), (3, "")]
    assert all("(Upgrade the fencerow package.)" in one.err for one in said)


def test_a_schema_of_somebody_else_is_left_alone(space: Space, call: Run) -> None:
    """Bad input 23: someone else's tables."""
    space.connection.execute("CREATE SCHEMA theirs CREATE TABLE jobs (id int)")
    try:
        migrated = call("migrate", "--dsn", space.dsn, "--schema", "theirs")
        listed = call("job", "list", "--dsn", space.dsn, "--schema", "theirs")
    finally:
        space.connection.execute("DROP SCHEMA theirs CASCADE")

    assert (migrated.code, "not Fencerow's" in migrated.err) == (3, True)
    assert (listed.code, listed.out) == (3, "")


@pytest.mark.parametrize("name", ["", "pg_x", "a$b", "x" * 64])
def test_an_impossible_schema_name_is_usage(space: Space, call: Run, name: str) -> None:
    said = call("migrate", "--dsn", space.dsn, f"--schema={name}")

    assert said.code == 2
    assert "Use 1 to 63 bytes" in said.err
