"""Writes the SQL around the matcher: what Spark computes for every row before, and for every match after it. Pure.

    select symbol as __p0, row_number() over __rows as __n, price > lag(price, 1) over __rows as __c0, ... from ticks
    (one task per partition matches the rows)
    select __p0 as symbol, __m0 * 2 as twice from the rows of the matches

Rows with the same values in ORDER BY are ordered by the key of the table, or by all columns, so that a replay gives
the same matches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.patterns.clause import Clause
from sinks.warehouse.patterns.conditions import Compared, Condition, IsNull, Joined, Not, OfRow, Operand
from sinks.warehouse.patterns.define_conditions import Columns, Defined, add_aggregate, defined, navigation
from sinks.warehouse.patterns.expressions import WINDOW, Leaf, Row, Rows
from sinks.warehouse.patterns.program import Program, compiled
from sinks.warehouse.patterns.refusal import PatternRefused
from sinks.warehouse.patterns.task import FAULT, NUMBER, ROW, ROWS_MAX, Result, result_column, value_column
from sinks.warehouse.patterns.trail import Aggregate

_EXACT: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
_FLOATS: Final = frozenset({"float", "double"})
_TIMES: Final = frozenset({"timestamp", "timestamp_ntz", "date"})
_COMPARED: Final = _TIMES | {"string", "boolean", "binary"}
_NO_ORDER: Final = ("map", "variant", "object")
_CAST: Final = "cast one of them, as in cast(A.x as double)"


def partition_column(index: int) -> str:
    """Return the name of a partition column between the steps."""
    return f"__p{index}"


@dataclass(frozen=True, slots=True)
class Statement:
    """A clause, compiled.

    Attributes:
        clause: as written.
        program: of the pattern.
        columns: expressions over one row.
        conditions: by variable.
        aggregates: of the conditions.
        measured: aggregates of measures.
        results: leaves of the measures.
        places: leaf of a measure -> its place in `results`.
        within: columns with the time of a row, and the last time of a match from there.
    """

    clause: Clause
    program: Program
    columns: Columns
    conditions: tuple[Defined, ...]
    aggregates: tuple[Aggregate, ...]
    measured: tuple[Aggregate, ...]
    results: tuple[Result, ...]
    places: Mapping[Leaf, int] = field(default_factory=dict)
    within: tuple[int, int] | None = None

    @property
    def read(self) -> frozenset[int]:
        """The columns whose values the matcher needs."""
        found = {one.column for one in (*self.aggregates, *self.measured)} | {one.of_row for one in self.conditions}
        found |= set(self.within or ())
        for one in self.conditions:
            found |= _read(one.of_match)
        return frozenset(found - {-1})

    @property
    def partitions(self) -> str:
        """Names a partition, without its values."""
        names = ", ".join(self.clause.partition)
        return f"a partition by {names}" if names else "its only partition"

    def rows_sql(self, source: str, columns: Sequence[tuple[str, str]], key: Sequence[str]) -> str:
        """Return the SQL of what is computed for every row.

        Args:
            source: the relation that it reads, as SQL.
            columns: of the relation, with types.
            key: its columns that no two rows share; empty if none are known.
        """
        clause = self.clause
        found = [f"{quoted(name)} as {partition_column(index)}" for index, name in enumerate(clause.partition)]
        shown = re.sub(r"['\\]", "", self.partitions)
        # The mark is not in the text, which errors of Spark may show.
        mark = ", ".join(f"'{part}'" for part in (FAULT[:1], FAULT[1:]))
        limit = f"raise_error(concat({mark}, '{shown} has more than {ROWS_MAX:,} rows', {mark}))"
        found.append(f"row_number() over {WINDOW} as {NUMBER}")
        found += [f"{sql} as {value_column(index)}" for index, sql in enumerate(self.columns.sqls)]
        if clause.all_rows:
            found.append(f"struct({', '.join(quoted(name) for name, _ in columns)}) as {ROW}")
        by = ", ".join(map(quoted, clause.partition))
        window = f"{f'partition by {by} ' if by else ''}order by {self._order(columns, key)}"
        checked = f"if({NUMBER} > {ROWS_MAX}, {limit}, {NUMBER}) as {NUMBER}"
        rows = f"{_select(found)} from {source} window {WINDOW} as ({window})"
        return f"{_select([f'* except ({NUMBER})', checked])} from ({rows})"

    def matches_sql(self, relation: str, columns: Sequence[tuple[str, str]]) -> str:
        """Return the SQL of the clause's rows; `relation` has the rows of the matches. Raises PatternRefused."""
        clause = self.clause
        own = {name.lower() for name in clause.partition}
        found = [f"{partition_column(index)} as {quoted(name)}" for index, name in enumerate(clause.partition)]
        behind: list[str] = []
        if clause.all_rows:
            cased = {name.lower(): name for name, _ in columns}
            order = list(dict.fromkeys(one.name.lower() for one in clause.order if one.name.lower() not in own))
            found += [f"{ROW}.{quoted(cased[name])} as {quoted(cased[name])}" for name in order]
            rest = [name for name, _ in columns if name.lower() not in {*own, *order}]
            behind = [f"{ROW}.{quoted(name)} as {quoted(name)}" for name in rest]
            twice = next((name for name in clause.measures if name.lower() in {*cased}), "")
            if twice:
                what = f"the measure {twice!r} has the name of a column that ALL ROWS PER MATCH returns"
                raise PatternRefused(what, "rename it", clause.measures[twice].place)
        for name, measure in clause.measures.items():
            sql = measure.sql(lambda leaf: result_column(self.places[leaf]))
            found.append(f"{sql.strip()} as {quoted(name)}")
        return f"{_select([*found, *behind])} from {relation}"

    def typed(self, kinds: Sequence[str]) -> Statement:
        """Return it for columns of these types, after checking what the matcher does with them.

        Raises PatternRefused.
        """
        aggregates = tuple(self._aggregate(one, kinds) for one in self.aggregates)
        measured = tuple(self._aggregate(one, kinds) for one in self.measured)
        conditions = tuple(
            replace(one, of_match=one.of_match and self._condition(one.of_match, kinds, name))
            for name, one in zip(self.clause.variables, self.conditions, strict=True)
        )
        for name, one in zip(self.clause.variables, conditions, strict=True):
            if one.of_row >= 0 and kinds[one.of_row] not in {"boolean", "void"}:
                raise self._refused(f"the condition of {name} is of type {kinds[one.of_row]}", "write a comparison")
        if self.within is not None:
            time, until = (kinds[index] for index in self.within)
            if time not in _TIMES or time != until:
                what = f"WITHIN adds to a column of type {time}, which becomes {until}"
                raise self._refused(what, "order by a timestamp first, or by a date and write days")
        return replace(self, aggregates=aggregates, measured=measured, conditions=conditions)

    def result_column(self, result: Result) -> int:
        """Return the value column that a column of the result takes its values from; -1 if it is computed."""
        if result.navigation is not None:
            return result.index
        one = self.measured[result.index] if result.kind == "aggregate" else None
        return one.column if one is not None and one.function in {"min", "max"} else -1

    def result_kind(self, result: Result, kinds: Sequence[str]) -> str:
        """Return Spark's type of a column of the result."""
        if result.navigation is not None:
            return kinds[result.index]
        if result.kind != "aggregate":
            return "bigint" if result.kind == "number" else "string"
        return _aggregate_kind(self.measured[result.index], kinds)

    def _order(self, columns: Sequence[tuple[str, str]], key: Sequence[str]) -> str:
        order = self.clause.order
        found = [
            f"{quoted(one.name)}{' desc' if one.is_descending else ''}{f' nulls {one.nulls}' if one.nulls else ''}"
            for one in order
        ]
        cased = {name.lower(): name for name, _ in columns}
        ties = [cased[name.lower()] for name in key] or [
            name for name, kind in columns if not any(one in kind for one in _NO_ORDER)
        ]
        used = {one.name.lower() for one in order} | {name.lower() for name in self.clause.partition}
        return ", ".join([*found, *(quoted(name) for name in ties if name.lower() not in used)])

    def _refused(self, what: str, hint: str) -> PatternRefused:
        return PatternRefused(what, hint, self.clause.place)

    def _aggregate(self, one: Aggregate, kinds: Sequence[str]) -> Aggregate:
        if one.column < 0 or one.function == "count":
            return one
        kind = kinds[one.column]
        is_number = kind in _EXACT | _FLOATS or kind.startswith("decimal")
        if not is_number and not (one.function in {"min", "max"} and kind in _COMPARED):
            raise self._refused(f"{one.function}() of a value of type {kind}", "use numbers")
        if one.function == "avg" and kind.startswith("decimal"):
            return replace(one, scale=_digits(_aggregate_kind(one, kinds))[1])
        return one

    def _condition(self, condition: Condition, kinds: Sequence[str], name: str) -> Condition:
        if isinstance(condition, Joined):
            return replace(condition, parts=tuple(self._condition(one, kinds, name) for one in condition.parts))
        if isinstance(condition, Not):
            return Not(self._condition(condition.part, kinds, name))
        if isinstance(condition, Compared):
            left, right = (self._kind(one, kinds) for one in (condition.left, condition.right))
            one, other = _class(left), _class(right)
            if {one, other} <= {"exact", "double"}:
                return replace(condition, as_double=one != other)
            if not one or (one != other and "void" not in {one, other}):
                what = f"the condition of {name} compares {left} with {right}"
                raise self._refused(what, _CAST if one and other else "compare numbers, texts, times or booleans")
        elif isinstance(condition, OfRow) and kinds[condition.column] not in {"boolean", "void"}:
            raise self._refused(f"the condition of {name} has a part of type {kinds[condition.column]}", _CAST)
        return condition

    def _kind(self, operand: Operand, kinds: Sequence[str]) -> str:
        if isinstance(operand, OfRow):
            return kinds[operand.column]
        return _aggregate_kind(self.aggregates[operand.aggregate], kinds)


