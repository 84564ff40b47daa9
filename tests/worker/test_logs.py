"""What a worker says: every line about a job names job and generation; no payload, no message of a handler's error."""

import json
import logging

import pytest

from fencerow import App, Job
from fencerow.log import JobLog, JsonFormatter, LineFormatter
from fencerow.testing.space import Space
from fencerow.types import Claim
from tests.worker.inside import put, serving, settled, soon
from tests.worker.life import Place, until


def test_a_percent_sign_in_a_task_name_is_no_place_to_fill(caplog: pytest.LogCaptureFixture) -> None:
    claim = Claim(1, "default", 7, 2, 1, 1, 100, "100%s %(x)d", "{}", None)
    with caplog.at_level(logging.INFO, "fencerow"):
        JobLog(claim).info("plain")
        JobLog(claim).info("%s of %d", "two", 3)
        JobLog(claim).info("with %s", "extra", extra={"worker": "w"})

    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "job=7 generation=2 task=100%s %(x)d plain",
        "job=7 generation=2 task=100%s %(x)d two of 3",
        "job=7 generation=2 task=100%s %(x)d with extra",
    ]
    assert {(record.__dict__["job"], record.__dict__["generation"]) for record in caplog.records} == {(7, 2)}
    assert caplog.records[2].__dict__["worker"] == "w"
    assert {record.funcName for record in caplog.records} == {
        "test_a_percent_sign_in_a_task_name_is_no_place_to_fill"
    }


async def test_lines_about_a_job_name_it_and_hold_no_data(
    space: Space, caplog: pytest.LogCaptureFixture
) -> None:
    """I14: what a handler raises may quote its payload; the text is kept in the database, not in the log."""
    app = App(space.dsn)

    @app.task(name="t", backoff=(3600, 3600))
    def handler(job: Job, card: str) -> None:
        job.log.warning("about to fail")
        raise ValueError(f"bad card {card}")

    (job,) = put(space, "t", payload=json.dumps({"card": "4111-secret"}))
    (other,) = put(space, "unknown", payload=json.dumps({"card": "4111-secret"}))
    with caplog.at_level(logging.DEBUG, "fencerow"):
        async with serving(app):
            await soon(lambda: settled(space), "both")

    lines = [LineFormatter().format(record) for record in caplog.records if record.name == "fencerow"]
    about = [line for line in lines if "task=" in line]
    assert not [line for line in lines if "4111" in line]
    assert all(
        f"job={job} generation=1 task=t" in line or f"job={other} generation=1" in line for line in about
    )
    assert any("raised ValueError" in line for line in about)
    assert "bad card 4111-secret" in space.value(
        "SELECT error FROM fencerow.attempt WHERE job_id = %s", (job,)
    )


@pytest.mark.slow
def test_json_lines_carry_job_and_generation_as_fields(place: Place) -> None:
    """Also those of the sweep, about jobs of a worker that vanished. Slow: a lease ends."""
    (job,) = place.enqueue("wait", payload=json.dumps({"gate": "open"}))
    first = place.worker("--lease", "1s", "--json-logs")
    place.seen("begun")
    first.process.kill()
    second = place.worker("--json-logs")
    place.open("open")
    place.all_in("done")
    until(lambda: "lost with" in second.said, "the line")

    lines = [json.loads(line) for line in second.said.splitlines()]
    lost = next(line for line in lines if "lost with" in line["message"])
    assert (lost["job"], lost["generation"]) == (job, 1)
    assert all({"at", "level", "message"} <= line.keys() for line in lines)


def test_a_line_stays_one_line() -> None:
    record = logging.LogRecord("fencerow", logging.INFO, "", 0, "a\nb\x1b[2J", (), None)
    assert "\n" not in LineFormatter().format(record)
    assert json.loads(JsonFormatter().format(record))["message"] == "a\nb\x1b[2J"
