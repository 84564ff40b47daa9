"""`fencerow db`: the embedded server from the command line."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fencerow.cli import exits, output

if TYPE_CHECKING:
    from fencerow.server import Status

app = typer.Typer(
    name="db",
    no_args_is_help=True,
    help="The embedded PostgreSQL server: start, stop, look, connect.",
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Option("--name", help="Which embedded server, as in App('embedded:NAME').")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def start(name: Name = "default", as_json: Json = False) -> None:
    """Start the server, or join it, with the schema in it, and leave it standing until `db stop`."""
    from fencerow import server
    from fencerow.store.migrate import migrate_dsn

    _show(server.start(name, prepare=migrate_dsn), as_json)


@app.command()
def stop(
    name: Name = "default",
    as_json: Json = False,
    now: Annotated[bool, typer.Option("--now", help="Also under those who use it.")] = False,
) -> None:
    """Stop the server and keep its data. While processes use it, it only stops standing (exit code 4)."""
    from fencerow import server

    stopped = server.stop(name, now=now)
    _show(server.status(name), as_json)
    if not stopped:
        output.remark(f"{name} is in use and stops when its users are gone. To stop it under them: --now")
        raise typer.Exit(exits.BUSY)


@app.command()
def status(name: Name = "default", as_json: Json = False) -> None:
    """Say whether the server runs (exit code 0) or not (1), who keeps it, and where it is."""
    from fencerow import server

    found = server.status(name)
    _show(found, as_json)
    if not found.running:
        raise typer.Exit(exits.NO)


@app.command()
def url(name: Name = "default", as_json: Json = False) -> None:
    """Print the connection string of the running server."""
    from fencerow import server

    found = server.status(name)
    if found.dsn is None:
        output.remark(f"{name} is not running. Start it: fencerow db start --name {name}")
        raise typer.Exit(exits.NO)
    if as_json:
        output.document({"name": name, "dsn": found.dsn})
    else:
        output.line(found.dsn)


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def psql(context: typer.Context, name: Name = "default") -> None:
    """Open psql on the server, which starts if need be and stays meanwhile. Other arguments are psql's."""
    from fencerow import server

    if not server.status(name).exists:
        output.remark(f"There is no embedded server {name}. Make one: fencerow db start --name {name}")
        raise typer.Exit(exits.NO)
    session = server.embedded(name)
    program = server.bin_psql(name)
    # psql takes our place together with the descriptor that counts as a use.
    os.set_inheritable(session.fileno(), True)
    os.execv(program, [str(program), session.dsn, *context.args])  # noqa: S606 - no shell is the point


def _show(found: Status, as_json: bool) -> None:
    if as_json:
        output.document({**asdict(found), "folder": str(found.folder)})
        return
    place = output.plain(str(found.folder))
    if found.running:
        reasons = [word for word, true in (("standing", found.standing), ("in use", found.used)) if true]
        kept = ", ".join(reasons) or "stopping soon: no user is left"
        output.line(f"{found.name}: PostgreSQL {found.version} runs (pid {found.server_pid}; {kept})")
        output.line(f"  {found.dsn}\n  {place}")
    else:
        output.line(f"{found.name}: not running\n  {place}{'' if found.exists else ' (not made yet)'}")
