"""Compiles a pattern to a program of a backtracking matcher. Pure.

A program is a list of steps. `ROW` needs a row that may be of a variable; `SPLIT` tries one step and, if that fails,
another; `JUMP` goes on elsewhere; `BEGIN` and `END` need the start or the end of the partition; `DONE` is a match.
The order of the two steps of `SPLIT` is the order of preference, so the first match found is the preferred one.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from sinks.warehouse.patterns.pattern_syntax import (
    Anchor,
    Choice,
    Pattern,
    Repeat,
    Sequence,
    Variable,
)
from sinks.warehouse.patterns.refusal import PatternRefused

ROW: Final = 0
SPLIT: Final = 1
JUMP: Final = 2
BEGIN: Final = 3
END: Final = 4
DONE: Final = 5
STEPS_MAX: Final = 5_000  # of a program; quantifiers are written out, also within each other

Step: TypeAlias = "tuple[int, int, int]"
"""Kind and two numbers: a variable for `ROW`, the next steps for `SPLIT` and `JUMP`."""
Program: TypeAlias = "tuple[Step, ...]"


def compiled(pattern: Pattern, variables: tuple[str, ...]) -> Program:
    """Return the program of a pattern; `ROW` has the index of its variable in `variables`. Raises PatternRefused."""
    if _size(pattern) > STEPS_MAX:
        raise PatternRefused(
            f"PATTERN has more than {STEPS_MAX:,} steps when its quantifiers are written out", "use smaller quantifiers"
        )
    steps: list[Step] = []
    _emit(pattern, {name: index for index, name in enumerate(variables)}, steps)
    return (*steps, (DONE, 0, 0))


def _size(pattern: Pattern) -> int:
    if isinstance(pattern, Variable | Anchor):
        return 1
    if isinstance(pattern, Repeat):
        times = max(pattern.least, pattern.most or 0) or 1
        return min(times * (_size(pattern.part) + 1) + 2, STEPS_MAX + 1)
    return min(sum(map(_size, pattern.parts)) + 2 * len(pattern.parts), STEPS_MAX + 1)


def _emit(pattern: Pattern, places: dict[str, int], steps: list[Step]) -> None:
    if isinstance(pattern, Variable):
        steps.append((ROW, places[pattern.name], 0))
    elif isinstance(pattern, Anchor):
        steps.append((BEGIN if pattern.is_start else END, 0, 0))
    elif isinstance(pattern, Sequence):
        for part in pattern.parts:
            _emit(part, places, steps)
    elif isinstance(pattern, Choice):
        _emit_choice(pattern, places, steps)
    else:
        _emit_repeat(pattern, places, steps)


def _emit_choice(choice: Choice, places: dict[str, int], steps: list[Step]) -> None:
    ends = []
    for part in choice.parts[:-1]:
        at = len(steps)
        steps.append((SPLIT, at + 1, 0))
        _emit(part, places, steps)
        ends.append(len(steps))
        steps.append((JUMP, 0, 0))
        steps[at] = (SPLIT, at + 1, len(steps))
    _emit(choice.parts[-1], places, steps)
    for end in ends:
        steps[end] = (JUMP, len(steps), 0)


def _emit_repeat(repeat: Repeat, places: dict[str, int], steps: list[Step]) -> None:
    for _ in range(repeat.least):
        _emit(repeat.part, places, steps)
    if repeat.most is None:
        at = len(steps)
        steps.append((SPLIT, 0, 0))
        _emit(repeat.part, places, steps)
        steps.append((JUMP, at, 0))
        steps[at] = _split(at + 1, len(steps), repeat)
        return
    optional = []
    for _ in range(repeat.most - repeat.least):
        optional.append(len(steps))
        steps.append((SPLIT, 0, 0))
        _emit(repeat.part, places, steps)
    for at in optional:
        steps[at] = _split(at + 1, len(steps), repeat)


def _split(more: int, enough: int, repeat: Repeat) -> Step:
    return (SPLIT, enough, more) if repeat.is_reluctant else (SPLIT, more, enough)
