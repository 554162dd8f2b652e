"""Runs many histories, in one process or several, and sums up their results."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.history import History, Result, quiet

_AT_ONCE: Final = 50


@dataclass(slots=True)
class Many:
    """Attributes:
    failed: the histories that broke an obligation.
    had: in how many histories each kind of fault happened.
    crashed: how often a process was killed at each point.
    """

    count: int = 0
    event_count: int = 0
    failed: list[Result] = field(default_factory=list)
    had: Counter[str] = field(default_factory=Counter)
    crashed: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        """Add a result."""
        self.count += 1
        self.event_count += result.event_count
        if result.violation is not None:
            self.failed.append(result)
        self.had.update(result.faults.keys())
        self.crashed.update(result.crashed)

    @property
    def verdict(self) -> str:
        """Return each failure with the command that repeats it; empty without failures."""
        return "\n".join(f"{command_of(result.seed)}  # {result.violation}" for result in self.failed)


def command_of(seed: int) -> str:
    """Return the command that runs one history."""
    return f"python -m tests.simulation --seed {seed}"


def run_many(seeds: Sequence[int], processes: int = 1) -> Many:
    """Run all histories."""
    many = Many()
    for result in _results(seeds, processes):
        many.add(result)
    return many


def _results(seeds: Sequence[int], processes: int) -> Iterator[Result]:
    if processes == 1:
        yield from _some(seeds)
        return
    parts = [seeds[at : at + _AT_ONCE] for at in range(0, len(seeds), _AT_ONCE)]
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for part in pool.map(_listed, parts):
            yield from part


def _listed(seeds: Sequence[int]) -> list[Result]:
    return list(_some(seeds))


def _some(seeds: Sequence[int]) -> Iterator[Result]:
    with quiet():
        for seed in seeds:
            yield History(seed).run()
