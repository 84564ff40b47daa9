"""Files stay short enough to read at one sitting, functions short enough to see at once."""

import ast

from tests.tidy.sources import ROOT, named, python_files, sql_files

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60


def too_long(name: str, text: str) -> list[str]:
    lines = len(text.splitlines())
    faults = [f"{name}: {lines} lines, at most {FILE_LINES_MAX}"] if lines > FILE_LINES_MAX else []
    if name.endswith(".py"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    faults.append(f"{name}:{node.lineno}: {node.name} has {length} lines, at most 60")
    return faults


def test_files_and_functions_are_short() -> None:
    shell = sorted((ROOT / "tools").glob("*.sh"))
    found = [
        f for path in [*python_files(), *sql_files(), *shell] for f in too_long(named(path), path.read_text())
    ]

    assert found == []


def test_the_check_finds_a_long_file_and_a_long_function() -> None:
    body = "def f():\n" + "    pass\n" * FUNCTION_LINES_MAX

    assert too_long("a.py", "pass\n" * FILE_LINES_MAX) == []
    assert too_long("a.py", "pass\n" * (FILE_LINES_MAX + 1)) == ["a.py: 401 lines, at most 400"]
    assert too_long("a.py", body) == ["a.py:1: f has 61 lines, at most 60"]