def statement_of(clause: Clause) -> Statement:
    """Return a clause, compiled. Raises PatternRefused."""
    columns, variables = Columns(), clause.variables
    aggregates: list[Aggregate] = []
    conditions = tuple(
        defined(name, clause.define[name], variables, columns, aggregates) if name in clause.define else Defined()
        for name in variables
    )
    within = None
    if clause.within:
        time = quoted(clause.order[0].name)
        within = (columns.add(time), columns.add(f"{time} + {clause.within}"))
    measured: list[Aggregate] = []
    places: dict[Leaf, int] = {}
    results: list[Result] = []
    for measure in clause.measures.values():
        for leaf in measure.leaves:
            if leaf not in places:
                places[leaf] = len(results)
                results.append(_result(leaf, clause, columns, measured))
    try:
        program = compiled(clause.pattern, variables)
    except PatternRefused as found:
        raise PatternRefused(found.message, found.hint, clause.place) from found
    return Statement(
        clause, program, columns, conditions, tuple(aggregates), tuple(measured), tuple(results), places, within
    )


def _select(items: Sequence[str]) -> str:
    return f"select {', '.join(items)}"


def _result(leaf: Leaf, clause: Clause, columns: Columns, measured: list[Aggregate]) -> Result:
    if isinstance(leaf, Row):
        return Result("row", navigation(leaf, clause.variables), columns.add(leaf.sql), leaf.is_final)
    if isinstance(leaf, Rows):
        index = add_aggregate(leaf, clause.variables, columns, measured)
        return Result("aggregate", None, index, leaf.is_final)
    return Result("number" if leaf.function == "MATCH_NUMBER" else "classifier")


