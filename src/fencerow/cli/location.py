"""
Which database a command works on: ``--dsn``, else ``--app``, else FENCEROW_DSN, else FENCEROW_APP.

The DSN is one of libpq's, or ``embedded`` or ``embedded:NAME`` for the server inside Fencerow, which starts when it
is used. Its space is migrated when it is created; any other only by `fencerow migrate`. The schema is ``--schema``,
else the app's, else ``fencerow``.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from fencerow import config
from fencerow.cli import output
from fencerow.errors import ConfigError
from fencerow.loading import load_app

if TYPE_CHECKING:
    from fencerow.app import App
    from fencerow.ops.base import Op
    from fencerow.store.stores import SyncStore

T = TypeVar("T")

Dsn = Annotated[
    str | None,
    typer.Option(
        "--dsn", help="The database: postgresql://..., embedded or embedded:NAME. [env: FENCEROW_DSN]"
    ),
]
AppRef = Annotated[
    str | None, typer.Option("--app", help="An App as module:name; its database is used. [env: FENCEROW_APP]")
]
Schema = Annotated[
    str | None, typer.Option("--schema", help="The schema of the space. [default: the app's, else fencerow]")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No remarks on stderr.")]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options of a command say about where it works; ``silent``: no remarks."""

    dsn: str | None = None
    app: str | None = None
    schema: str | None = None
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Location:
    """Where to work: a libpq DSN or ``embedded[:NAME]``, and which option or variable named it."""

    dsn: str
    schema: str
    source: str
    app: App | None = None
    pooler: bool = False

    @property
    def embedded(self) -> str | None:
        """The name of the embedded server, None for any other."""
        return config.embedded_name(self.dsn)


def locate(asked: Asked) -> Location:
    """
    Decide where to work. An app that is named by ``--app`` is loaded in any case: it knows the tasks.

    Raises:
        ConfigError: nothing names a database, or the app cannot be loaded.
    """
    from fencerow.sql import SCHEMA, check_schema_name

    variable = os.environ.get(config.DSN_VARIABLE) or None
    named, source = asked.app, f"--app {asked.app}"
    if named is None and asked.dsn is None and variable is None:
        named = os.environ.get(config.APP_VARIABLE) or None
        source = f"{config.APP_VARIABLE} {named}"
    app = None if named is None else load_app(named, dsn=asked.dsn)
    schema = check_schema_name(asked.schema if asked.schema is not None else app.schema if app else SCHEMA)
    if asked.dsn is not None:
        return Location(config.check_dsn(asked.dsn), schema, "--dsn", app=app)
    if app is not None:
        return Location(app.dsn, schema, source, app=app, pooler=app.pooler)
    if variable is not None:
        return Location(config.check_dsn(variable), schema, config.DSN_VARIABLE)
    raise ConfigError(
        "no database is named",
        hint="Give --dsn, --app module:name, FENCEROW_DSN or FENCEROW_APP; try: --dsn embedded",
    )


def announce(asked: Asked, location: Location) -> None:
    """Say on stderr which database is used, and why that one."""
    if not asked.silent:
        schema = "" if location.schema == "fencerow" else f", schema {location.schema}"
        output.remark(
            output.plain(f"database: {config.redact(location.dsn)}{schema} (from {location.source})")
        )


@contextmanager
def served(location: Location) -> Iterator[str]:
    """The libpq DSN of a location; an embedded server is kept in use meanwhile."""
    name = location.embedded
    if name is None:
        yield location.dsn
        return
    from fencerow import server
    from fencerow.store.migrate import migrate_dsn

    def prepare(dsn: str) -> None:
        migrate_dsn(dsn, location.schema)

    with server.embedded(name, prepare=prepare) as used:
        yield used.dsn


@dataclass(frozen=True, slots=True)
class Space:
    """An open space: operations are run in it one by one."""

    location: Location
    store: SyncStore

    def run(self, op: Op[T]) -> T:
        """Run an operation; after a lost reply again where that is safe."""
        from fencerow.store.protocols import resolved

        return self.store.follow(resolved(op))


@contextmanager
def opened(asked: Asked) -> Iterator[Space]:
    """
    Find the database, say which, connect, and see that its schema fits this release.

    Raises:
        ConfigError, DatabaseUnavailable, NotInstalled, SchemaBehind, SchemaAhead: with the cure.
    """
    from fencerow.store.migrate import check_contract, contract
    from fencerow.store.session import Target
    from fencerow.store.stores import SyncStore

    location = locate(asked)
    announce(asked, location)
    with served(location) as dsn:
        target = Target(dsn, schema=location.schema, name="fencerow cli", pooler=location.pooler)
        store = SyncStore(target, sessions=1)
        try:
            space = Space(location, store)
            check_contract(*space.run(contract()))
            yield space
        finally:
            store.close()


def person() -> str | None:
    """Who is at the keyboard, as user@host, for the record of interventions; None: the database role is named."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError, ImportError):
        return None
