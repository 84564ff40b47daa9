"""``python -m bench.soak faults|memory|cycles|latency``: long runs that end with exit code 1 when a promise broke."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
from pathlib import Path


def _faults(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    faults = parts.add_parser("faults", help="random faults, then the checker")
    length = faults.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=30.0)
    length.add_argument("--seconds", type=float, help="a short form: faults follow each other faster")
    faults.add_argument("--seed", type=int, help="of the schedule; drawn and printed when not given")
    faults.add_argument("--rate", type=float, default=225.0, help="jobs enqueued a second")
    faults.add_argument("--lease", type=float, default=2.5, help="seconds")
    faults.add_argument("--spacing", type=float, help="seconds from one fault to the next")
    faults.add_argument(
        "--drain", type=float, default=1800.0, help="seconds that the rest may take at the end"
    )
    faults.add_argument("--evidence", type=Path, metavar="FILE", help="figures as JSON")
    faults.add_argument("--keep", type=Path, metavar="FOLDER", help="leave tapes and logs there")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.soak")
    parts = parser.add_subparsers(dest="what", required=True)
    _faults(parts)
    memory = parts.add_parser("memory", help="what a worker holds after many jobs")
    memory.add_argument("--jobs", type=int, default=1_000_000)
    memory.add_argument("--first", type=int, help="jobs before the first look; a tenth when not given")
    cycles = parts.add_parser("cycles", help="start and stop a worker many times")
    cycles.add_argument("--count", type=int, default=1000)
    cycles.add_argument("--seed", type=int)
    latency = parts.add_parser("latency", help="how long jobs wait")
    latency.add_argument("--only", choices=["mix", "scheduled", "deploy", "pickup"], action="append")
    latency.add_argument("--quick", action="store_true", help="fewer jobs, for a trial")
    for part in (memory, cycles, latency):
        part.add_argument("--evidence", type=Path, metavar="FILE", help="figures as JSON")
    return parser


def main() -> int:
    """Run what was asked for. SIGTERM ends it as Ctrl-C does: with everything cleaned up."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    chosen = _parser().parse_args()
    match chosen.what:
        case "faults":
            from bench.soak import faults

            short = chosen.seconds is not None
            plan = faults.Plan(
                seconds=chosen.seconds if short else chosen.minutes * 60,
                seed=secrets.randbelow(10**6) if chosen.seed is None else chosen.seed,
                spacing=chosen.spacing or (0.7 if short and chosen.seconds < 120 else 2.5),
                rate=chosen.rate,
                lease=chosen.lease,
                drain=chosen.drain,
                keep=chosen.keep,
            )
            return faults.main(plan, chosen.evidence)
        case "memory":
            from bench.soak import memory

            return memory.main(chosen.jobs, chosen.first or chosen.jobs // 10, chosen.evidence)
        case "cycles":
            from bench.soak import cycles

            seed = secrets.randbelow(10**6) if chosen.seed is None else chosen.seed
            return cycles.main(chosen.count, seed, chosen.evidence)
    from bench.soak import latency

    return latency.main(chosen.only, chosen.evidence, quick=chosen.quick)


if __name__ == "__main__":
    sys.exit(main())
