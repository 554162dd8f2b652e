"""Finds the matches of a partition: backtracking in the order of preference, with a limit of steps. Pure.

A state is a step of the program at a row. If every condition depends on its row alone, a state that failed once fails
always, so it is not tried again, and the time grows with rows times steps of the program. Conditions on the match so
far take this away, and such a pattern may try very many ways; then the limit ends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sinks.warehouse.patterns.conditions import Test
from sinks.warehouse.patterns.program import BEGIN, END, JUMP, ROW, SPLIT, Program
from sinks.warehouse.patterns.trail import Trail

STEPS_MAX: Final = 20_000_000  # in one partition: about ten seconds (2026-11-30)
_KNOWN_BYTES_MAX: Final = 64 << 20  # failed states of one partition, a byte each


class PatternFault(Exception):
    """A partition that cannot be matched: a limit, or a skip to a row that does not exist. Has no values of rows."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Where the search goes on after a match.

    Attributes:
        mode: ``past``, ``next``, ``first`` or ``last``.
        variable: its index for ``first`` and ``last``.
        name: its name.
    """

    mode: str = "past"
    variable: int = -1
    name: str = ""


@dataclass(frozen=True, slots=True)
class RowTests:
    """The conditions of one variable.

    Attributes:
        of_row: whether each row meets those that depend on the row alone; None if all do.
        of_match: the rest; None if there is none.
    """

    of_row: Sequence[bool | None] | None = None
    of_match: Test | None = None


class Matcher:
    """Searches one partition.

    Args:
        program: of the pattern.
        tests: the conditions, by variable.
        rows: number of rows of the partition.
        trail: takes the rows of a match.
        reach: for each row, the first row behind it that is too late for a match from there; None without WITHIN.
        steps_max: limit of steps.
    """

    def __init__(
        self,
        program: Program,
        tests: Sequence[RowTests],
        rows: int,
        trail: Trail,
        reach: Sequence[int] | None = None,
        steps_max: int = STEPS_MAX,
    ) -> None:
        self._program = program
        self._tests = tests
        self._rows = rows
        self._trail = trail
        self._reach = reach
        self._steps = steps_max
        self._steps_max = steps_max
        self._slots: dict[int, int] = {}
        self._failed: bytearray | None = None
        if all(test.of_match is None for test in tests):
            splits = [place for place, step in enumerate(program) if step[0] == SPLIT]
            if len(splits) * (rows + 1) <= _KNOWN_BYTES_MAX:
                self._slots = {place: index * (rows + 1) for index, place in enumerate(splits)}
                self._failed = bytearray(len(splits) * (rows + 1))

    def matches(self, skip: Skip) -> Iterator[Trail]:
        """Yield each match, which is valid until the next one is asked for. Raises PatternFault."""
        start = 0
        while start < self._rows:
            if self._found(start):
                yield self._trail
                start = self._next(skip, start)
            else:
                start += 1

    def _next(self, skip: Skip, start: int) -> int:
        if skip.mode == "past":
            return self._trail.last + 1
        if skip.mode == "next":
            return start + 1
        rows = self._trail.rows[skip.variable]
        shown = f"AFTER MATCH SKIP TO {skip.mode.upper()} {skip.name}"
        if not rows:
            raise PatternFault(f"{shown}: a match has no row of {skip.name}")
        found = rows[0] if skip.mode == "first" else rows[-1]
        if found == start:
            raise PatternFault(f"{shown}: that is the first row of the match, which would be found again without end")
        return found

    def _found(self, start: int) -> bool:
        """Whether a match begins at a row; the trail has it then."""
        end = self._rows if self._reach is None else self._reach[start]
        marked: list[int] = []
        found = end > start and self._run(start, end, marked)
        failed = self._failed
        if failed is not None and (found or self._reach is not None):
            # States on the way to a match did not fail; with WITHIN, a later start may reach further.
            for state in marked:
                failed[state] = 0
        return found

    def _run(self, start: int, end: int, marked: list[int]) -> bool:
        program, tests, trail, failed, slots = self._program, self._tests, self._trail, self._failed, self._slots
        trail.begin(start)
        stack: list[tuple[int, int]] = []
        place, row, steps = 0, start, self._steps
        while True:
            steps -= 1
            if steps < 0:
                raise PatternFault(f"more than {self._steps_max:,} steps")
            kind, one, other = program[place]
            if kind == ROW:
                test = tests[one]
                if row < end and (test.of_row is None or test.of_row[row]):
                    trail.append(one)
                    if test.of_match is None or test.of_match(trail):
                        row += 1
                        place += 1
                        continue
            elif kind == SPLIT:
                state = -1 if failed is None else slots[place] + row
                if state < 0 or failed is None or not failed[state]:
                    if failed is not None:
                        failed[state] = 1
                        marked.append(state)
                    stack.append((other, row))
                    place = one
                    continue
            elif kind == JUMP:
                place = one
                continue
            elif kind in {BEGIN, END}:
                if row == (0 if kind == BEGIN else self._rows):
                    place += 1
                    continue
            else:
                self._steps = steps
                return True
            if not stack:
                self._steps = steps
                return False
            place, row = stack.pop()
            trail.cut(row - start)
