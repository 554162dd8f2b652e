"""Runs simulated histories: ``python -m tests.simulation --seed N``, or ``--seeds N`` of them from ``--first`` on."""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.simulation.history import History
from tests.simulation.many import run_many


def main() -> int:
    """Run the histories; exit with 1 if one breaks an obligation."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one, and say where it breaks")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _one(arguments.seed)
    began_s = time.monotonic()
    many = run_many(range(arguments.first, arguments.first + arguments.seeds), arguments.processes)
    took_s = time.monotonic() - began_s
    for name, count in sorted(many.had.items()):
        print(f"{count:8} histories: {name}")
    print(f"{many.count} seeds in {took_s:.0f} s, {many.event_count} events, {len(many.failed)} failed")
    if many.failed:
        print(many.verdict)
    return 1 if many.failed else 0


def _one(seed: int) -> int:
    """Print the faults of one history; if it broke an obligation, also where in the code this was found."""
    result = History(seed).run()
    for name, count in sorted(result.faults.items()):
        print(f"{count:8} times: {name}")
    print(f"seed {seed}: {result.points} calls of edges, {result.event_count} events")
    if result.violation is None:
        return 0
    traceback.print_exception(result.violation)
    return 1


if __name__ == "__main__":
    sys.exit(main())
