"""The files that the tidy tests read. A check goes from text to faults, so that it can be shown a bad one."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "fencerow"
SQL = SRC / "sql"
FOLDERS = ("src", "tests", "tools", "bench")


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders or FOLDERS for path in (ROOT / folder).rglob("*.py"))


def sql_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders or ("",) for path in (SQL / folder).rglob("*.sql"))


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Every string constant that is not a docstring."""
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node


def called(node: ast.Call) -> str:
    """The dotted name that is called: `time.sleep`, `sleep`, or the last parts of a longer expression."""
    return ast.unparse(node.func)
