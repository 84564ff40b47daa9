"""
Install and upgrade a space: numbered migrations and the function set, under one lock, in one transaction.

Either everything of it is there afterwards or nothing: a killed installer leaves no trace, and of several installers at
once one does the work while the others find it done. Locks are asked for with a short timeout and asked for again, so
that a long reader delays the migration and never the traffic behind it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencerow.errors import (
    FencerowError,
    MigrationFailed,
    NotInstalled,
    ResourceBusy,
    SchemaAhead,
    SchemaBehind,
)
from fencerow.ops.base import Op
from fencerow.sql import check_schema_name, migrations, quote_identifier, requalify, routines
from fencerow.store.classify import Phase, classify

if TYPE_CHECKING:
    import psycopg

CONTRACT = 1
"""The function set that this client calls; raised when a signature is added or changed."""
OLDEST = 1
"""The oldest client that the function set of this release still serves: old signatures stay for one release."""

LOCK_TIMEOUT_MS = 300
TRIES_SECONDS = 60.0
PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: ``kind`` is schema, migration, routine, index or contract; ``sql`` as it will be sent."""

    kind: str
    name: str
    sql: str
    checksum: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What a migration did (or, planned, would do)."""

    schema: str
    steps: tuple[Step, ...]

    @property
    def idle(self) -> bool:
        """True when there was nothing to do."""
        return not self.steps


def contract() -> Op[tuple[int, int]]:
    """(contract installed, oldest client served)."""
    return Op(
        "contract",
        "SELECT * FROM fencerow.contract()",
        (),
        lambda rows: (rows[0][0], rows[0][1]),
        writes=False,
    )


def check_contract(installed: int, oldest: int) -> None:
    """
    Compare what is installed with what this client calls.

    Raises:
        SchemaBehind, SchemaAhead: one line with the cure.
    """
    if installed < CONTRACT:
        raise SchemaBehind(f"the schema has function set {installed}, this client calls {CONTRACT}")
    if oldest > CONTRACT:
        raise SchemaAhead(
            f"the schema serves clients from function set {oldest} on, this client calls {CONTRACT}"
        )


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _bookkeeping(schema: str) -> Step:
    name = quote_identifier(schema)
    sql = (
        f"CREATE SCHEMA IF NOT EXISTS {name};\n"
        f"CREATE TABLE IF NOT EXISTS {name}.migration (version integer PRIMARY KEY, name text NOT NULL, "
        "checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp(), "
        "applied_by text NOT NULL DEFAULT session_user);\n"
        f"CREATE TABLE IF NOT EXISTS {name}.routine (name text PRIMARY KEY, checksum text NOT NULL, "
        "applied_at timestamptz NOT NULL DEFAULT clock_timestamp());\n"
    )
    return Step("schema", schema, sql)


@dataclass(frozen=True, slots=True)
class _Installed:
    schema: bool
    ours: bool
    foreign: bool
    versions: dict[int, str]
    routines: dict[str, str]
    invalid: list[str]
    contract: int | None
    oldest: int | None


def _rows(
    connection: psycopg.Connection[Any], sql: str, params: tuple[Any, ...] = ()
) -> list[tuple[Any, ...]]:
    return connection.execute(sql.encode(), params or None).fetchall()


def _look(connection: psycopg.Connection[Any], schema: str) -> _Installed:
    there = bool(_rows(connection, "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", (schema,)))
    tables = {
        row[0]
        for row in _rows(
            connection,
            "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s",
            (schema,),
        )
    }
    ours = {"migration", "routine", "space"} <= tables
    name = quote_identifier(schema)
    if not ours:
        return _Installed(there, False, bool(tables), {}, {}, [], None, None)
    space = _rows(connection, f"SELECT contract, oldest FROM {name}.space")
    return _Installed(
        schema=True,
        ours=True,
        foreign=False,
        versions=dict(_rows(connection, f"SELECT version, checksum FROM {name}.migration")),
        routines=dict(_rows(connection, f"SELECT name, checksum FROM {name}.routine")),
        invalid=invalid_indexes(connection, schema),
        contract=space[0][0] if space else None,
        oldest=space[0][1] if space else None,
    )


def invalid_indexes(connection: psycopg.Connection[Any], schema: str) -> list[str]:
    """Indexes of the space that an interrupted build left behind: they cost every write and serve no read."""
    return [
        row[0]
        for row in _rows(
            connection,
            "SELECT c.relname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND NOT i.indisvalid ORDER BY c.relname",
            (schema,),
        )
    ]


def _steps(schema: str, installed: _Installed) -> Iterator[Step]:
    name = quote_identifier(schema)
    if installed.foreign:
        raise MigrationFailed(
            f"schema {name} holds objects that are not Fencerow's",
            hint="Choose another schema with --schema.",
        )
    if not installed.ours:
        yield _bookkeeping(schema)
    known = {version: _checksum(text) for version, _, text in migrations()}
    for version, checksum in installed.versions.items():
        if version in known and checksum != known[version]:
            raise MigrationFailed(
                f"migration {version} was applied with another text", hint="Restore its file."
            )
    if installed.contract is not None and installed.contract > CONTRACT:
        raise SchemaAhead(f"the schema has function set {installed.contract}, this release brings {CONTRACT}")
    for version, title, text in migrations():
        if version not in installed.versions:
            record = (
                f"INSERT INTO {name}.migration (version, name, checksum) "
                f"VALUES ({version}, {_literal(title)}, {_literal(known[version])});\n"
            )
            yield Step(
                "migration", f"{version:04d}_{title}", requalify(text, schema) + record, known[version]
            )
    for index in installed.invalid:
        target = f"{name}.{quote_identifier(index)}"
        leftover = index.endswith(("_ccnew", "_ccold"))
        yield Step("index", index, f"DROP INDEX {target};\n" if leftover else f"REINDEX INDEX {target};\n")
    changed = False
    for title, text in routines():
        if installed.routines.get(title) != _checksum(text):
            changed = True
            record = (
                f"INSERT INTO {name}.routine (name, checksum) VALUES ({_literal(title)}, {_literal(_checksum(text))}) "
                "ON CONFLICT (name) DO UPDATE SET checksum = excluded.checksum, applied_at = clock_timestamp();\n"
            )
            yield Step("routine", title, requalify(text, schema) + record, _checksum(text))
    if changed or (installed.contract, installed.oldest) != (CONTRACT, OLDEST):
        yield Step(
            "contract",
            str(CONTRACT),
            f"REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {name} FROM PUBLIC;\n"
            f"INSERT INTO {name}.space (contract, oldest) VALUES ({CONTRACT}, {OLDEST}) "
            "ON CONFLICT (only_row) DO UPDATE SET contract = excluded.contract, oldest = excluded.oldest;\n",
        )


def script(report: Report) -> str:
    """A plan as one SQL script that a DBA can read and run with psql."""
    if report.idle:
        return "-- nothing to do\n"
    parts = ["BEGIN;\n", *_preamble(report.schema)]
    parts += [f"-- {step.kind} {step.name}\n{step.sql}\n" for step in report.steps]
    return "".join([*parts, "COMMIT;\n"])


def _preamble(schema: str) -> list[str]:
    return [
        # Who waited for the lock below has to see what its holder installed, also where the default is stricter.
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n",
        f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_MS}ms';\n",
        "SET LOCAL statement_timeout = 0;\n",
        "SET LOCAL check_function_bodies = off;\n",
        "SET LOCAL client_min_messages = warning;\n",
        f"SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended({_literal('fencerow migrate ' + schema)}, 0));\n",
    ]


def plan(connection: psycopg.Connection[Any], schema: str = "fencerow") -> Report:
    """
    What migrate() would do now; reads only.

    Raises:
        MigrationFailed, SchemaAhead: it would refuse.
    """
    check_schema_name(schema)
    return Report(schema, tuple(_steps(schema, _look(connection, schema))))


def migrate(connection: psycopg.Connection[Any], schema: str = "fencerow") -> Report:
    """
    Bring a space to this release's schema; idempotent; safe with several at once.

    Args:
        connection: an autocommit connection of the role that will own the space.

    Raises:
        MigrationFailed: it refused or could not have its locks in a minute; nothing has changed.
    """
    import psycopg

    deadline = time.monotonic() + TRIES_SECONDS
    while True:
        try:
            report = plan(connection, schema)
            return report if report.idle else _apply(connection, schema)
        except psycopg.Error as error:
            failure = classify(error, name="migrate", phase=Phase.INSIDE, lost=connection.broken)
            if not isinstance(failure, ResourceBusy):
                raise failure from None
        if time.monotonic() > deadline:
            raise MigrationFailed(
                f"a lock was not had in {TRIES_SECONDS:.0f} s; in the way: {_holders(connection, schema)}",
                hint="End those transactions and run it again.",
            )
        time.sleep(PAUSE_SECONDS)


def _apply(connection: psycopg.Connection[Any], schema: str) -> Report:
    with connection.transaction():
        for statement in _preamble(schema):
            connection.execute(statement.encode())
        report = Report(schema, tuple(_steps(schema, _look(connection, schema))))
        for step in report.steps:
            connection.execute(step.sql.encode())
    return report


def _holders(connection: psycopg.Connection[Any], schema: str) -> str:
    rows = _rows(
        connection,
        "SELECT DISTINCT a.pid, a.application_name, a.state FROM pg_catalog.pg_locks l "
        "JOIN pg_catalog.pg_class c ON c.oid = l.relation JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid "
        "WHERE n.nspname = %s AND l.granted AND l.pid <> pg_catalog.pg_backend_pid() ORDER BY a.pid LIMIT 5",
        (schema,),
    )
    return "; ".join(f"pid {pid} ({name}, {state})" for pid, name, state in rows) or "nobody any more"


@contextmanager
def _connected(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    import psycopg

    try:
        connection = psycopg.connect(
            dsn, autocommit=True, application_name="fencerow migrate", connect_timeout=5
        )
    except psycopg.Error as error:
        raise classify(error, name="migrate", phase=Phase.CONNECT, lost=True) from None
    with connection:
        yield connection


def migrate_dsn(dsn: str, schema: str = "fencerow") -> Report:
    """Connect, migrate, disconnect."""
    with _connected(dsn) as connection:
        return migrate(connection, schema)


def plan_dsn(dsn: str, schema: str = "fencerow") -> Report:
    """Connect, plan, disconnect."""
    import psycopg

    with _connected(dsn) as connection:
        try:
            return plan(connection, schema)
        except psycopg.Error as error:
            raise classify(error, name="migrate", phase=Phase.INSIDE, lost=connection.broken) from None


__all__ = [
    "CONTRACT",
    "FencerowError",
    "NotInstalled",
    "Report",
    "Step",
    "check_contract",
    "contract",
    "invalid_indexes",
    "migrate",
    "migrate_dsn",
    "plan",
    "plan_dsn",
    "script",
]
