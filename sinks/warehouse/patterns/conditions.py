"""Evaluates conditions on a match so far, with SQL's three values: True, False and None for unknown. Pure.

Only what depends on the match is evaluated here: rows of other variables, and aggregates. Spark has computed all
expressions over one row before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sinks.warehouse.patterns.trail import Navigation, Trail, compare


@dataclass(frozen=True, slots=True)
class OfRow:
    """A value of a row of the match.

    Attributes:
        column: index of the column with the values.
        row: which row; None for the current one.
        absent: index of the column with the value if the match has no such row; -1 if that is null.
    """

    column: int
    row: Navigation | None = None
    absent: int = -1


@dataclass(frozen=True, slots=True)
class OfRows:
    """The value of an aggregate, by its index."""

    aggregate: int


Operand: TypeAlias = OfRow | OfRows


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison: ``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=``, or ``<=>``, for which null equals null.

    With `as_double`, one side is a double and the other an exact number, which Spark converts.
    """

    sign: str
    left: Operand
    right: Operand
    as_double: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a value is null."""

    value: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """NOT of a condition."""

    part: Condition


@dataclass(frozen=True, slots=True)
class Joined:
    """AND of conditions, or OR."""

    is_and: bool
    parts: tuple[Condition, ...]


Condition: TypeAlias = Compared | IsNull | Not | Joined | OfRow
"""`OfRow` is a boolean value."""
Test: TypeAlias = "Callable[[Trail], Any]"
"""Returns a value, for a condition True, False or None."""

_SIGNS: Final[dict[str, Callable[[int], bool]]] = {
    "=": lambda order: order == 0,
    "<>": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<=>": lambda order: order == 0,
}


def evaluator(condition: Condition, columns: Sequence[Sequence[Any]]) -> Test:
    """Return the function that evaluates a condition over the values of a partition's rows, by column."""
    if isinstance(condition, OfRow):
        return _value(condition, columns)
    if isinstance(condition, IsNull):
        value = _value(condition.value, columns)
        return lambda trail: value(trail) is None
    if isinstance(condition, Not):
        inner = evaluator(condition.part, columns)
        return lambda trail: None if (found := inner(trail)) is None else not found
    if isinstance(condition, Joined):
        return _joined([evaluator(part, columns) for part in condition.parts], decides=not condition.is_and)
    return _compared(condition, columns)


def _joined(parts: Sequence[Test], *, decides: bool) -> Test:
    """Return AND, which False decides, or OR, which True decides."""

    def test(trail: Trail) -> bool | None:
        unknown = False
        for part in parts:
            found: object = part(trail)
            if found is decides:
                return decides
            if found is None:
                unknown = True
        return None if unknown else not decides

    return test


def _compared(condition: Compared, columns: Sequence[Sequence[Any]]) -> Test:
    left, right = _value(condition.left, columns), _value(condition.right, columns)
    holds, is_null_safe = _SIGNS[condition.sign], condition.sign == "<=>"
    as_double = condition.as_double

    def test(trail: Trail) -> bool | None:
        one, other = left(trail), right(trail)
        if one is None or other is None:
            return (one is None and other is None) if is_null_safe else None
        return holds(compare(float(one), float(other)) if as_double else compare(one, other))

    return test


def _value(operand: Operand, columns: Sequence[Sequence[Any]]) -> Test:
    if isinstance(operand, OfRows):
        index = operand.aggregate
        return lambda trail: trail.value(index)
    values, row = columns[operand.column], operand.row
    if row is None:
        return lambda trail: values[trail.last]
    absent = None if operand.absent < 0 else columns[operand.absent]

    def of_row(trail: Trail) -> Any:
        found = trail.row_of(row)
        if found >= 0:
            return values[found]
        return None if absent is None else absent[trail.last]

    return of_row