def _read(condition: Condition | Operand | None) -> set[int]:
    """Return the columns that a condition reads."""
    if isinstance(condition, OfRow):
        return {condition.column, condition.absent}
    if isinstance(condition, Joined):
        return set().union(*map(_read, condition.parts))
    if isinstance(condition, Not):
        return _read(condition.part)
    if isinstance(condition, IsNull):
        return _read(condition.value)
    return _read(condition.left) | _read(condition.right) if isinstance(condition, Compared) else set()


def _class(kind: str) -> str:
    """Return the types that values are compared with; "" for types that are not compared."""
    if kind in _EXACT or kind.startswith("decimal"):
        return "exact"
    if kind in _FLOATS:
        return "double"
    is_duration = kind.startswith("interval ") and "month" not in kind and "year" not in kind
    return kind if is_duration or kind in _COMPARED | {"void"} else ""


def _aggregate_kind(one: Aggregate, kinds: Sequence[str]) -> str:
    """Return the type of an aggregate, as Spark's."""
    kind = kinds[one.column] if one.column >= 0 else ""
    if one.function == "count":
        return "bigint"
    if one.function in {"min", "max"}:
        return kind
    if not kind.startswith("decimal"):
        return "bigint" if one.function == "sum" and kind in _EXACT else "double"
    digits, scale = _digits(kind)
    if one.function == "sum":
        return f"decimal({min(digits + 10, 38)},{scale})"
    return f"decimal({min(digits + 4, 38)},{min(scale + 4, 38)})"


def _digits(kind: str) -> tuple[int, int]:
    digits, _, scale = kind.removeprefix("decimal(").removesuffix(")").partition(",")
    return int(digits), int(scale or 0)
