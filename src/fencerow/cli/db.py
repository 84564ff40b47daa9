"""`fencerow db`: the embedded server from the command line."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fencerow.server import Status

NO = 1
DATABASE = 3
BUSY = 4

app = typer.Typer(
    name="db", no_args_is_help=True, help="The embedded PostgreSQL server: start, stop, look, connect."
)

Name = Annotated[str, typer.Option("--name", help="Which embedded server, as in App('embedded:NAME').")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def start(name: Name = "default", as_json: Json = False) -> None:
    """Start the server, or join it, and leave it standing until `db stop`."""
    from fencerow import server

    with _faults():
        _show(server.start(name), as_json)


@app.command()
def stop(
    name: Name = "default",
    as_json: Json = False,
    now: Annotated[bool, typer.Option("--now", help="Also under those who use it.")] = False,
) -> None:
    """Stop the server and keep its data. While processes use it, it only stops standing (exit code 4)."""
    from fencerow import server

    with _faults():
        stopped = server.stop(name, now=now)
        _show(server.status(name), as_json)
    if not stopped:
        _fail(f"{name} is in use and stops when its users are gone. To stop it under them: --now", BUSY)


@app.command()
def status(name: Name = "default", as_json: Json = False) -> None:
    """Say whether the server runs (exit code 0) or not (1), who keeps it, and where it is."""
    from fencerow import server

    with _faults():
        found = server.status(name)
        _show(found, as_json)
    if not found.running:
        raise typer.Exit(NO)


@app.command()
def url(name: Name = "default", as_json: Json = False) -> None:
    """Print the connection string of the running server."""
    from fencerow import server

    with _faults():
        found = server.status(name)
    if found.dsn is None:
        _fail(f"{name} is not running. Start it: fencerow db start --name {name}", NO)
    typer.echo(json.dumps({"name": name, "dsn": found.dsn}) if as_json else found.dsn)


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def psql(context: typer.Context, name: Name = "default") -> None:
    """Open psql on the server, which starts if need be and stays while psql runs. Other arguments are its."""
    from fencerow import server

    with _faults():
        if not server.status(name).exists:
            _fail(f"There is no embedded server {name}. Make one: fencerow db start --name {name}", NO)
        session = server.embedded(name)
        program = server.bin_psql(name)
    # psql takes our place together with the descriptor that counts as a use.
    os.set_inheritable(session.fileno(), True)
    os.execv(program, [str(program), session.dsn, *context.args])  # noqa: S606 - no shell is the point


def _show(found: Status, as_json: bool) -> None:
    if as_json:
        row = {
            "name": found.name,
            "folder": str(found.folder),
            "exists": found.exists,
            "running": found.running,
            "standing": found.standing,
            "used": found.used,
            "dsn": found.dsn,
            "server_pid": found.server_pid,
            "keeper_pid": found.keeper_pid,
            "version": found.version,
        }
        typer.echo(json.dumps(row))
    elif found.running:
        reasons = [word for word, true in (("standing", found.standing), ("in use", found.used)) if true]
        kept = ", ".join(reasons) or "stopping soon: no user is left"
        typer.echo(f"{found.name}: PostgreSQL {found.version} runs (pid {found.server_pid}; {kept})")
        typer.echo(f"  {found.dsn}\n  {found.folder}")
    else:
        typer.echo(f"{found.name}: not running\n  {found.folder}{'' if found.exists else ' (not made yet)'}")


@contextmanager
def _faults() -> Iterator[None]:
    from fencerow.errors import FencerowError

    try:
        yield
    except FencerowError as error:
        _fail(str(error), DATABASE)


def _fail(text: str, code: int) -> NoReturn:
    sys.stderr.write(f"{text}\n")
    raise typer.Exit(code)
