"""
The campaign of random faults: a throwaway server, workers under supervisors, producers, a proxy between them, and a
nemesis; then the checker.

Faults stop first, then the producers; the queue drains; everything is told to end; what is left behind is looked for; and
only then the tape is read and checked.
"""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.soak import nemesis, places, processes, tape
from bench.soak.check import Violation, check, excerpt, repeats
from fencerow.server import Cluster
from fencerow.store.migrate import migrate_dsn
from fencerow.testing.proxy import Proxy
from fencerow.worker.supervisor import EXIT_CRASH_LOOP

SUPERVISORS = 2
PROCESSES = 2
CONCURRENCY = 8
GRACE_SECONDS = 3.0
LOG_LINES = 40
PROOF_SECONDS = 15.0
"""A campaign this long must have seen a job repeated, else it proves nothing; a shorter one may miss it by chance."""
EXCERPTS = 3
EXITS_BY_FAULT = (0, -signal.SIGKILL, -signal.SIGTERM, EXIT_CRASH_LOOP)
"""A supervisor was told to stop, killed, told to stop before it listened, or saw too many of its workers killed."""
STANDSTILL_SECONDS = 60.0
LONG_SECONDS, FAULTS_MIN, FAMILY_MIN, RATE_MIN = 1800, 600, 30, 200
LIVE = (
    "SELECT (SELECT count(*) FROM fencerow.ready WHERE NOT suspect), (SELECT count(*) FROM fencerow.ready WHERE suspect), "
    "(SELECT count(*) FROM fencerow.scheduled), (SELECT count(*) FROM fencerow.running)"
)
SETTINGS = {"shared_buffers": "128MB", "max_connections": "200", "max_wal_size": "1GB"}


@dataclass(frozen=True, slots=True)
class Plan:
    """
    Args:
        seconds: of faults.  spacing: seconds from one fault to the next.  rate: jobs enqueued a second.
        lease: seconds.  drain: seconds that the rest may take.
        keep: a folder for the tape and the logs, left behind; None: nothing is.
    """

    seconds: float
    seed: int
    spacing: float = 2.5
    rate: float = 225.0
    lease: float = 2.5
    drain: float = 1800.0
    keep: Path | None = None


def run(plan: Plan) -> dict[str, Any]:
    """Run a campaign; its figures, with ``violations`` empty when every promise was kept."""
    with tempfile.TemporaryDirectory(prefix="fencerow-soak-") as name:
        campaign = _Campaign(plan, Path(name))
        try:
            return campaign.run()
        finally:
            if plan.keep is not None:
                plan.keep.mkdir(parents=True, exist_ok=True)
                for part in ("sent", "effects", "logs"):
                    shutil.copytree(campaign.folder / part, plan.keep / part, dirs_exist_ok=True)


