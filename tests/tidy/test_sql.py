"""Every SQL file keeps every rule, and every rule refuses the sample made for it."""

from collections.abc import Callable

import pytest

from tests.tidy import sql_rules
from tests.tidy.sources import named, sql_files
from tests.tidy.sqltree import SqlFile, read

HEADER = """\
-- settle: running -> done
-- fence:   hold()
-- locks:   the ticket
-- params:  p_job
-- returns: nothing
-- plan:    one probe,
--          by key
"""
DEFINER = "LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'"


def function(
    body: str, *, header: str = HEADER, name: str = "fencerow.settle", options: str = DEFINER
) -> str:
    signature = f"CREATE FUNCTION {name}(p_job bigint) RETURNS void {options}"
    return f"{header}{signature} AS $body$\nBEGIN\n{body}\nEND\n$body$;\n"


def sample(text: str, path: str = "sql/jobs/settle.sql") -> SqlFile:
    return read(path, text)


GOOD = function(
    "PERFORM fencerow.hold(p_job);"
    "PERFORM FROM fencerow.running AS r JOIN fencerow.lease AS l ON l.id = r.lease_id"
    " WHERE l.until > fencerow.now() FOR UPDATE OF r SKIP LOCKED;"
    "DELETE FROM fencerow.running AS r WHERE r.job_id = p_job;"
    "PERFORM a.job_id FROM (SELECT * FROM fencerow.answers(p_job)) AS a;"
)
BARE = "LANGUAGE plpgsql"
UNPINNED = "LANGUAGE plpgsql SECURITY DEFINER SET search_path = public SET lock_timeout = '1s'"
IMPATIENT = "LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp"
UNORDERED = HEADER.replace("-- fence:   hold()\n", "") + "-- fence:   hold()\n"
READER = HEADER.replace("running -> done", "reads a ticket")
WRITE = "UPDATE fencerow.running AS r SET note = NULL WHERE r.job_id = p_job;"

BAD = {
    "another-name": (sql_rules.named_as_its_file, function("NULL;", name="fencerow.finish")),
    "another-schema": (sql_rules.named_as_its_file, function("NULL;", name="public.settle")),
    "two-functions": (sql_rules.named_as_its_file, GOOD + function("NULL;", name="fencerow.more")),
    "no-header": (sql_rules.has_header, function("NULL;", header="")),
    "no-transition": (sql_rules.has_header, function("NULL;", header=HEADER.replace("->", "to"))),
    "clauses-in-disorder": (sql_rules.has_header, function("NULL;", header=UNORDERED)),
    "a-fence-on-paper": (sql_rules.keeps_its_fence, function("NULL;")),
    "a-reader-that-writes": (sql_rules.has_header, function(WRITE, header=READER)),
    "not-definer": (sql_rules.pins_its_surroundings, function("NULL;", options=BARE)),
    "search-path-of-others": (sql_rules.pins_its_surroundings, function("NULL;", options=UNPINNED)),
    "waits-for-ever": (sql_rules.pins_its_surroundings, function(WRITE, options=IMPATIENT)),
    "unqualified-table": (sql_rules.qualifies_names, function("PERFORM r.note FROM running AS r;")),
    "foreign-table": (sql_rules.qualifies_names, function("PERFORM r.note FROM other.running AS r;")),
    "public-table": (sql_rules.qualifies_names, function("PERFORM r.note FROM public.running AS r;")),
    "foreign-function": (sql_rules.qualifies_names, function("PERFORM other.settle(p_job);")),
    "trigger": (
        sql_rules.makes_no_trigger,
        GOOD + "CREATE TRIGGER t AFTER INSERT ON fencerow.job EXECUTE FUNCTION fencerow.settle();",
    ),
    "wall-clock": (sql_rules.reads_one_clock, function("PERFORM clock_timestamp();")),
    "transaction-clock": (sql_rules.reads_one_clock, function("PERFORM pg_catalog.now();")),
    "clock-keyword": (sql_rules.reads_one_clock, function("PERFORM CURRENT_TIMESTAMP;")),
    "skips-by-the-other-table": (
        sql_rules.says_what_it_skips,
        function("PERFORM FROM fencerow.running AS r, fencerow.lease AS l FOR UPDATE SKIP LOCKED;"),
    ),
    "star": (sql_rules.names_its_columns, function("PERFORM * FROM fencerow.running AS r;")),
    "star-of-one-table": (sql_rules.names_its_columns, function("PERFORM r.* FROM fencerow.running AS r;")),
    "returning-star": (
        sql_rules.names_its_columns,
        function(
            "WITH gone AS (DELETE FROM fencerow.running AS r RETURNING *) SELECT g.job_id FROM gone AS g;"
        ),
    ),
}


@pytest.mark.parametrize("rule", sql_rules.RULES, ids=lambda rule: rule.__name__)
def test_every_file_keeps_the_rule(rule: Callable[[SqlFile], list[str]]) -> None:
    files = sql_files()

    assert files
    assert [fault for path in files for fault in rule(read(named(path), path.read_text()))] == []


def test_a_good_file_passes_every_rule() -> None:
    assert [fault for rule in sql_rules.RULES for fault in rule(sample(GOOD))] == []


@pytest.mark.parametrize("case", BAD)
def test_the_rule_refuses(case: str) -> None:
    rule, text = BAD[case]

    assert len(rule(sample(text))) == 1


def test_every_rule_has_a_sample_that_it_refuses() -> None:
    assert {rule for rule, _ in BAD.values()} == set(sql_rules.RULES)
