"""Matches whole partitions in a task of Spark: Arrow rows in, the rows of the matches out.

It is sent to executors by value, with the modules of this folder that it uses. They have pyarrow, and need not have
this package.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sinks.warehouse.patterns.conditions import Condition, evaluator
from sinks.warehouse.patterns.matcher import STEPS_MAX, Matcher, PatternFault, RowTests, Skip
from sinks.warehouse.patterns.program import Program
from sinks.warehouse.patterns.trail import Aggregate, Navigation, Trail

ROWS_MAX: Final = 1_000_000  # of one partition, which one task holds: some 100 bytes and more each
FOUND_MAX: Final = 1_000_000  # rows of matches of one partition; SKIP TO NEXT ROW can make the square of its rows
NUMBER: Final = "__n"
"""The column with the number of a row in its partition, from 1."""
ROW: Final = "__row"
"""The column with all columns of a row, for ALL ROWS PER MATCH."""
FAULT: Final = "<row pattern>"
"""Around the message of a fault, to find it in an error of Spark."""


def value_column(index: int) -> str:
    """Return the name of a column with an expression over one row."""
    return f"__c{index}"


def result_column(index: int) -> str:
    """Return the name of a column of the result."""
    return f"__m{index}"


@dataclass(frozen=True, slots=True)
class Result:
    """A column of the result.

    Attributes:
        kind: ``row``, ``aggregate``, ``classifier`` or ``number``.
        navigation: of ``row``.
        index: of the value column for ``row``, of the aggregate for ``aggregate``.
        is_final: whether it is evaluated at the end of the match.
    """

    kind: str
    navigation: Navigation | None = None
    index: int = -1
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """What to match.

    Attributes:
        program: of the pattern.
        variables: their names.
        conditions: for each variable the column of booleans, -1 for none, and a condition on the match.
        aggregates: of the conditions.
        measured: aggregates of the result.
        results: columns of the result.
        types: their types in Arrow; of aggregates and names only, else None.
        skip: AFTER MATCH SKIP.
        all_rows: ALL ROWS PER MATCH.
        within: columns with the time of a row and the last time of a match from it; None without WITHIN.
        read: value columns that are needed in Python.
        shown: names the partitions.
        steps_max: limit of steps in a partition.
        found_max: limit of rows of matches of a partition.
    """

    program: Program
    variables: tuple[str, ...]
    conditions: tuple[tuple[int, Condition | None], ...]
    aggregates: tuple[Aggregate, ...]
    measured: tuple[Aggregate, ...]
    results: tuple[Result, ...]
    types: tuple[Any, ...]
    skip: Skip
    all_rows: bool
    within: tuple[int, int] | None
    read: frozenset[int]
    shown: str
    steps_max: int = STEPS_MAX
    found_max: int = FOUND_MAX


def matching(task: Task) -> Callable[[pa.Array], pa.Array]:
    """Return the function that maps lists of rows, one list a partition, to lists of rows of matches."""

    def match(partitions: pa.Array) -> pa.Array:
        return matched(task, partitions)

    return match


def matched(task: Task, partitions: pa.Array) -> pa.Array:
    """Return the rows of the matches of each partition. Raises PatternFault.

    Args:
        task: what to match.
        partitions: a list of structs for each partition, in any order.
    """
    rows = partitions.flatten()
    lengths = [0 if length is None else length for length in pc.list_value_length(partitions).to_pylist()]
    rows = _in_order(rows, lengths)
    found = _Found(task, {index: _values(pc.struct_field(rows, value_column(index))) for index in task.read})
    offsets, begin = [0], 0
    for length in lengths:
        found.partition(begin, length)
        begin += length
        offsets.append(len(found.firsts))
    columns = found.columns(rows)
    fields = [pa.field(name, column.type) for name, column in columns.items()]
    made = pa.StructArray.from_arrays(list(columns.values()), fields=fields)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), made)


def _in_order(rows: pa.StructArray, lengths: Iterable[int]) -> pa.StructArray:
    """Return the rows with those of each partition in the order of their numbers."""
    numbers = pc.struct_field(rows, NUMBER).to_pylist()
    order: list[int] = []
    begin = 0
    for length in lengths:
        order += sorted(range(begin, begin + length), key=numbers.__getitem__)
        begin += length
    is_ordered = all(place == index for place, index in enumerate(order))
    return rows if is_ordered else rows.take(pa.array(order, pa.int64()))


def _values(column: pa.Array) -> list[Any]:
    """Return values that Python compares as Spark does; times are numbers, which have no range."""
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    found: list[Any] = column.to_pylist()
    return found


class _Found:
    """The rows of the matches of the partitions so far."""

    def __init__(self, task: Task, values: dict[int, list[Any]]) -> None:
        self._task = task
        self._values = values
        self._size = max(task.read, default=-1) + 1
        self.firsts: list[int] = []
        """For each row of a match, the row of the input it is, or the first row of the match."""
        self._results: list[list[Any]] = [[] for _ in task.results]

    def partition(self, begin: int, length: int) -> None:
        """Match one partition. Raises PatternFault."""
        task = self._task
        end = begin + length
        columns = [self._values[index][begin:end] if index in task.read else [] for index in range(self._size)]
        trail = Trail(len(task.variables), task.aggregates, columns)
        tests = [
            RowTests(
                None if of_row < 0 else columns[of_row], None if of_match is None else evaluator(of_match, columns)
            )
            for of_row, of_match in task.conditions
        ]
        reach = None if task.within is None else _reach(columns[task.within[0]], columns[task.within[1]])
        matcher = Matcher(task.program, tests, length, trail, reach, task.steps_max)
        shown = Trail(len(task.variables), task.measured, columns)
        most = len(self.firsts) + task.found_max
        try:
            for number, match in enumerate(matcher.matches(task.skip), 1):
                self._match(number, match, shown, begin, most)
        except PatternFault as fault:
            raise PatternFault(f"{FAULT}{task.shown} with {length:,} rows: {fault}{FAULT}") from None

    def _match(self, number: int, match: Trail, shown: Trail, begin: int, most: int) -> None:
        """Add the rows of a match; at most `most` rows in all. Raises PatternFault."""
        task = self._task
        shown.begin(match.start)
        final = shown
        if task.all_rows and any(one.is_final for one in task.results):
            final = shown.copy()
            for variable in match.variables:
                final.append(variable)
        for index, variable in enumerate(match.variables):
            shown.append(variable)
            if not task.all_rows and index + 1 < len(match):
                continue
            self.firsts.append(begin + (match.start + index if task.all_rows else match.start))
            for place, result in enumerate(task.results):
                trail = final if result.is_final else shown
                self._results[place].append(self._value(result, trail, variable, number, begin))
        if len(self.firsts) > most:
            raise PatternFault(f"its matches have more than {task.found_max:,} rows")

    def _value(self, result: Result, trail: Trail, variable: int, number: int, begin: int) -> Any:
        """Return a value, or the row of the input that has it; None if there is none."""
        if result.navigation is not None:
            row = trail.row_of(result.navigation)
            return None if row < 0 else begin + row
        if result.kind == "aggregate":
            found = trail.state(result.index)
            if self._task.measured[result.index].function in {"min", "max"}:
                return None if found < 0 else begin + found
            return found
        return number if result.kind == "number" else self._task.variables[variable]

    def columns(self, rows: pa.StructArray) -> dict[str, pa.Array]:
        """Return the columns of the result. Raises PatternFault if a sum does not fit."""
        task, found = self._task, {}
        for place, (result, values) in enumerate(zip(task.results, self._results, strict=True)):
            column = result.index if result.navigation is not None else -1
            if result.kind == "aggregate" and task.measured[result.index].function in {"min", "max"}:
                column = task.measured[result.index].column
            if column >= 0:
                made = pc.struct_field(rows, value_column(column)).take(pa.array(values, pa.int64()))
            else:
                made = self._array(values, task.types[place])
            found[result_column(place)] = made
        if task.all_rows:
            found[ROW] = pc.struct_field(rows, ROW).take(pa.array(self.firsts, pa.int64()))
        if not found:
            found[result_column(0)] = pa.nulls(len(self.firsts), pa.int64())
        return found

    def _array(self, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        try:
            return pa.array(values, kind)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise PatternFault(f"{FAULT}{self._task.shown}: a sum or an average is out of range{FAULT}") from error


def _reach(times: Sequence[Any], until: Sequence[Any]) -> list[int]:
    """Return for each row the first one behind it that is too late; itself if it has no time."""
    known = [place for place, time in enumerate(times) if time is not None]
    found = list(range(len(times)))
    if not known:
        return found
    first, last = known[0], known[-1] + 1
    for row in range(first, last):
        if until[row] is not None:
            found[row] = bisect_right(times, until[row], row, last)
    return found