class _Campaign:
    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.mark = secrets.token_hex(8)
        for part in ("sent", "effects", "ledger", "logs", "tmp"):
            (folder / part).mkdir()
        self.left: list[Violation] = []
        self.figures: dict[str, Any] = {}
        self._log = (folder / "logs" / "faults.log").open("a", encoding="utf-8")

    def say(self, line: str) -> None:
        """One line of the run's story: to the terminal and to a file."""
        print(line, flush=True)
        print(line, file=self._log, flush=True)

    def run(self) -> dict[str, Any]:
        plan, cluster = self.plan, Cluster(self.folder / "pg", settings=SETTINGS)
        self.say(f"seed {plan.seed}: faults for {plan.seconds:.0f} s, one each {plan.spacing} s")
        try:
            cluster.start()
            dsn = cluster.dsn("fencerow")
            migrate_dsn(dsn)
            places.make_tables(dsn)
            self._conditions(dsn)
            self._play(cluster, dsn)
            with psycopg.connect(dsn) as connection:
                self._look_for_sessions(connection)
                found = tape.read(self.folder, connection)
        finally:
            if cluster.log.exists():
                shutil.copy(cluster.log, self.folder / "logs" / "server.log")
            cluster.remove()
            self._log.close()
        if cluster.sockets.exists() or cluster.data.exists():
            self.left.append(Violation("nothing left", None, "the server's folders are still there"))
        return self._judge(found)

    def _conditions(self, dsn: str) -> None:
        with psycopg.connect(dsn) as connection:
            version = connection.info.parameter_status("server_version")
        self.figures["conditions"] = {
            "postgresql": version,
            "python": platform.python_version(),
            "processors": os.cpu_count(),
            "workers": f"{SUPERVISORS} supervisors of {PROCESSES}, concurrency {CONCURRENCY}",
            "seed": self.plan.seed,
            "seconds": self.plan.seconds,
            "spacing": self.plan.spacing,
            "rate": self.plan.rate,
            "lease": self.plan.lease,
        }

    # -- the run

    def _play(self, cluster: Cluster, dsn: str) -> None:
        plan = self.plan
        with ExitStack() as stack:
            logs = stack.enter_context((self.folder / "logs" / "others.log").open("ab"))
            proxy = stack.enter_context(Proxy(cluster.sockets))
            env = processes.environment(self.mark, proxy.dsn("fencerow", "fencerow"), self.folder)
            stack.enter_context(self._fleet(env))
            producer = processes.Child(
                "bench.soak.produce", str(plan.seed), str(plan.rate), env=env, log=logs
            )
            stack.callback(producer.end, 30)
            producer.hear()
            self._await_workers(dsn)
            enemy = nemesis.Nemesis(
                cluster, dsn=dsn, proxy=proxy, mark=self.mark, lease=plan.lease, say=self.say
            )
            faults = nemesis.schedule(
                plan.seed, list(enemy.families), seconds=plan.seconds, spacing=plan.spacing
            )
            began = time.monotonic()
            enemy.run(faults)
            self.figures["fault_seconds"] = round(time.monotonic() - began, 1)
            time.sleep(max(0.0, began + plan.seconds - time.monotonic()))
            code = producer.end(60)
            self.figures["produced_seconds"] = round(time.monotonic() - began, 1)
            if code != 0:
                self.left.append(Violation("campaign", None, f"the producers ended with {code}"))
            self.figures["faults"] = {family: enemy.done[family] for family in enemy.families}
            self.figures["without_victim"] = dict(enemy.missed)
            self.figures["skipped"] = enemy.skipped
            self._drain(dsn)
        self._look_for_processes()

    @contextmanager
    def _fleet(self, env: dict[str, str]) -> Iterator[processes.Fleet]:
        arguments = ["--queues", ",".join(places.QUEUES), "--quiet", "--log-level", "info"]
        for name, value in (
            ("processes", PROCESSES),
            ("concurrency", CONCURRENCY),
            ("lease", self.plan.lease),
            ("grace", GRACE_SECONDS),
        ):
            arguments += [f"--{name}", str(value)]
        fleet = processes.Fleet(SUPERVISORS, arguments, env=env, folder=self.folder / "logs", app=places.APP)
        try:
            yield fleet
        finally:
            codes = fleet.stop(30)
            self.figures["supervisor_exits"] = {
                "by_fault": {str(code): count for code, count in Counter(fleet.exits).items()},
                "at_the_end": codes,
            }
            strange = [code for code in fleet.exits if code not in EXITS_BY_FAULT]
            if strange:
                self.left.append(Violation("stop", None, f"supervisors ended with {sorted(set(strange))}"))
            if codes != [0] * SUPERVISORS:
                self.left.append(Violation("stop", None, f"the supervisors ended with {codes}"))

    def _await_workers(self, dsn: str) -> None:
        deadline = time.monotonic() + 60
        with psycopg.connect(dsn, autocommit=True) as connection:
            while True:
                # Asleep, so that it has looked for jobs: a lease alone may be that of a worker which died right after.
                row = connection.execute("SELECT count(DISTINCT lease_id) FROM fencerow.asleep").fetchone()
                if row == (SUPERVISORS * PROCESSES,):
                    return
                if time.monotonic() > deadline:
                    raise TimeoutError("the workers did not start")
                time.sleep(0.05)

    def _drain(self, dsn: str) -> None:
        began = time.monotonic()
        said = moved = 0.0
        before: tuple[Any, ...] | None = None
        with psycopg.connect(dsn, autocommit=True) as connection:
            while True:
                row = connection.execute(LIVE).fetchone()
                took = time.monotonic() - began
                if row is None or not any(row) or took > self.plan.drain:
                    break
                if row != before:
                    before, moved = row, took
                elif took - moved > STANDSTILL_SECONDS:
                    self.say("nothing moves any more")
                    break
                if took - said > 10:
                    said = took
                    self.say("draining: {} ready, {} suspects, {} scheduled, {} running".format(*row))
                time.sleep(0.1)
        self.figures["drain_seconds"] = round(time.monotonic() - began, 1)

    # -- what is left behind

    def _look_for_processes(self) -> None:
        deadline = time.monotonic() + 15
        while left := processes.marked(self.mark):
            if time.monotonic() > deadline:
                text = ", ".join(f"{found.role} {found.pid}" for found in left)
                self.left.append(Violation("nothing left", None, f"processes: {text}"))
                for found in left:
                    os.kill(found.pid, 9)
                return
            time.sleep(0.1)
        temporary = sorted(path.name for path in (self.folder / "tmp").iterdir())
        if temporary:
            self.left.append(Violation("nothing left", None, f"temporary files: {temporary[:5]}"))

    def _look_for_sessions(self, connection: psycopg.Connection[Any]) -> None:
        rows = connection.execute(
            "SELECT application_name FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchall()
        if rows:
            self.left.append(Violation("nothing left", None, f"sessions: {[row[0] for row in rows][:5]}"))

    # -- the verdict

    def _judge(self, found: tape.Tape) -> dict[str, Any]:
        violations = self.left + check(found)
        count = repeats(found)
        if not count and self.plan.seconds >= PROOF_SECONDS:
            violations.append(Violation("proof", None, "no job was repeated: the run proves nothing"))
        was = Counter[str]()
        for batch in found.sent:
            was[f"{batch.how} {batch.was}"] += len(batch.numbers)
        acknowledged = sum(number for what, number in was.items() if what.endswith("acknowledged"))
        rate = round(acknowledged / self.figures["produced_seconds"], 1)
        if self.plan.seconds >= LONG_SECONDS:
            violations += _too_little(self.figures["faults"], rate)
        figures = {
            **self.figures,
            "enqueued": dict(sorted(was.items())),
            "acknowledged_per_second": rate,
            "jobs": len(found.jobs),
            "calls": len(found.calls),
            "repeated_calls": count,
            "stopped_at_their_beginning": found.stopped,
            "effects": len(found.ledger),
            "effects_refused_by_the_destination": sum(call.applied is False for call in found.calls),
            "ended": dict(Counter(row.outcome for row in found.ended)),
            "attempts": dict(Counter(row.kind for row in found.attempts)),
            "refusals": dict(Counter(f"{row.op} {row.verdict}" for row in found.refusals)),
            "violations_by_rule": dict(Counter(violation.rule for violation in violations)),
            "violations": [asdict(violation) for violation in violations[:1000]],
        }
        figures["excerpts"] = self._excerpts(found, violations)
        return figures

    def _excerpts(self, found: tape.Tape, violations: list[Violation]) -> list[dict[str, Any]]:
        """For each broken rule the job with the shortest story, with what the workers' logs say of it."""
        by_rule: dict[str, list[list[str]]] = {}
        for violation in violations:
            if violation.job is not None and len(by_rule.setdefault(violation.rule, [])) < 20:
                lines = [violation.text, *excerpt(found, violation.job), *self._logged(violation.job)]
                by_rule[violation.rule].append(lines)
        return [
            {"rule": rule, "stories": sorted(stories, key=len)[:EXCERPTS]}
            for rule, stories in by_rule.items()
        ]

    def _logged(self, job: int) -> list[str]:
        lines: list[str] = []
        for path in sorted((self.folder / "logs").glob("worker-*.log")):
            with path.open(encoding="utf-8", errors="replace") as file:
                lines += [f"{path.stem}: {line.rstrip()}" for line in file if f"job={job} " in line]
        return lines[:LOG_LINES]


def _too_little(faults: dict[str, int], rate: float) -> Iterator[Violation]:
    """What a long campaign has to have gone through, or it proves less than it says."""
    if sum(faults.values()) < FAULTS_MIN:
        yield Violation("proof", None, f"{sum(faults.values())} faults, fewer than {FAULTS_MIN}")
    for family, count in faults.items():
        if count < FAMILY_MIN:
            yield Violation("proof", None, f"{family}: {count} times, less than {FAMILY_MIN}")
    if rate < RATE_MIN:
        yield Violation("proof", None, f"{rate} jobs a second were acknowledged, fewer than {RATE_MIN}")


def table(figures: dict[str, Any]) -> str:
    """The figures as text, violations with their shortest stories last."""
    lines = []
    for name, value in figures.items():
        if name in ("violations", "excerpts"):
            continue
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [f"  {key:44} {entry}" for key, entry in value.items()]
            if name == "faults":
                lines.append(f"  {'in all':44} {sum(value.values())}")
        else:
            lines.append(f"{name:46} {value}")
    shown: set[str] = set()
    for violation in figures["violations"]:
        if violation["job"] is None or violation["rule"] not in shown:
            shown.add(violation["rule"])
            lines.append(f"VIOLATION {violation['rule']}: job {violation['job']}: {violation['text']}")
    for entry in figures["excerpts"]:
        lines.append(f"-- {entry['rule']}, the shortest of its stories")
        lines += [f"   {line}" for line in entry["stories"][0]]
    lines.append("FAILED" if figures["violations"] else "no violation")
    return "\n".join(lines)


def main(plan: Plan, evidence: Path | None) -> int:
    """Run, print, write the evidence; 1 on any violation."""
    import json

    figures = run(plan)
    print(table(figures))
    if evidence is not None:
        evidence.write_text(json.dumps(figures, indent=1) + "\n")
    sys.stdout.flush()
    return int(bool(figures["violations"]))
