"""
``python -m bench.soak.produce``: three producers at a fixed rate, until standard input ends.

``keyed``: own connection, an idempotency key per job; sent again until it is acknowledged. ``keyless``: own connection; a
refused one is never sent again, an uncertain one is noted. ``inside``: with an order row in the caller's transaction, which
is sometimes rolled back. Each writes what became of every batch to a file of its own, one line each, before the next one.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from bench.soak import tasks
from bench.soak.places import FOLDER_VARIABLE
from fencerow.config import DSN_VARIABLE
from fencerow.errors import CommitUncertain, StoreError
from fencerow.types import NewJob

BATCH_MAX = 25
PAUSE_SECONDS = 0.1
ROLLED_BACK = 0.05
NAPS_MS = (0, 300)
WAITING = ("nap", "thread", "progress", "commit", "commit_thread", "again", "once")
WAYS = ("keyed", "keyless", "inside")
# Shares of 100.
MIX = {
    "plain": 54,
    "nap": 8,
    "thread": 8,
    "progress": 6,
    "commit": 5,
    "commit_thread": 3,
    "unavailable": 3,
    "again": 3,
    "snoozed": 3,
    "refused": 2,
    "withdrawn": 1,
    "spent": 1,
    "once": 3,
}


def job(seed: int, n: int, *, key: str | None) -> NewJob:
    """The n-th job: its task and its length depend on seed and n alone."""
    chance = random.Random(f"{seed}:{n}")
    name = chance.choices(list(MIX), list(MIX.values()))[0]
    waits = {"ms": chance.randint(*NAPS_MS)} if name in WAITING else {}
    return tasks.app.tasks[name].using(idempotency_key=key).bind(n=n, **waits)


class Producer(threading.Thread):
    """One way to enqueue, at its share of the rate."""

    def __init__(self, way: str, seed: int, rate: float, stop: threading.Event) -> None:
        super().__init__(name=way)
        self._way = way
        self._seed = seed
        self._rate = rate
        self._stop_event = stop
        self._connection: psycopg.Connection[Any] | None = None
        self._numbers = self._count()
        self._chance = random.Random(f"{seed}:{way}")
        path = os.path.join(os.environ[FOLDER_VARIABLE], "sent", f"{way}.jsonl")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.error: BaseException | None = None

    def _count(self) -> Iterator[int]:
        n = WAYS.index(self._way)
        while True:
            yield n
            n += len(WAYS)

    def run(self) -> None:
        try:
            self._produce()
        except BaseException as error:
            self.error = error
            raise
        finally:
            os.close(self._file)
            if self._connection is not None:
                self._connection.close()

    def _produce(self) -> None:
        send: Callable[[list[int]], bool] = getattr(self, f"_{self._way}")
        began, acknowledged, well = time.monotonic(), 0, True
        while not self._stop_event.is_set():
            due = int((time.monotonic() - began) * self._rate) - acknowledged
            if due <= 0:
                self._stop_event.wait(0.005)
                continue
            # In trouble one at a time, so that an outage refuses few.
            numbers = [next(self._numbers) for _ in range(min(due, BATCH_MAX) if well else 1)]
            well = send(numbers)
            acknowledged += len(numbers) if well else 0
            if not well:
                self._stop_event.wait(PAUSE_SECONDS)

    def _note(self, numbers: list[int], was: str, ids: list[int] | None = None, error: object = None) -> None:
        line = {"n": numbers, "how": self._way, "was": was, "ids": ids or [], "t": time.time()}
        if error is not None:
            line["error"] = type(error).__name__
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def _keyed(self, numbers: list[int]) -> bool:
        jobs = [job(self._seed, n, key=f"key-{self._seed}-{n}") for n in numbers]
        while True:
            try:
                handles = tasks.app.enqueue_many(jobs)
            except StoreError:
                # The same keys again answer the same jobs, also after the stop: nothing stays unknown.
                time.sleep(PAUSE_SECONDS)
                continue
            self._note(numbers, "acknowledged", [handle.id for handle in handles])
            return True

    def _keyless(self, numbers: list[int]) -> bool:
        jobs = [job(self._seed, n, key=None) for n in numbers]
        try:
            handles = tasks.app.enqueue_many(jobs)
        except CommitUncertain as error:
            self._note(numbers, "uncertain", error=error)
        except StoreError as error:
            self._note(numbers, "refused", error=error)
        else:
            self._note(numbers, "acknowledged", [handle.id for handle in handles])
            return True
        return False

    def _inside(self, numbers: list[int]) -> bool:
        jobs = [job(self._seed, n, key=None) for n in numbers]
        try:
            connection = self._connect()
            with connection.cursor() as cursor:
                cursor.executemany("INSERT INTO public.soak_orders (n) VALUES (%s)", [(n,) for n in numbers])
            handles = tasks.app.enqueue_many(jobs, connection=connection)
            if self._chance.random() < ROLLED_BACK:
                connection.rollback()
                self._note(numbers, "rolled back")
                return True
        except (psycopg.Error, StoreError) as error:
            self._note(numbers, "refused", error=error)
            self._disconnect()
            return False
        try:
            connection.commit()
        except psycopg.Error as error:
            self._note(numbers, "uncertain", error=error)
            self._disconnect()
            return False
        self._note(numbers, "acknowledged", [handle.id for handle in handles])
        return True

    def _connect(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                os.environ[DSN_VARIABLE],
                connect_timeout=5,
                application_name="soak orders",
                options="-c statement_timeout=5000",
            )
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def main(seed: int, rate: float) -> int:
    """Produce until standard input ends; 1 when a producer broke."""
    stop = threading.Event()
    producers = [Producer(way, seed, rate / len(WAYS), stop) for way in WAYS]
    for producer in producers:
        producer.start()
    print("ready", flush=True)
    sys.stdin.read()
    stop.set()
    for producer in producers:
        producer.join()
    tasks.app.close()
    return int(any(producer.error is not None for producer in producers))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2])))
