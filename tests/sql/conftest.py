"""Databases and roles of a test's own, on the same throwaway server."""

import itertools
import os
from collections.abc import Callable, Iterator

import psycopg
import pytest

from fencerow.ops.base import Row
from fencerow.server import Cluster
from fencerow.testing.space import Space

_NUMBERS = itertools.count(1)


@pytest.fixture
def database(fencerow_cluster: Cluster) -> Iterator[Callable[[], str]]:
    """Make empty databases; the answer is a DSN."""
    owner = psycopg.connect(fencerow_cluster.dsn(), autocommit=True)
    made: list[str] = []

    def make() -> str:
        name = f"own_{os.getpid()}_{next(_NUMBERS)}"
        owner.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
        made.append(name)
        return fencerow_cluster.dsn(name)

    yield make
    for name in made:
        owner.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
    owner.close()


@pytest.fixture
def producer(space: Space, fencerow_cluster: Cluster) -> Iterator[psycopg.Connection[Row]]:
    """A role that may execute enqueue and nothing else."""
    space.rows("DROP ROLE IF EXISTS producer; CREATE ROLE producer LOGIN")
    space.rows("GRANT USAGE ON SCHEMA fencerow TO producer")
    space.rows(
        "GRANT EXECUTE ON FUNCTION fencerow.enqueue(text, jsonb, text, integer, timestamptz, interval, integer, interval, "
        "text, text[], jsonb, text, text, text, interval, text) TO producer"
    )
    connection: psycopg.Connection[Row] = psycopg.connect(
        fencerow_cluster.dsn("fencerow", user="producer"), autocommit=True
    )
    yield connection
    connection.close()
    space.rows("DROP OWNED BY producer; DROP ROLE producer")
