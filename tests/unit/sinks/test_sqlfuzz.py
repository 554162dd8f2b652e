"""The fuzzer of views finds differences of every kind, and its texts of times are PostgreSQL's. Needs no server."""

from __future__ import annotations

import random
import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.sqlfuzz.batches import Batches
from tests.sqlfuzz.comparison import difference
from tests.sqlfuzz.drawing import Accepts
from tests.sqlfuzz.expressions import Expressions, columns_of
from tests.sqlfuzz.kinds import SIMPLE
from tests.sqlfuzz.moments import day_text, moment_text
from tests.sqlfuzz.on_postgres import Answer, Raised
from tests.sqlfuzz.queries import CONSTRUCTS, Queries
from tests.sqlfuzz.rules import AGGREGATES, LITERALS, SCALARS, WINDOWS
from tests.sqlfuzz.tables import ROWS
from tests.sqlfuzz.tree import filled, leaf, listed, smaller
from tests.sqlfuzz.unsolved import UNSOLVED


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int4", "7", 7),
        ("numeric", "1.50", Decimal("1.500000")),
        ("numeric", "NaN", "NaN"),
        ("float8", "NaN", float("nan")),
        ("float8", "0.1", 0.1),
        ("float4", "0.1", 0.10000000149011612),
        ("bool", "t", True),
        ("bpchar", "ab  ", "ab  "),
        ("bytea", r"\x00ff", b"\x00\xff"),
        ("timestamptz", "2024-02-29 12:00:00+00", "2024-02-29 12:00:00"),
        ("timestamptz", "0001-12-13 00:00:00+00 BC", "0001-12-13 00:00:00 BC"),
        ("_int4", "{1,NULL}", [1, None]),
        ("_text", '{"",NULL,"NULL","a\\"b"}', ["", None, "NULL", 'a"b']),
        ("_text", "{a}", '["a"]'),
        ("text", None, None),
    ],
)
def test_equal_values_are_equal(kind: str, text: str | None, value: Any) -> None:
    assert difference(Answer((kind,), ((text,),)), [(value,)]) == ""


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int4", "7", 7.0),
        ("int4", "1", True),
        ("numeric", "1.5", 1.5),
        ("numeric", "0.3333333333333333", Decimal("0.333333")),
        ("float8", "-0", 0.0),
        ("float8", "0.1", 0.10000000000000002),
        ("bool", "f", 0),
        ("bpchar", "ab  ", "ab"),
        ("text", "", None),
        ("text", None, ""),
        ("_text", "{NULL}", ["NULL"]),
        ("date", "2024-02-29", "2024-03-01"),
    ],
)
def test_other_values_and_types_differ(kind: str, text: str | None, value: Any) -> None:
    assert difference(Answer((kind,), ((text,),)), [(value,)]) != ""


def test_duplicates_count_and_order_does_not() -> None:
    answer = Answer(("int4",), (("1",), ("2",), ("2",)))

    assert difference(answer, [(2,), (1,), (2,)]) == ""
    assert difference(answer, [(2,), (1,), (1,)]) != ""
    assert difference(answer, [(2,), (1,)]) != ""


def test_texts_of_times_are_those_of_python_where_it_has_them() -> None:
    for days in range(-719_162, 2_932_896, 997):
        assert day_text(days) == (date(1970, 1, 1) + timedelta(days)).isoformat()
    assert day_text(2_932_897) == "10000-01-01"
    assert day_text(-719_163) == "0001-12-31 BC"
    assert moment_text(-500_000) == "1969-12-31 23:59:59.5"
    assert moment_text(1) == datetime(1970, 1, 1, 0, 0, 0, 1).isoformat(" ")  # noqa: DTZ001 - a local time


def test_smaller_trees_drop_items_and_clauses_and_keep_kinds() -> None:
    inner = filled("int4", "({0} + {1})", [leaf("int4", "a"), leaf("int4", "b")], "add")
    where = filled("where", " where {0}", [leaf("bool", "c")], "where", optional=True)
    query = filled("query", "select {0} from t{1}", [listed("items", [inner, leaf("text", "d")]), where])

    found = {str(one) for one in smaller(query, {"int4": ("1",)})}

    assert {"select d from t where c", "select (a + b), d from t", "select a, d from t where c"} <= found
    assert "select 1, d from t where c" in found
    assert query.features == {"add", "where"}


