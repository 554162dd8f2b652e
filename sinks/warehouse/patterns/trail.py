"""Holds the rows of a match that is being made: their variables, and running aggregates over them. Pure.

Every change can be taken back, because the matcher returns to an earlier row when a choice fails. Modules of this
folder that tasks run import nothing but pyarrow and each other: they are sent to executors by value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

ALL: Final = -1
"""In place of a variable: all rows of the match."""
_EXACT: Final = Context(prec=100, rounding=ROUND_HALF_UP)
"""More digits than a sum of a million decimals of 38 digits has."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over the rows of a variable.

    Attributes:
        function: count, sum, min, max or avg.
        variable: index of the variable; `ALL` for all rows.
        column: index of the column with the values; -1 for count(*).
        scale: digits behind the point of an average of decimals; -1 if it is a double.
    """

    function: str
    variable: int
    column: int
    scale: int = -1


@dataclass(frozen=True, slots=True)
class Navigation:
    """A row of the match.

    Attributes:
        is_first: whether it counts from the first row, not from the last one.
        variable: index of the variable; `ALL` for all rows.
        offset: how many rows of the variable further inside.
    """

    is_first: bool
    variable: int
    offset: int


def compare(one: Any, other: Any) -> int:
    """Return -1, 0 or 1 as Spark orders values that are not null: NaN equals itself and is the greatest."""
    if one != one:
        return 0 if other != other else 1
    if other != other:
        return -1
    return int(one > other) - int(one < other)


class Trail:
    """The rows of a match, and the aggregates over them.

    Args:
        variables: how many variables the pattern has.
        aggregates: to keep.
        columns: values of the partition's rows, by column.
    """

    def __init__(self, variables: int, aggregates: Sequence[Aggregate], columns: Sequence[Sequence[Any]]) -> None:
        self.start = 0
        self.variables: list[int] = []
        self.rows: list[list[int]] = [[] for _ in range(variables)]
        self._states: list[list[Any]] = [[_START[one.function]] for one in aggregates]
        self._aggregates = aggregates
        self._columns = columns
        own: list[list[Callable[[int], None]]] = [[] for _ in range(variables)]
        popped: list[list[list[Any]]] = [[] for _ in range(variables)]
        for one, states in zip(aggregates, self._states, strict=True):
            for variable in range(variables) if one.variable == ALL else [one.variable]:
                own[variable].append(_adding(one, states, columns))
                popped[variable].append(states)
        self._adding = own
        self._popped = popped

    def __len__(self) -> int:
        return len(self.variables)

    @property
    def last(self) -> int:
        """The current row: the last one of the match so far."""
        return self.start + len(self.variables) - 1

    def copy(self) -> Trail:
        """Return an empty trail from the same row, with the same aggregates."""
        made = Trail(len(self.rows), self._aggregates, self._columns)
        made.start = self.start
        return made

    def begin(self, start: int) -> None:
        """Forget all rows; the next one is `start`."""
        self.cut(0)
        self.start = start

    def append(self, variable: int) -> None:
        """Add the next row, for a variable."""
        row = self.start + len(self.variables)
        self.variables.append(variable)
        self.rows[variable].append(row)
        for add in self._adding[variable]:
            add(row)

    def cut(self, length: int) -> None:
        """Take the last rows back, until so many are left."""
        while len(self.variables) > length:
            variable = self.variables.pop()
            self.rows[variable].pop()
            for states in self._popped[variable]:
                states.pop()

    def row_of(self, navigation: Navigation) -> int:
        """Return the row that is meant; -1 if the match has none."""
        if navigation.variable == ALL:
            if navigation.offset >= len(self.variables):
                return -1
            return self.start + navigation.offset if navigation.is_first else self.last - navigation.offset
        rows = self.rows[navigation.variable]
        if navigation.offset >= len(rows):
            return -1
        return rows[navigation.offset] if navigation.is_first else rows[-1 - navigation.offset]

    def state(self, index: int) -> Any:
        """Return the row of a min or max, -1 if there is none; else the value of an aggregate, None if null."""
        one, found = self._aggregates[index], self._states[index][-1]
        return _average(found, one.scale) if one.function == "avg" else found

    def value(self, index: int) -> Any:
        """Return the value of an aggregate; None if null."""
        found, one = self.state(index), self._aggregates[index]
        if one.function not in {"min", "max"}:
            return found
        return None if found < 0 else self._columns[one.column][found]


_START: Final[dict[str, Any]] = {"count": 0, "sum": None, "min": -1, "max": -1, "avg": (0, None)}


def _adding(one: Aggregate, states: list[Any], columns: Sequence[Sequence[Any]]) -> Callable[[int], None]:
    """Return what adds a row to an aggregate: it appends its next state."""
    if one.column < 0:
        return lambda _: states.append(states[-1] + 1)
    values = columns[one.column]
    step = _STEPS[one.function]

    def add(row: int) -> None:
        value, before = values[row], states[-1]
        states.append(before if value is None else step(before, value, row, values))

    return add


def _counted(before: int, _value: Any, _row: int, _values: Sequence[Any]) -> int:
    return before + 1


def _summed(before: Any, value: Any, _row: int, _values: Sequence[Any]) -> Any:
    return value if before is None else _plus(before, value)


def _averaged(before: tuple[int, Any], value: Any, _row: int, _values: Sequence[Any]) -> tuple[int, Any]:
    count, total = before
    exact = value if isinstance(value, Decimal) else float(value)
    return count + 1, exact if total is None else _plus(total, exact)


def _least(before: int, value: Any, row: int, values: Sequence[Any]) -> int:
    return row if before < 0 or compare(value, values[before]) < 0 else before


def _greatest(before: int, value: Any, row: int, values: Sequence[Any]) -> int:
    return row if before < 0 or compare(value, values[before]) > 0 else before


_STEPS: Final[dict[str, Callable[[Any, Any, int, Sequence[Any]], Any]]] = {
    "count": _counted,
    "sum": _summed,
    "min": _least,
    "max": _greatest,
    "avg": _averaged,
}


def _plus(one: Any, other: Any) -> Any:
    return _EXACT.add(one, other) if isinstance(one, Decimal) else one + other


def _average(state: tuple[int, Any], scale: int) -> Any:
    count, total = state
    if total is None:
        return None
    if isinstance(total, Decimal):
        return _EXACT.quantize(_EXACT.divide(total, Decimal(count)), Decimal(1).scaleb(-scale))
    return total / count
