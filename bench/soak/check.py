"""
The checker: from a tape to the promises that it breaks. Pure, so that it can be shown tapes with planted violations.

Each rule names the invariant it stands for (see the specification of the promises in ARCHITECTURE.md) and, where it is
about one job, the job.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.soak.tape import Attempt, Call, Ended, Job, Refusal, Tape

TOLERANCE_SECONDS = 0.002
"""Two processes of one machine read the same clock; a reading is not older than this when it is compared."""

GIVEN_BACK = ("released", "snoozed")
OUTCOMES = {"refused": "failed", "withdrawn": "cancelled", "spent": "failed"}
"""How a task's jobs end; all others are done."""
COMMITTING = ("commit", "commit_thread")
WITHOUT_EFFECT = (*COMMITTING, "refused", "withdrawn", "spent")
SETTLED_AS = {"unavailable": "unavailable", "retry": "failed", "error": "failed", "snooze": "snoozed"}
"""The kind of the attempt row that an outcome of a handler leaves, when it came in time."""
OURS = ("entry", "commit")
"""Phases of a call in which only Fencerow's own statements run."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise. ``job`` None: about the whole run."""

    rule: str
    job: int | None
    text: str


@dataclass(slots=True)
class Story:
    """All about one job."""

    job: Job
    ended: list[Ended] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


def check(tape: Tape) -> list[Violation]:
    """Every broken promise, those of the whole run first."""
    stories = {job.id: Story(job) for job in tape.jobs}
    found: list[Violation] = []
    for kind in ("ended", "attempts", "refusals", "calls"):
        for row in getattr(tape, kind):
            story = stories.get(row.job)
            if story is None:
                found.append(Violation("I1 reachable", row.job, f"{kind}: no such job: {row}"))
            else:
                getattr(story, kind).append(row)
    found += _whole(tape)
    found += _sent(tape, stories)
    business = Counter(job for job, _ in tape.business)
    for story in stories.values():
        story.attempts.sort(key=lambda row: row.generation)
        story.calls.sort(key=lambda call: (call.generation, call.began))
        found += _ending(story, live=story.job.id in tape.live)
        found += _generations(story)
        found += _charges(story)
        found += _calls(story)
        found += _effects(story, tape.ledger)
        found += _business(story, business[story.job.id])
    return found


def repeats(tape: Tape) -> int:
    """Calls that were not the first of their job because of a loss or a release: those that prove something."""
    disturbed = {(row.job, row.generation) for row in tape.attempts if row.kind in ("lost", "released")}
    called = {(call.job, call.generation) for call in tape.calls}
    generations: defaultdict[int, list[int]] = defaultdict(list)
    for job, generation in called:
        generations[job].append(generation)
    count = 0
    for job, all_ in generations.items():
        all_.sort()
        count += sum((job, before) in disturbed for before in all_[:-1])
    return count


def _whole(tape: Tape) -> Iterator[Violation]:
    if tape.live:
        yield Violation(
            "I1 one terminal state", None, f"{len(tape.live)} jobs are still live after the drain"
        )
    for n, count in Counter(job.n for job in tape.jobs).items():
        if count > 1:
            ids = [job.id for job in tape.jobs if job.n == n]
            yield Violation("I11 one job per enqueue", ids[0], f"number {n} was enqueued as jobs {ids}")