def test_every_rule_can_be_written() -> None:
    made = Expressions(random.Random(1))
    scope = columns_of("mild")

    for rule in (*SCALARS, *AGGREGATES, *WINDOWS):
        assert {*rule.arguments} <= SIMPLE.keys() | LITERALS.keys(), rule
        without_literals = re.sub(r"'[^']*'", "''", str(made.probe(rule, scope)))
        assert "{" not in without_literals, rule


def test_same_seed_gives_same_queries() -> None:
    def drawn(seed: int) -> list[str]:
        made = Queries(random.Random(seed))
        return [str(made.query()) for _ in range(50)]

    assert drawn(3) == drawn(3) != drawn(4)


def test_constructs_left_out_are_not_generated() -> None:
    left_out = {"coalesce", "add(int4,int4)", "limit", "union"}
    made = Queries(random.Random(5), left_out)

    found: set[str] = set().union(*(made.query().features for _ in range(300)))

    assert not {name for name in found if name in left_out or name.partition("(")[0] in left_out}


class _Sides:
    """Both sides of one expression over `side`: PostgreSQL's value and the view's value by row, or an error."""

    def __init__(self, wanted: dict[int, int | None], found: dict[int, int | None]) -> None:
        self._wanted, self._found = wanted, found

    def answer(self, sql: str) -> Answer | Raised:
        row = re.search(r"where id = (\d+)", sql)
        ids = [int(row[1])] if row else list(range(1, ROWS["side"] + 1))
        if sql.startswith("explain"):
            return Answer(("text",), ())
        if " i4 as x" in sql:  # a part of the expression
            return Answer(("int4", "int4"), ((str(ids[0]), None if ids[0] == _NULL else "1"),))
        if any(one in self._wanted and self._wanted[one] is None for one in ids):
            return Raised("22012", "division by zero")
        return Answer(("int4", "int4"), tuple((str(one), str(self._wanted.get(one, 0))) for one in ids))

    def read(self, _: str) -> object:
        return object()

    def rows(self, _: object) -> Raised | list[tuple[int, int]]:
        return Raised("22003", "OVERFLOW") if None in self._found.values() else [(3, 0)]

    def cells(self, views: list[Any]) -> list[tuple[Any, ...]]:
        return [(one, *[self._cell(one)] * len(views)) for one in range(1, ROWS["side"] + 1)]

    def _cell(self, row: int) -> dict[str, int | None] | None:
        value = self._found.get(row, 0)
        return None if value is None else {"v": value}


_NULL = 9
"""A row on which a part of the expression is null."""


@pytest.mark.parametrize(
    ("wanted", "found", "result"),
    [
        ({}, {}, "equal"),
        ({3: 7}, {3: 7}, "equal"),
        ({3: 7}, {}, "differs"),
        ({3: 7}, {4: 7}, "differs"),
        ({3: None}, {3: None}, "raised"),
        ({3: None}, {3: None, 4: 5}, "differs"),
        ({3: None}, {}, "answers"),
        ({_NULL: None}, {}, "unchecked"),
        ({_NULL: None, 3: None}, {}, "answers"),
        ({}, {3: None}, "raises"),
    ],
)
def test_an_expression_has_the_worst_outcome_of_its_rows(
    wanted: dict[int, int | None], found: dict[int, int | None], result: str
) -> None:
    both: Any = _Sides(wanted, found)
    node = filled("int4", "({0} / 2)", [leaf("int4", "i4")], "div")

    ((_, _, outcome),) = Batches(both, both).outcomes([(node, "side")])

    assert outcome.result == result, outcome


def test_parts_that_a_view_refuses_are_drawn_again() -> None:
    def share(accepts: Accepts | None) -> float:
        made = Queries(random.Random(9), accepts=accepts)
        texts = [str(made.query()) for _ in range(200)]
        return sum("coalesce" in text for text in texts) / len(texts)

    assert share(lambda text: "coalesce" not in text) < 0.5 * share(None)


def test_unsolved_names_exist() -> None:
    rules = (*SCALARS, *AGGREGATES, *WINDOWS)
    known = {rule.name for rule in rules} | {rule.family for rule in rules} | set(CONSTRUCTS)

    assert UNSOLVED.keys() <= known
    assert all(UNSOLVED.values())
