"""
``python -m bench.peers stale [NAME…]``: does a stale worker's completion get in?

Each peer is installed from its registry into a temporary folder and played on a throwaway server. Exit code 1 when a
peer could not be played.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from bench.peers import report
from bench.peers.catalogue import Peer, chosen
from bench.peers.environment import NotInstalled, Unavailable, prepare
from bench.peers.scenario import Played, Unplayable, play
from fencerow.server import Cluster

# Whether a write is accepted does not depend on the disk. The log shows what a worker sent.
SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_connections": "100", "log_statement": "all"}


def main() -> int:
    """Play and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("scenario", choices=["stale"])
    parser.add_argument("names", nargs="*", metavar="NAME", help="peers; all by default")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    parser.add_argument("--write", action="store_true", help="also renew results.json and docs/peers.md")
    parser.add_argument("--environments", metavar="FOLDER", type=Path, help="keep what is installed here")
    asked = parser.parse_intermixed_args()
    try:
        peers = chosen(asked.names)
    except ValueError as error:
        parser.error(str(error))
    if asked.write and asked.names:
        parser.error("--write needs all peers")
    folder = Path(tempfile.mkdtemp(prefix="fencerow-peers-"))
    cluster = Cluster(folder / "pg", settings=SETTINGS)
    try:
        cluster.start()
        version = ".".join(map(str, cluster.binaries.version))
        played, skipped, stopped = _play_all(
            peers, asked.environments or folder / "environments", cluster, folder
        )
    finally:
        cluster.remove()
        shutil.rmtree(folder, ignore_errors=True)
    today = datetime.now(UTC).date().isoformat()
    found = report.document(played, skipped, postgresql=version, on=today)
    print(json.dumps(found, indent=2, ensure_ascii=False) if asked.json else report.table(played, skipped))
    for name, reason in stopped.items():
        print(f"{name}: not played: {reason}", file=sys.stderr)
    if asked.write and not stopped:
        report.write(found)
    return 1 if stopped else 0


def _play_all(
    peers: list[Peer], environments: Path, cluster: Cluster, folder: Path
) -> tuple[list[Played], dict[str, str], dict[str, str]]:
    """What was played, what was skipped and why, what stopped half-way and where."""
    played: list[Played] = []
    skipped: dict[str, str] = {}
    stopped: dict[str, str] = {}
    for peer in peers:
        meeting = folder / peer.name
        meeting.mkdir()
        print(f"{peer.name} …", file=sys.stderr)
        try:
            command, environment = prepare(peer, environments / peer.name)
            played.append(
                play(
                    peer, command, {**environment, **dict(peer.environment)}, cluster=cluster, folder=meeting
                )
            )
        except Unavailable as error:
            skipped[peer.name] = str(error)
        except (NotInstalled, Unplayable) as error:
            stopped[peer.name] = str(error)
    return played, skipped, stopped


if __name__ == "__main__":
    sys.exit(main())
