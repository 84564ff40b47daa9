"""Which database is used, what is said about it, and that no secret is said with it."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from fencerow import server
from fencerow.server import Cluster
from fencerow.server.postmaster import working_in
from fencerow.testing.space import Space
from tests.cli.conftest import Run
from tests.server.processes import until

APP = "from fencerow import App\napp = App({dsn!r}, schema={schema!r})\nother = 1\n"


@pytest.fixture
def shop(space: Space, tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(APP.format(dsn=space.dsn, schema="fencerow"))
    return "shop:app"


def used(said_on_stderr: str) -> str:
    """The end of the remark that names the source."""
    return said_on_stderr.splitlines()[0].partition(" (from ")[2].removesuffix(")")


def test_the_nearest_source_wins(space: Space, shop: str, program: Run) -> None:
    """--dsn, else --app, else FENCEROW_DSN, else FENCEROW_APP."""
    every = {"FENCEROW_DSN": space.dsn, "FENCEROW_APP": shop}
    command = ("queue", "list")

    assert used(program(*command, "--dsn", space.dsn, "--app", shop, **every).err) == "--dsn"
    assert used(program(*command, "--app", shop, **every).err) == "--app shop:app"
    assert used(program(*command, **every).err) == "FENCEROW_DSN"
    assert used(program(*command, FENCEROW_APP=shop).err) == "FENCEROW_APP shop:app"


def test_no_source_is_a_configuration_fault(call: Run) -> None:
    said = call("queue", "list", FENCEROW_DSN="")

    assert (said.code, said.out) == (3, "")
    assert said.err.startswith("fencerow: no database is named (Give --dsn, ")


@pytest.mark.parametrize(
    ("ref", "told"),
    [
        ("nowhere:app", "there is no module nowhere (Start in the folder that holds it"),
        ("shop.sub:app", "there is no module shop.sub"),
        ("shop", "an app is named as module:attribute"),
        ("shop:", "an app is named as module:attribute"),
        ("../shop:app", "an app is named as module:attribute"),
        ("shop:missing", "module shop has no missing"),
        ("shop:other", "shop:other is of type int, not an App"),
        ("needs:app", "module needs needs the module nowhere_to_be_found"),
        ("raises:app", "module raises cannot be imported: ValueError at raises.py:2"),
        ("syntax:app", "module syntax cannot be imported: SyntaxError"),
        ("nodsn:app", "module nodsn cannot be imported: App() was given no database"),
    ],
)
def test_an_app_that_cannot_be_had_is_one_line(
    shop: str, tmp_path: Path, program: Run, ref: str, told: str
) -> None:
    """C105: what a module says while it fails may hold its settings, so kind and place are told alone."""
    (tmp_path / "needs.py").write_text("import nowhere_to_be_found\n")
    (tmp_path / "raises.py").write_text("secret = 'hunter2'\nraise ValueError(secret)\n")
    (tmp_path / "syntax.py").write_text("def (:\n")
    (tmp_path / "nodsn.py").write_text("from fencerow import App\napp = App()\n")

    said = program("queue", "list", "--app", ref)

    assert (said.code, said.out, said.err.count("\n")) == (3, "", 1)
    assert said.err.startswith("fencerow: " + told)
    assert "hunter2" not in said.err


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://user:hunter2@127.0.0.1:1/shop",
        "postgresql://user@127.0.0.1:1/shop?password=hunter2",
        "postgresql://user:hunt%65r2@127.0.0.1:1/shop",
        "host=127.0.0.1 port=1 dbname=shop password=hunter2",
        "host=127.0.0.1 port=1 dbname=shop password='hunter2 hunter2'",
        "postgresql://user:p@ss:hunter2/rd#@127.0.0.1/shop",
        "postgresql://user:p@hunter2@127.0.0.1:1/shop",
        "postgresql://user:hunter2%zz@127.0.0.1:1/shop",
        "postgresql://user:hunter2?x@127.0.0.1:1/shop",
        "postgresql://user:hunter2/x@127.0.0.1:1/shop",
        "host=127.0.0.1 password=two hunter2",
        "hunter2",
        "",
    ],
)
@pytest.mark.parametrize("command", [("queue", "list"), ("migrate",)], ids=["queue", "migrate"])
def test_a_password_is_never_printed(call: Run, dsn: str, command: tuple[str, ...]) -> None:
    """C105: also where the connection string is badly escaped, so that its parts are not what they seem."""
    said = call(*command, "--dsn", dsn)

    assert (said.code, said.out) == (3, "")
    assert "hunter2" not in said.err
    assert "hunt%65r2" not in said.err
    assert "Traceback" not in said.err


def test_an_unreachable_server_is_named(call: Run) -> None:
    said = call("queue", "list", "--dsn", "postgresql://user:hunter2@127.0.0.1:1/shop")

    told = said.err.splitlines()
    assert told[0] == "database: postgresql://user:***@127.0.0.1:1/shop (from --dsn)"
    assert told[1].startswith("fencerow: no connection to the database: ")
    assert "127.0.0.1" in told[1]
    assert "Connection refused" in told[1]
    assert told[1].endswith("(See that the server runs, and that --dsn, the app or FENCEROW_DSN names it.)")


@pytest.fixture
def guarded(space: Space, fencerow_cluster: Cluster) -> Iterator[str]:
    """A role that must give a password and may do nothing; DSN without one."""
    rules = fencerow_cluster.data / "pg_hba.conf"
    before = rules.read_text()
    space.connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'hunter2'")
    rules.write_text("local all guarded scram-sha-256\n" + before)
    space.connection.execute("SELECT pg_reload_conf()")
    dsn = fencerow_cluster.dsn("fencerow").replace("://fencerow@", "://guarded@")

    def refused() -> bool:
        try:
            psycopg.connect(dsn).close()
        except psycopg.OperationalError:
            return True
        return False

    until(refused, "the server has read its new rules")
    yield dsn
    rules.write_text(before)
    space.connection.execute("SELECT pg_reload_conf()")
    space.connection.execute("DROP ROLE guarded")


def test_a_wrong_password_and_a_missing_right_are_one_line(guarded: str, call: Run) -> None:
    """Bad input 22 and C029: exit code 3, one clear line each."""
    none = call("queue", "list", "--dsn", guarded)
    wrong = call("queue", "list", "--dsn", guarded.replace("guarded@", "guarded:hunter3@"))
    right = call("queue", "list", "--dsn", guarded.replace("guarded@", "guarded:hunter2@"))

    assert [said.code for said in (none, wrong, right)] == [3, 3, 3]
    assert "no password supplied" in none.err
    assert "password authentication failed" in wrong.err
    assert "permission denied" in right.err
    assert "hunter" not in none.err + wrong.err + right.err


def test_a_missing_database_is_one_line(space: Space, call: Run) -> None:
    said = call("job", "list", "--dsn", space.dsn.replace("/fencerow?", "/nothing?"))

    assert (said.code, 'database "nothing" does not exist' in said.err) == (3, True)


def test_json_and_quiet_keep_the_remark_back(space: Space, call: Run) -> None:
    assert call("queue", "list", "--dsn", space.dsn).err == (f"database: {space.dsn} (from --dsn)\n")
    assert call("queue", "list", "--dsn", space.dsn, "--json").err == ""
    assert call("queue", "list", "--dsn", space.dsn, "-q").err == ""


def test_an_embedded_space_is_made_at_its_first_use(tmp_path: Path, program: Run) -> None:
    """No migrate is needed before it; the server stops with its last user."""
    home = tmp_path / "home"
    variables = {"FENCEROW_HOME": str(home)}
    try:
        said = program("enqueue", "t", "{}", "--dsn", "embedded", **variables)
        shown = program("job", "show", "1", "--dsn", "embedded", "--json", **variables)
        other = program("queue", "list", "--dsn", "embedded:a b", **variables)
    finally:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FENCEROW_HOME", str(home))
            server.stop(now=True)
        until(lambda: not working_in(home / "default" / "data"), "the server's processes are gone")

    assert (said.code, said.out, said.err) == (0, "job 1\n", "database: embedded (from --dsn)\n")
    assert (shown.code, shown.json["state"]) == (0, "ready")
    assert (other.code, other.out) == (3, "")
