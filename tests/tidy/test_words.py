"""Words that say nothing are no names, and nothing is left for later in the text."""

import ast
import re

from tests.tidy.sources import named, python_files, sql_files

# Whole parts of a name: `job_manager`, `JobManager`, `helpers.py`; `contextmanager` is one other word.
NAMES = {"util", "utils", "helper", "helpers", "common", "manager", "misc", "mock"}
TEXT = re.compile(
    r"\b(TODO|FIXME|XXX|HACK)\b|\b[Hh]elpers?\b|(?<!importlib\.)\b[Uu]tils?\b|\bMock\b|MagicMock|\bmock\."
)
THIS = "tests/tidy/test_words.py"


def parts(name: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def banned(name: str, text: str) -> list[str]:
    faults = [f"{name}: the file's name"] if parts(name) & NAMES else []
    for number, line in enumerate(text.splitlines(), 1):
        found = TEXT.search(line)
        if found:
            faults.append(f"{name}:{number}: {found.group()}")
    if name.endswith(".py"):
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.FunctionDef(name=word) | ast.AsyncFunctionDef(name=word) | ast.ClassDef(name=word):
                    defined = word
                case ast.Name(id=word, ctx=ast.Store()) | ast.arg(arg=word):
                    defined = word
                case _:
                    continue
            if parts(defined) & NAMES:
                faults.append(f"{name}:{node.lineno}: the name {defined}")
    return faults


def test_no_banned_word() -> None:
    files = [path for path in [*python_files(), *sql_files()] if named(path) != THIS]

    assert [f for path in files for f in banned(named(path), path.read_text())] == []


def test_the_check_finds_each_kind() -> None:
    assert banned("a/job.py", "from contextlib import contextmanager\nx = 1  # why\n") == []
    assert banned("a/helpers.py", "") == ["a/helpers.py: the file's name"]
    assert banned("a.sql", "-- later: FIXME") == ["a.sql:1: FIXME"]
    assert banned("a.py", "class JobManager: ...") == ["a.py:1: the name JobManager"]
    assert banned("a.py", "def f(common_part): ...") == ["a.py:1: the name common_part"]
