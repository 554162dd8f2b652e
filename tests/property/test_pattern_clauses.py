"""Clauses MATCH_RECOGNIZE, from their text to the rows of the matches, against a naive search. DuckDB is Spark here."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeAlias

import duckdb
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.warehouse.patterns.statement import Statement
from sinks.warehouse.patterns.task import matched
from sinks.warehouse.views.definition import parse_view
from sinks.warehouse.views.pattern_frames import task_of
from tests.property.pattern_oracle import Path as Way
from tests.property.pattern_oracle import Tree, matches
from tests.property.viewworld import in_duckdb

Row: TypeAlias = "tuple[int, int, datetime | None, int | None]"
"""id, partition, time, value."""
Truth: TypeAlias = "bool | None"

ZERO: Final = datetime(2026, 1, 1)  # noqa: DTZ001
SCHEMA: Final = pa.schema([("id", pa.int64()), ("p", pa.int64()), ("at", pa.timestamp("us")), ("v", pa.int32())])
SHOWN: Final = {"bigint": "bigint", "int": "int", "integer": "int", "boolean": "boolean", "timestamp": "timestamp"}


class So:
    """The rows of a match so far, of which the last one is tested."""

    def __init__(self, rows: Sequence[Row], start: int, path: Way) -> None:
        self.rows, self.start, self.path = rows, start, path
        self.at = start + len(path) - 1
        self.v = rows[self.at][3]

    def of(self, name: str = "") -> list[int]:
        """The places of the rows of a variable, or of all."""
        return [self.start + index for index, one in enumerate(self.path) if name in {"", one}]

    def value(self, place: int | None) -> int | None:
        """The value of a row; None outside of the partition."""
        return self.rows[place][3] if place is not None and 0 <= place < len(self.rows) else None

    def first(self, name: str = "") -> int | None:
        return next(iter(self.of(name)), None)

    def last(self, name: str, offset: int = 0) -> int | None:
        own = self.of(name)
        return own[-1 - offset] if offset < len(own) else None


def _compared(sign: str, one: int | None, other: int | None) -> Truth:
    if one is None or other is None:
        return None
    return {"<": one < other, "<=": one <= other, ">": one > other, "=": one == other}[sign]


def _and(*parts: Truth) -> Truth:
    return False if False in parts else None if None in parts else True


def _or(*parts: Truth) -> Truth:
    return True if True in parts else None if None in parts else False


def _not(part: Truth) -> Truth:
    return None if part is None else not part


def _known(so: So, places: Sequence[int]) -> list[int]:
    return [value for value in map(so.value, places) if value is not None]


CONDITIONS: Final[dict[str, Callable[[So], Truth]]] = {
    "v > 1": lambda so: _compared(">", so.v, 1),
    "v > prev(v)": lambda so: _compared(">", so.v, so.value(so.at - 1)),
    "next(v) is null": lambda so: so.value(so.at + 1) is None,
    "coalesce(prev(v, 2), 9) > 1": lambda so: (9 if so.value(so.at - 2) is None else so.value(so.at - 2) or 0) > 1,
    "v > first(A.v)": lambda so: _compared(">", so.v, so.value(so.first("A"))),
    "not v = last(A.v)": lambda so: _not(_compared("=", so.v, so.value(so.last("A")))),
    "coalesce(A.v, 2) <= v or v is null": lambda so: _or(
        _compared("<=", 2 if so.value(so.last("A")) is None else so.value(so.last("A")), so.v), so.v is None
    ),
    "sum(v) < 6 and count(*) <= 3": lambda so: _and(
        _compared("<", sum(_known(so, so.of())) if _known(so, so.of()) else None, 6), len(so.path) <= 3
    ),
    "count(C.v) >= count(A.*)": lambda so: len(_known(so, so.of("C"))) >= len(so.of("A")),
    "v between first(v) and 2": lambda so: _and(_compared("<=", so.value(so.first()), so.v), _compared("<=", so.v, 2)),
    "v is not distinct from last(B.v, 1)": lambda so: so.v == so.value(so.last("B", 1)),
    "prev(first(A.v)) is distinct from v": lambda so: (
        (so.value(so.first("A") - 1) if so.first("A") is not None else None) != so.v  # type: ignore[operator]
    ),
    "v in (first(v, 1), 1)": lambda so: _or(
        _compared("=", so.v, so.value(so.of()[1] if len(so.path) > 1 else None)), _compared("=", so.v, 1)
    ),
    "max(v) = v and (min(A.v) is null or true)": lambda so: _compared(
        "=", max(_known(so, so.of()), default=None), so.v
    ),
}
PATTERNS: Final[dict[str, Tree]] = {
    "A B* C": ("seq", ("v", "A"), ("rep", ("v", "B"), 0, None, False), ("v", "C")),
    "A (B | C)+?": ("seq", ("v", "A"), ("rep", ("or", ("v", "B"), ("v", "C")), 1, None, True)),
    "(A | B C?) B{0,2} $": (
        "seq",
        ("or", ("v", "A"), ("seq", ("v", "B"), ("rep", ("v", "C"), 0, 1, False))),
        ("rep", ("v", "B"), 0, 2, False),
        ("$",),
    ),
    "(A B?){2,} C | A+": (
        "or",
        ("seq", ("rep", ("seq", ("v", "A"), ("rep", ("v", "B"), 0, 1, False)), 2, None, False), ("v", "C")),
        ("rep", ("v", "A"), 1, None, False),
    ),
}
MEASURES: Final = """first(B.v) as b, last(v) as v, count(A.*) as a, sum(v) as s, min(C.v) as c, final count(*) as n,
    classifier() as name, match_number() as number, prev(first(v)) as before"""


def _measured(rows: Sequence[Row], start: int, path: Way, upto: int, number: int) -> list[Any]:
    so, whole = So(rows, start, path[:upto]), len(path)
    known, own = _known(so, so.of()), _known(so, so.of("C"))
    return [
        *(so.value(so.first("B")), so.v, len(so.of("A")), sum(known) if known else None, min(own, default=None)),
        *(whole, so.path[-1], number, so.value(start - 1)),
    ]


def _found(statement: Statement, rows: Sequence[Row]) -> list[list[Any]]:
    """The columns of the result that the tasks make, by partition."""
    columns = [("id", "bigint"), ("p", "bigint"), ("at", "timestamp"), ("v", "int")]
    spark = statement.rows_sql("t", columns, ["id"]).replace("raise_error", "error")
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)
    with duckdb.connect() as connection:
        connection.register("t", table)
        made: pa.Table = connection.sql(in_duckdb(spark)).to_arrow_table()
    kinds = {name: SHOWN.get(kind, "int") for name, kind in _kinds(made)}
    kept = [kinds[f"__c{index}"] for index in range(len(statement.columns.sqls))]
    task = task_of(statement.typed(kept), kept)
    apart: dict[int, list[Any]] = {}
    for row in made.to_pylist():
        apart.setdefault(row.pop("__p0"), []).append(row)
    kind = pa.list_(pa.struct([field for field in made.schema if field.name != "__p0"]))
    lists = matched(task, pa.array([apart[name] for name in sorted(apart)], kind)).to_pylist()
    return [[[row[f"__m{index}"] for index in range(len(statement.results))] for row in one] for one in lists]


def _kinds(made: pa.Table) -> list[tuple[str, str]]:
    names = {pa.int64(): "bigint", pa.int32(): "int", pa.bool_(): "boolean", pa.timestamp("us"): "timestamp"}
    return [(field.name, names.get(field.type, "int")) for field in made.schema]


def _time(second: int) -> datetime | None:
    return None if second < 0 else ZERO + timedelta(seconds=second)


ROWS: Final = st.lists(
    st.tuples(st.integers(0, 1), st.integers(-1, 6), st.one_of(st.none(), st.integers(0, 3))), max_size=10
).map(lambda rows: [(number, p, _time(s), v) for number, (p, s, v) in enumerate(rows)])


@settings(max_examples=200)
@given(
    rows=ROWS,
    pattern=st.sampled_from(sorted(PATTERNS)),
    conditions=st.fixed_dictionaries({}, optional=dict.fromkeys("ABC", st.sampled_from(sorted(CONDITIONS)))),
    within=st.one_of(st.none(), st.integers(0, 4)),
    skip=st.sampled_from(["past last row", "to next row"]),
    all_rows=st.booleans(),
)
def test_clause_finds_what_a_naive_search_finds(
    rows: list[Row], pattern: str, conditions: dict[str, str], within: int | None, skip: str, all_rows: bool
) -> None:
    define = ", ".join(f"{name} as {condition}" for name, condition in conditions.items())
    text = f"""select * from t match_recognize (partition by p order by at measures {MEASURES}
        {"all rows" if all_rows else "one row"} per match after match skip {skip} pattern ({pattern})
        {"" if within is None else f"within interval '{within}' second"} {f"define {define}" if define else ""})"""
    (found,) = parse_view(Path("v.sql"), text).patterns

    have = _found(found.statement, rows) if rows else []

    want = []
    for p in sorted({row[1] for row in rows}):
        own = sorted((row for row in rows if row[1] == p), key=lambda row: (row[2] or ZERO - timedelta(1), row[0]))

        def meets(start: int, path: Way, own: list[Row] = own) -> bool:
            at = start + len(path) - 1
            here, first = own[at][2], own[start][2]
            soon = within is None or bool(here and first and here <= first + timedelta(seconds=within))
            test = CONDITIONS.get(conditions.get(path[-1], ""))
            return soon and (test is None or test(So(own, start, path)) is True)

        mode = "past" if skip.startswith("past") else "next"
        each = []
        for number, (start, path) in enumerate(matches(PATTERNS[pattern], len(own), meets, (mode, "")), 1):
            lengths = range(1, len(path) + 1) if all_rows else [len(path)]
            each += [_measured(own, start, path, upto, number) for upto in lengths]
        want.append(each)
    assert have == want


def test_every_condition_is_tried() -> None:
    chance = random.Random(3)
    check = getattr(test_clause_finds_what_a_naive_search_finds, "hypothesis").inner_test  # noqa: B009 - has no type
    for condition, name in product(CONDITIONS, "BC"):
        rows = [(number, 0, _time(number), chance.choice([None, 0, 1, 2, 3])) for number in range(12)]
        check(rows, "A (B | C)+?" if name == "C" else "A B* C", {name: condition}, None, "to next row", all_rows=True)
