"""The code on the pages about handlers and testing runs, and does what the pages say."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fencerow.testing.space import Space
from tests.tidy.sources import ROOT

BLOCK = re.compile(r"^```(\w+)(?: file=([\w.]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str, str]]:
    """(language, file name or "", code) of each block of a page, in order."""
    return BLOCK.findall((ROOT / "docs" / page).read_text())


async def test_the_code_on_the_page_about_handlers_runs(space: Space) -> None:
    first, *others = [code for language, _, code in blocks("handlers.md") if language == "python"]
    names: dict[str, Any] = {"__name__": "page"}
    assert 'App("embedded")' in first
    exec(compile(first.replace('App("embedded")', f"App({space.dsn!r})"), "handlers.md", "exec"), names)
    *rest, last = others
    async with names["app"].worker(queues=["default", "mail"], concurrency=2):
        for code in rest:
            await asyncio.to_thread(exec, compile(code, "handlers.md", "exec"), names)
        booked = await names["book"].aenqueue(7)
        await booked.aresult(timeout=20)
    exec(compile(last, "handlers.md", "exec"), names)

    assert await names["main"]() == "mailed receipt 2"
    await names["app"].aclose()
    assert names["charged"] == [1250, 990]
    assert space.connection.execute("SELECT entry FROM ledger").fetchall() == [(7,)]
    space.connection.execute("DROP TABLE ledger")
    assert f"{names['book'].name} begins" in names["spans"]


@pytest.mark.slow
def test_the_tests_on_the_page_about_testing_pass(tmp_path: Path) -> None:
    """Slow: pytest runs in a process of its own, with a server of its own."""
    for language, file, code in blocks("testing.md"):
        match language, file:
            case "toml", _:
                (tmp_path / "pyproject.toml").write_text(code)
            case "python", str(name):
                assert name
                (tmp_path / name).write_text(code)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=55,
    )

    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "2 passed" in answer.stdout
