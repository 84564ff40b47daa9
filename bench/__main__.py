"""``python -m bench``: Fencerow's own figures on this machine, a few minutes; ``--json`` for the raw numbers."""

from __future__ import annotations

import argparse
import json

from bench import drain


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--task", default="noop", choices=["noop", "noop_thread"])
    parser.add_argument("--concurrency", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    for processes in chosen.processes:
        found = drain.run(
            count=chosen.jobs,
            processes=processes,
            rounds=chosen.rounds,
            task=chosen.task,
            concurrency=chosen.concurrency,
        )
        if chosen.json:
            print(json.dumps(found))
            continue
        print(
            f"drain of {chosen.jobs} {chosen.task} jobs, {processes} worker process(es), medians of {chosen.rounds}"
        )
        for key, value in found.items():
            if isinstance(value, dict):
                print(f"  {key:20} {value['median']:12,.1f}   ({value['min']:,.1f} to {value['max']:,.1f})")


if __name__ == "__main__":
    main()
