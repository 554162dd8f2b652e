"""Runs the randomized tests with new seeds, for a limited time.

``python -m tests.fresh --seconds 120`` divides the time between the simulation of capture, the snapshot models and the
properties of Hypothesis. It prints the seeds that it draws. A failure prints the command that repeats only this case,
and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from tests.property import (
    test_snapshot_extra,
    test_snapshot_keyless,
    test_snapshot_owed,
    test_snapshot_sweep,
    test_snapshot_window,
)
from tests.property.snapshot_history import Joined
from tests.simulation.history import History, quiet

Model: TypeAlias = Callable[[int], object]
"""Runs the history of a seed. Raises if the history violates an obligation."""

_SEED_BITS: Final = 40


def simulated(seed: int) -> None:
    """Run one simulated history of capture."""
    with quiet():
        violation = History(seed).run().violation
    if violation is not None:
        raise AssertionError(f"violated obligation: {violation}") from violation


SNAPSHOT_MODELS: Final[Mapping[str, Model]] = {
    "snapshot": test_snapshot_window.seeded,
    "joined": partial(test_snapshot_window.seeded, kind=Joined),
    "repair": test_snapshot_sweep.seeded,
    "owed": test_snapshot_owed.seeded,
    "extra": test_snapshot_extra.seeded,
    "keyless": test_snapshot_keyless.seeded,
}
MODELS: Final[Mapping[str, Model]] = {"simulation": simulated, **SNAPSHOT_MODELS}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fresh", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="time for everything (default: 120)")
    parser.add_argument("--model", choices=MODELS, help="run this model alone, with --seed")
    parser.add_argument("--seed", type=int, help="the seed to repeat")
    given = parser.parse_args(arguments)
    if (given.model is None) != (given.seed is None):
        parser.error("--model and --seed belong together")
    if given.model is not None:
        return 0 if kept(given.model, MODELS[given.model], given.seed) else 1
    each_s = given.seconds / 3
    good = [
        drawn({"simulation": simulated}, each_s),
        drawn(SNAPSHOT_MODELS, each_s),
        properties(each_s),
    ]
    return 0 if all(good) else 1


def drawn(models: Mapping[str, Model], seconds: float) -> bool:
    """Run consecutive seeds from a random one on every model, until the deadline or a failure."""
    first = seed = secrets.randbits(_SEED_BITS)
    print(f"{', '.join(models)}: fresh seeds from {first} on", flush=True)
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        if not all(kept(name, model, seed) for name, model in models.items()):
            return False
        seed += 1
    print(f"{', '.join(models)}: {seed - first} seeds, none failed", flush=True)
    return True


def kept(name: str, model: Model, seed: int) -> bool:
    """Run a history. Prints a failure with the command that repeats it."""
    try:
        model(seed)
    except Exception:  # noqa: BLE001 - a crash is a finding, like a violated obligation
        traceback.print_exc()
        print(f"FAILED; repeat it with: python -m tests.fresh --model {name} --seed {seed}", flush=True)
        return False
    return True


def properties(seconds: float) -> bool:
    """Run properties of Hypothesis in random order, each with a random seed, until the deadline.

    `tests/conftest.py` draws the order and the seeds from one number, and prints the command of each failure.
    """
    seed = secrets.randbits(32)
    print(f"properties: order and seeds are drawn from {seed}", flush=True)
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/property"],
        env={
            **os.environ,
            "TAILRACE_HYPOTHESIS_PROFILE": "fresh",
            "TAILRACE_HYPOTHESIS_SEED": str(seed),
            "TAILRACE_HYPOTHESIS_SECONDS": str(seconds),
        },
        check=False,
    )
    return found.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
