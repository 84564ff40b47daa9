"""Names that the parts of a long run share, without the app of its workers, which needs a database to be named."""

from __future__ import annotations

import os

import psycopg

FOLDER_VARIABLE = "FENCEROW_SOAK_FOLDER"
APP = "bench.soak.tasks:app"
QUEUES = ("soak-a", "soak-b")


def ledger_path(key: str) -> str:
    """Where the effect of a key is recorded, below the ledger's folder."""
    name = key.replace("/", "_")
    return os.path.join(name[-2:].rjust(2, "0"), name)


def make_tables(dsn: str) -> None:
    """The business tables of a campaign."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE public.soak_business (job_id bigint NOT NULL, n bigint NOT NULL, generation int NOT NULL)"
        )
        connection.execute("CREATE TABLE public.soak_orders (n bigint PRIMARY KEY)")