def _sent(tape: Tape, stories: dict[int, Story]) -> Iterator[Violation]:
    by_number = {job.n: job for job in tape.jobs}
    orders = set(tape.orders)
    known: set[int] = set()
    for batch in tape.sent:
        known.update(batch.numbers)
        present = [n for n in batch.numbers if n in by_number]
        match batch.was:
            case "acknowledged":
                for n, number in zip(batch.numbers, batch.ids, strict=True):
                    story = stories.get(number)
                    if story is None or story.job.n != n:
                        yield Violation(
                            "I1 nothing lost", number, f"number {n} was acknowledged, and is not there"
                        )
            case "uncertain":
                if present and len(present) < len(batch.numbers):
                    yield Violation(
                        "I11 all or none", by_number[present[0]].id, f"only {present} of {batch.numbers}"
                    )
            case _:
                for n in present:
                    yield Violation(
                        "I11 refused is refused", by_number[n].id, f"number {n} was {batch.was}, and is there"
                    )
        if batch.how == "inside":
            for n in batch.numbers:
                if (n in orders) != (n in by_number):
                    there = "a job without its order" if n in by_number else "an order without its job"
                    whose = by_number[n].id if n in by_number else None
                    yield Violation("I10 together or not at all", whose, f"number {n}: {there}")
    for n in by_number.keys() - known:
        yield Violation("I1 nothing made up", by_number[n].id, f"number {n} was never sent")


def _ending(story: Story, *, live: bool) -> Iterator[Violation]:
    job = story.job
    if live and not story.ended:
        return  # said once, about the whole run
    if len(story.ended) != 1:
        yield Violation("I1 one terminal state", job.id, f"{len(story.ended)} rows in ended")
        return
    ended = story.ended[0]
    wanted = OUTCOMES.get(job.task, "done")
    if ended.outcome == wanted and (job.task != "spent" or ended.attempt == job.max_attempts):
        return
    last = story.attempts[-1] if story.attempts else None
    if ended.outcome == "failed" and last is not None and last.generation == ended.generation:
        spent = last.attempt >= job.max_attempts
        lost_once = job.task == "once" and last.kind == "lost"
        if spent or lost_once:
            return
    yield Violation("I4 as its handler decided", job.id, f"{job.task} ended {ended.outcome}, not {wanted}")


def _generations(story: Story) -> Iterator[Violation]:
    """Every claim but the last one left exactly one attempt row; the last one as its end says."""
    if not story.ended:
        return
    ended = story.ended[0]
    rows = Counter(row.generation for row in story.attempts)
    last = 0 if ended.outcome == "done" else 1
    for generation in range(1, ended.generation + 1):
        wanted = 1 if generation < ended.generation else last
        if rows[generation] != wanted:
            text = f"generation {generation} has {rows[generation]} attempt rows, not {wanted}"
            yield Violation("I3 one settlement per generation", story.job.id, text)
    for generation in rows:
        if generation > ended.generation:
            text = f"generation {generation} was settled after the job ended in {ended.generation}"
            yield Violation("I2 generations", story.job.id, text)


def _charges(story: Story) -> Iterator[Violation]:
    """The attempt number is one more than the charged attempts before it, and never over the maximum."""
    charged = 0
    rows: list[tuple[int, int, str]] = [(row.generation, row.attempt, row.kind) for row in story.attempts]
    rows += [(row.generation, row.attempt, "done") for row in story.ended if row.outcome == "done"]
    for generation, attempt, kind in sorted(rows):
        if attempt != charged + 1:
            text = f"generation {generation} is attempt {attempt} after {charged} charged ones"
            yield Violation("I6 charges", story.job.id, text)
        if attempt > story.job.max_attempts:
            yield Violation("I6 budget", story.job.id, f"attempt {attempt} of {story.job.max_attempts}")
        charged += kind not in GIVEN_BACK
    calls = {call.generation: call for call in story.calls}
    for row in story.attempts:
        call = calls.get(row.generation)
        raised = call is not None and (call.outcome or "").startswith("raised ")
        if (
            call is not None
            and raised
            and call.phase in OURS
            and row.kind in ("failed", "unavailable", "invalid")
        ):
            text = f"generation {row.generation} was charged ({row.kind}) for {call.outcome} at {call.phase} of job.commit()"
            yield Violation("I13 not charged", story.job.id, text)


