"""Who writes which table. A job's state is where its ticket is, so this lists all that can move a job."""

from tests.tidy.sources import named, sql_files
from tests.tidy.sql_rules import writes
from tests.tidy.sqltree import SqlFile, read

# table → verb → files: an unlisted file may not write, a listed one that no longer does is struck off.
WRITERS: dict[str, dict[str, set[str]]] = {
    "job": {"insert": {"jobs/enqueue_many"}, "delete": {"jobs/purge"}},
    "ready": {
        "insert": {
            "jobs/enqueue_many",
            "jobs/promote",
            "jobs/redrive",
            "rules/end_attempts",
            "rules/move_run_at",
        },
        "delete": {"jobs/claim", "rules/cancel_ticket", "rules/move_run_at"},
    },
    "scheduled": {
        "insert": {"jobs/enqueue_many", "rules/end_attempts", "rules/move_run_at"},
        "delete": {"jobs/promote", "rules/cancel_ticket", "rules/move_run_at"},
    },
    "running": {
        "insert": {"jobs/claim"},
        "update": {"jobs/cancel", "jobs/progress"},
        "delete": {"jobs/complete", "rules/end_attempts"},
    },
    "ended": {
        "insert": {"jobs/complete", "rules/cancel_ticket", "rules/end_attempts"},
        "delete": {"jobs/purge", "jobs/redrive"},
    },
    "attempt": {"insert": {"rules/end_attempts"}, "delete": {"jobs/purge"}},
    "step": {"insert": {"jobs/keep_step"}, "delete": {"jobs/purge"}},
    "refusal": {"insert": {"rules/refuse"}, "delete": {"jobs/purge", "rules/forget"}},
    "lease": {
        "insert": {"workers/open_lease"},
        "update": {"jobs/expire", "jobs/renew"},
        "delete": {"jobs/expire", "workers/close_lease"},
    },
}


def writers(files: list[SqlFile]) -> dict[str, dict[str, set[str]]]:
    found: dict[str, dict[str, set[str]]] = {table: {} for table in WRITERS}
    for file in files:
        for table, verb in writes(file):
            if table in found:
                found[table].setdefault(verb, set()).add(f"{file.folder}/{file.stem}")
    return found


def test_only_the_listed_files_write_a_table() -> None:
    assert writers([read(named(path), path.read_text()) for path in sql_files()]) == WRITERS


def test_a_write_is_seen_wherever_it_hides() -> None:
    body = "WITH gone AS (DELETE FROM fencerow.ready AS r RETURNING r.job_id) SELECT g.job_id FROM gone AS g"
    text = f"CREATE FUNCTION fencerow.sly() RETURNS bigint LANGUAGE sql AS $body$ {body} $body$;"

    assert writers([read("sql/inspect/sly.sql", text)])["ready"] == {"delete": {"inspect/sly"}}
