"""App("embedded"): the server starts at the first use, and a new space is migrated."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fencerow import App, server


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("FENCEROW_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"
    server.stop("shop", now=True)


@pytest.mark.slow
async def test_an_embedded_app_starts_its_server_and_makes_its_spaces(home: Path) -> None:
    """Slow: it makes a database server."""
    app = App("embedded:shop")
    task = app.task(name="note")(lambda: None)
    assert not server.status("shop").exists

    async with app:
        first = await task.aenqueue()
        other = App("embedded:shop", schema="other one")
        async with other:
            second = await other.task(name="note")(lambda: None).aenqueue()
        again = await task.aenqueue()
        assert server.status("shop").used

    assert (first.id, second.id, again.id) == (1, 1, 2)
    assert not server.status("shop").used
    assert not server.status("shop").standing


@pytest.mark.slow
def test_an_embedded_app_is_a_target_like_any_other(home: Path) -> None:
    """Slow: it makes a database server."""
    with App("embedded:shop") as app:
        assert app.migrate().idle
        target = app.target(name="shop", statement_seconds=2)
        assert (target.name, target.schema, target.watchdog_seconds) == ("shop", "fencerow", 3.2)
