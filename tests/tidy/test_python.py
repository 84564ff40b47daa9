"""What the layers promise each other: who holds a driver, who speaks SQL, who reads a clock, who waits."""

import ast
import re
import subprocess
import sys

from tests.tidy.sources import called, named, python_files, strings

VERB = re.compile(
    r"^\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|CREATE|ALTER|DROP|GRANT|REVOKE|TRUNCATE|LOCK|COPY)\s"
)
# server makes the role and the database of a new cluster, before there is anything to connect a store to.
SQL_SPOKEN = (
    "src/fencerow/ops/",
    "src/fencerow/store/",
    "src/fencerow/testing/",
    "src/fencerow/sql/",
    "src/fencerow/server/",
    "src/fencerow/renewer.py",
)
DRIVERS = {"psycopg", "psycopg_pool", "asyncpg"}
DRIVER_HELD = (
    "src/fencerow/store/",
    "src/fencerow/testing/",
    "src/fencerow/server/",
    "src/fencerow/renewer.py",
)
CLOCK_OF_DATABASE = ("src/fencerow/ops/", "src/fencerow/store/", "src/fencerow/worker/")
LOCAL_CLOCKS = re.compile(r"\b(datetime\.(now|utcnow|today)|date\.today|time\.time|time\.time_ns)$")
# A test waits for a state that it observes. Files that may call sleep all the same, and why.
SLEEP_ALLOWED: dict[str, str] = {
    "tests/tidy/test_python.py": "speaks of it",
    "tests/worker/apps/jobs.py": "a C call that keeps the interpreter lock is what one handler is for",
}


def sql_in_strings(name: str, text: str) -> list[str]:
    if name.startswith(SQL_SPOKEN):
        return []
    return [
        f"{name}:{node.lineno}: SQL outside ops and store: {str(node.value).split()[0]}"
        for node in strings(ast.parse(text))
        if VERB.match(str(node.value))
    ]


def drivers(name: str, text: str) -> list[str]:
    """Imports of a driver outside the parts that hold connections; annotations may name its types."""
    if name.startswith(DRIVER_HELD):
        return []
    tree = ast.parse(text)
    typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    faults = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                modules = [module]
            case _:
                continue
        if id(node) not in typing and {module.split(".")[0] for module in modules} & DRIVERS:
            faults.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
    return faults


def local_clocks(name: str, text: str) -> list[str]:
    if not name.startswith(CLOCK_OF_DATABASE):
        return []
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return [f"{name}:{node.lineno}: {called(node)}()" for node in calls if LOCAL_CLOCKS.search(called(node))]


def sleeps(name: str, text: str) -> list[str]:
    """Calls of sleep, and of pg_sleep in SQL: a test that waits for time passes or fails by chance."""
    if name in SLEEP_ALLOWED:
        return []
    tree = ast.parse(text)
    found = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called(node).split(".")[-1] == "sleep"
    ]
    found += [node.lineno for node in strings(tree) if "pg_sleep" in str(node.value)]
    return [f"{name}:{line}: sleep" for line in sorted(found)]


def test_sql_stays_in_its_layer() -> None:
    assert [f for path in python_files("src") for f in sql_in_strings(named(path), path.read_text())] == []


def test_drivers_stay_in_their_layers() -> None:
    assert [f for path in python_files("src") for f in drivers(named(path), path.read_text())] == []


def test_no_decision_reads_a_local_clock() -> None:
    assert [f for path in python_files("src") for f in local_clocks(named(path), path.read_text())] == []


def test_no_test_sleeps() -> None:
    assert [f for path in python_files("tests") for f in sleeps(named(path), path.read_text())] == []


def test_importing_fencerow_loads_no_driver() -> None:
    program = (
        "import fencerow, sys; sys.exit(', '.join({'psycopg', 'typer', 'rich'} & set(sys.modules)) or None)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (answer.returncode, answer.stderr) == (0, "")


def test_the_checks_find_each_fault() -> None:
    assert sql_in_strings("src/fencerow/app/app.py", '"""SELECT is a word here."""\n') == []
    assert len(sql_in_strings("src/fencerow/app/app.py", 'x = "SELECT 1"')) == 1
    assert drivers("src/fencerow/app/app.py", "if TYPE_CHECKING:\n    import psycopg\n") == []
    assert len(drivers("src/fencerow/app/app.py", "from psycopg.rows import dict_row")) == 1
    assert (
        len(local_clocks("src/fencerow/worker/keep.py", "time.time()\ndatetime.now(UTC)\nt.monotonic()")) == 2
    )
    assert (
        len(sleeps("tests/a.py", "await asyncio.sleep(1)\nconn.execute('select pg_sleep(1)')\nsleeper()"))
        == 2
    )
