"""One SQL file as trees: its statements, and every query inside the bodies of its functions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pglast import ast, parse_plpgsql, parse_sql

SCHEMA = "fencerow"
# The PL/pgSQL parser knows only this schema and pg_catalog, so that bodies are read as if they stood there.
STAND_IN = "public"
CLAUSES = ("fence", "locks", "params", "returns", "plan")


@dataclass(frozen=True, slots=True)
class SqlFile:
    name: str
    folder: str
    stem: str
    text: str
    statements: tuple[ast.Node, ...]
    queries: tuple[ast.Node, ...]
    """What functions run: each statement and expression of a PL/pgSQL body, each statement of an SQL body."""

    @property
    def functions(self) -> list[ast.CreateFunctionStmt]:
        return [node for node in self.statements if isinstance(node, ast.CreateFunctionStmt)]

    def every_node(self) -> Iterator[ast.Node]:
        for root in (*self.statements, *self.queries):
            yield from walk(root)


def read(name: str, text: str) -> SqlFile:
    path = Path(name)
    statements = tuple(parse(text))
    functions = [node for node in statements if isinstance(node, ast.CreateFunctionStmt)]
    queries: list[ast.Node] = []
    for function in functions:
        match option(function, "language").sval:
            case "sql":
                queries += parse(option(function, "as")[0].sval)
            case "plpgsql":
                pass
            case other:
                raise AssertionError(f"{name}: language {other}")
    if any(option(function, "language").sval == "plpgsql" for function in functions):
        for source in _expressions(parse_plpgsql(text.replace(f"{SCHEMA}.", f"{STAND_IN}."))):
            queries += parse(source.replace(f"{STAND_IN}.", f"{SCHEMA}."))
        # The parser leaves out what a composite variable is first set to.
        for first in re.findall(rf"^\s+\w+ {SCHEMA}\.\w+ :=\s*(.+?);$", text, re.MULTILINE | re.DOTALL):
            queries += parse(f"SELECT {first}")
    return SqlFile(name, path.parent.name, path.stem, text, statements, tuple(queries))


def parse(text: str) -> list[ast.Node]:
    return [raw.stmt for raw in parse_sql(text) if raw.stmt is not None]


def option(function: ast.CreateFunctionStmt, wanted: str) -> Any:
    return next((given.arg for given in function.options or () if given.defname == wanted), None)


def settings(function: ast.CreateFunctionStmt) -> dict[str, list[Any]]:
    """The SET clauses: name → values."""
    given = [part.arg for part in function.options or () if part.defname == "set"]
    return {clause.name: [value.val.sval for value in clause.args] for clause in given}


def is_definer(function: ast.CreateFunctionStmt) -> bool:
    security = option(function, "security")
    return security is not None and bool(security.boolval)


def walk(node: Any) -> Iterator[ast.Node]:
    if isinstance(node, ast.Node):
        yield node
        for attribute in node:
            yield from walk(getattr(node, attribute))
    elif isinstance(node, tuple | list):
        for item in node:
            yield from walk(item)


def header(text: str) -> tuple[str, str, dict[str, str]]:
    """
    The comment at the top: (name, transition, clause → text in file order), continuation lines joined.

    Raises:
        AssertionError: A line that is neither a clause nor the continuation of one.
    """
    lines = re.match(r"(--.*\n)*", text)
    comment = [line[2:].rstrip() for line in (lines.group() if lines else "").splitlines()]
    assert comment, "no header"
    name, colon, transition = comment[0].strip().partition(": ")
    assert colon, "the first line is not `-- name: from -> to`"
    clauses: dict[str, str] = {}
    for line in comment[1:]:
        key = re.match(r" (\w+): +", line)
        if key and key[1] in CLAUSES:
            clauses[key[1]] = line[key.end() :]
        elif clauses and line.startswith("    "):
            clauses[list(clauses)[-1]] += " " + line.strip()
        elif not clauses and line.startswith("    "):
            transition += " " + line.strip()
        else:
            raise AssertionError(f"neither a clause nor its continuation: {line.strip()}")
    return name, transition, clauses


def _expressions(node: Any) -> Iterator[str]:
    """The queries of a parsed PL/pgSQL body, as statements; `parseMode` says how the server reads each."""
    if isinstance(node, list):
        for item in node:
            yield from _expressions(item)
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        if key == "PLpgSQL_expr":
            match value["parseMode"]:
                case 0:
                    yield value["query"]
                case 2:
                    yield f"SELECT {value['query']}"
                case _:
                    yield f"SELECT {value['query'].split(':=', 1)[1]}"
        else:
            yield from _expressions(value)