def _calls(story: Story) -> Iterator[Violation]:
    job, ended = story.job.id, story.ended[0] if story.ended else None
    attempts = {row.generation: row for row in story.attempts}
    for generation, count in Counter(call.generation for call in story.calls).items():
        if count > 1:
            yield Violation("I3 one call per claim", job, f"generation {generation} was called {count} times")
    latest = story.calls[-1].generation if story.calls else 0
    for call in story.calls:
        if ended is not None and call.began > ended.at + TOLERANCE_SECONDS:
            late = call.began - ended.at
            text = f"generation {call.generation} was called {late:.3f} s after the job ended"
            yield Violation("I7 no call after the end", job, text)
        row = attempts.get(call.generation)
        if ended is not None and call.generation == ended.generation:
            continue
        if row is None and ended is None and call.generation == latest:
            continue  # it may be running
        if row is None:
            text = f"generation {call.generation} was called, and nothing tells what became of it"
            yield Violation("explained repeats", job, text)
        elif call.generation < latest and not _explains(row, call):
            text = f"generation {call.generation} ended {call.outcome} in its handler and {row.kind} in the database"
            yield Violation("explained repeats", job, text)
    yield from _overlaps(story, attempts, ended)


def _explains(row: Attempt, call: Call) -> bool:
    if row.kind in ("lost", "released"):
        return True
    if call.outcome is None or call.outcome.startswith("raised "):
        return call.outcome is not None
    return row.kind == SETTLED_AS.get(call.outcome)


def _overlaps(story: Story, attempts: dict[int, Attempt], ended: Ended | None) -> Iterator[Violation]:
    """Nothing is begun or done outside under a claim after the next one was made: trust ends before the lease does."""
    claimed = {generation: row.claimed_at for generation, row in attempts.items()}
    if ended is not None:
        claimed[ended.generation] = ended.claimed_at
    for call in story.calls:
        taken = claimed.get(call.generation + 1)
        for what, at in (("called", call.began), ("acted", call.effect)):
            if taken is not None and at is not None and at > taken + TOLERANCE_SECONDS:
                late, newer = at - taken, call.generation + 1
                text = (
                    f"generation {call.generation} {what} {late:.3f} s after generation {newer} was claimed"
                )
                yield Violation("I7 trust ends first", story.job.id, text)


def _effects(story: Story, ledger: set[str]) -> Iterator[Violation]:
    job = story.job
    keys = {call.key for call in story.calls}
    if len(keys) > 1:
        yield Violation("one idempotency key", job.id, f"calls carried {sorted(keys)}")
    if job.key is not None and keys and keys != {job.key}:
        yield Violation("one idempotency key", job.id, f"enqueued with {job.key}, called with {sorted(keys)}")
    applied = sum(bool(call.applied) for call in story.calls)
    if applied > 1:
        yield Violation("effect once", job.id, f"the destination applied its effect {applied} times")
    done = bool(story.ended) and story.ended[0].outcome == "done"
    if done and job.task not in WITHOUT_EFFECT:
        if not story.calls:
            yield Violation("done means called", job.id, "done, and its handler was never called")
        elif not any(key.replace("/", "_") in ledger for key in keys):
            yield Violation("done means done", job.id, "done, and its effect was never applied")


def _business(story: Story, rows: int) -> Iterator[Violation]:
    done = bool(story.ended) and story.ended[0].outcome == "done"
    wanted = int(done and story.job.task in COMMITTING)
    if rows != wanted:
        yield Violation("I10 together or not at all", story.job.id, f"{rows} business rows, not {wanted}")


def excerpt(tape: Tape, job: int) -> list[str]:
    """All that the tape has about one job, in order of time."""
    entries: list[tuple[float, str]] = []
    for kind in ("ended", "attempts", "refusals", "calls"):
        for row in getattr(tape, kind):
            if row.job == job:
                entries.append((row.began if isinstance(row, Call) else row.at, str(row)))
    numbers = [row.n for row in tape.jobs if row.id == job]
    head = [str(row) for row in tape.jobs if row.id == job]
    head += [str(batch) for batch in tape.sent if job in batch.ids or set(numbers) & set(batch.numbers)]
    return head + [f"{at:.6f} {text}" for at, text in sorted(entries)]
