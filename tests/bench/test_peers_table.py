"""docs/peers.md shows what the command measured, and only that."""

import json

import pytest

from bench.peers import report
from bench.peers.catalogue import PEERS

FOUND = json.loads(report.RESULTS.read_text())


def test_the_page_shows_the_stored_results() -> None:
    page = report.PAGE.read_text()

    assert report.with_measured(page, FOUND) == page, "run `python -m bench.peers stale --write`"


def test_a_result_that_was_changed_by_hand_is_found() -> None:
    page = report.PAGE.read_text()
    line = next(line for line in page.splitlines() if line.startswith("| procrastinate | 3.10.0 |"))
    changed = page.replace(line, line.replace("accepted", "refused"))

    assert changed != page
    assert report.with_measured(changed, FOUND) != changed


def test_a_page_without_a_measured_part_is_an_error() -> None:
    with pytest.raises(ValueError, match="no measured part"):
        report.with_measured("# Other queues\n", FOUND)


def test_every_peer_of_the_catalogue_has_a_result_of_its_version() -> None:
    measured = {peer["name"]: peer["version"] for peer in FOUND["peers"]}

    for peer in PEERS:
        assert peer.name in measured or peer.name in FOUND["skipped"]
        assert not peer.version or measured.get(peer.name, peer.version) == peer.version


def test_the_facts_table_has_a_full_row_for_every_peer() -> None:
    facts = report.PAGE.read_text().partition("## Facts")[2]
    rows = [line.split(" | ") for line in facts.splitlines() if line.startswith("| ")]

    assert len(rows) == len([peer for peer in PEERS if peer.name != "pg-boss-by-id"]) + 1
    assert {len(row) for row in rows} == {8}
