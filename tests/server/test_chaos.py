"""Users, keeper and server killed in any order: every start succeeds, and no commit is lost."""

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from fencerow import server
from tests.server.processes import PAUSE, Program, until

# Uses the server for one commit, says how many there are, and goes on using it until its input ends.
COMMITTER = """
import json, psycopg, sys
from fencerow.server import embedded
used, count = embedded(timeout=40), None
try:
    with psycopg.connect(used.dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO chaos VALUES (1)")
        count = connection.execute("SELECT count(*) FROM chaos").fetchone()[0]
except psycopg.Error:
    pass  # the server was killed under it
print(json.dumps(count), flush=True)
sys.stdin.read()
"""


def kill(*pids: int | None) -> None:
    for pid in pids:
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_no_order_of_deaths_loses_a_commit_or_a_start(home: Path, seed: int) -> None:
    """Takes some seconds: twenty rounds of real processes."""
    chance = random.Random(seed)
    users: list[Program] = []
    most = acknowledged = 0
    with server.embedded() as used, psycopg.connect(used.dsn) as connection:
        connection.execute("DROP TABLE IF EXISTS chaos")
        connection.execute("CREATE TABLE chaos (value int)")
    try:
        for _ in range(20):
            users += [Program(COMMITTER) for _ in range(3 - len(users))]
            found = server.status()
            match chance.choice(["user", "keeper", "server", "both", "stop"]):
                case "keeper":
                    kill(found.keeper_pid)
                case "server":
                    kill(found.server_pid)
                case "both":
                    kill(found.server_pid, found.keeper_pid)
                case "stop":
                    server.stop(now=True)
            PAUSE.wait(chance.random() * 0.3)  # moves the next deaths to another moment; nothing waits for it
            user = users.pop(chance.randrange(len(users)))
            with user:
                if chance.random() < 0.5:
                    count = user.answer()
                    if isinstance(count, int):
                        acknowledged, most = acknowledged + 1, max(most, count)
    finally:
        for user in users:
            user.kill()
    with server.embedded() as used, psycopg.connect(used.dsn) as connection:
        row = connection.execute("SELECT count(*) FROM chaos").fetchone()
    assert row is not None
    assert row[0] >= max(most, acknowledged)
    assert acknowledged > 0
    until(lambda: server.status().keeper_pid is None, "the keeper is gone")
