"""The forms, texts and multisets by which views are compared with PostgreSQL's own answer."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from sinks.warehouse.verify.row_multiset import EXAMPLES_MAX, Row, compare
from sinks.warehouse.verify.value_forms import lake_form, source_form
from sinks.warehouse.verify.view_text import NamedTable, NotCheckable, one_query, replaced, view_text, views_read

_PG = "-- dialect: postgres\n"
_LOCAL = datetime(2026, 3, 29, 2, 30, 0, 250_000)  # noqa: DTZ001 - it has no zone
_MOMENT = datetime(2026, 3, 29, 2, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "lake", "text", "value"),
    [
        ("integer", "int32", "7", 7),
        ("bigint", "decimal128(20, 0)", "7", Decimal(7)),
        ("numeric", "decimal128(12, 2)", "1.5", Decimal("1.50")),
        ("numeric", "decimal128(12, 2)", "-0.00", Decimal("0.00")),
        ("numeric", "string", "1.50", "1.50"),
        ("numeric", "string", "NaN", "NaN"),
        ("double precision", "double", "0.1", 0.1),
        ("double precision", "double", "-0", -0.0),
        ("double precision", "double", "NaN", float("nan")),
        ("double precision", "double", "-Infinity", float("-inf")),
        ("real", "float", "0.1", 0.10000000149011612),
        ("boolean", "bool", "t", True),
        ("date", "date32[day]", "2026-03-29", date(2026, 3, 29)),
        ("timestamp without time zone", "timestamp[us]", "2026-03-29 02:30:00.25", _LOCAL),
        ("timestamp with time zone", "timestamp[us, tz=UTC]", "2026-03-29 02:30:00+00", _MOMENT),
        ("timestamp with time zone", "string", "2026-03-29 02:30:00+00", "2026-03-29T02:30:00+00:00"),
        ("timestamp with time zone", "string", "infinity", "infinity"),
        ("bytea", "binary", "\\xfbff", b"\xfb\xff"),
        ("character", "string", "ab  ", "ab  "),
        ("jsonb", "string", '{"a": 1.0, "b": null}', '{"b": null, "a": 1}'),
        ("jsonb", "struct<a: int64>", '{"a": 1}', {"a": 1}),
        ("integer[]", "string", "[1,null,[2]]", "[1,null,[2]]"),
        ("numeric[]", "string", "[1.50]", '["1.50"]'),
        ("text[]", "list<element: string>", '["1","x"]', ["1", "x"]),
        ("boolean[]", "list<element: bool>", "[true,null]", [True, None]),
        ("interval", "string", "P1DT2H", "P1DT2H"),
    ],
)
def test_equal_values_of_both_sides_have_one_form(kind: str, lake: str, text: str, value: Any) -> None:
    assert source_form(kind, lake)(text) == lake_form(kind, lake)(value)


@pytest.mark.parametrize(
    ("kind", "lake", "text", "value"),
    [
        ("integer", "double", "2", 2.5),
        ("numeric", "decimal128(12, 2)", "1.505", Decimal("1.50")),
        ("numeric", "double", "0.1", 0.1),
        ("numeric", "string", "1.50", "1.5"),
        ("double precision", "double", "0", -0.0),
        ("double precision", "double", "0.1", 0.10000000000000002),
        ("character", "string", "ab  ", "ab"),
        ("text", "string", "1.0", "1"),
        ("jsonb", "string", '{"a": "1"}', '{"a": 1}'),
        ("jsonb", "string", '{"a": null}', "{}"),
        ("text[]", "list<element: string>", '["null"]', [None]),
        ("timestamp with time zone", "timestamp[us, tz=UTC]", "2026-03-29 02:30:00.000001+00", _MOMENT),
    ],
)
def test_different_values_have_different_forms(kind: str, lake: str, text: str, value: Any) -> None:
    assert source_form(kind, lake)(text) != lake_form(kind, lake)(value)


def _compared(published: Sequence[Row], source: Sequence[Row], **settings: Any) -> tuple[int, int, int]:
    found = compare(lambda: published, lambda: source, **{"floats": (), **settings})
    assert (found.rows, found.source_rows) == (len(published), len(source))
    return found.missing, found.extra, found.near


def test_rows_are_compared_as_a_multiset() -> None:
    assert _compared([("a",), ("b",), ("a",)], [("a",), ("a",), ("b",)]) == (0, 0, 0)
    assert _compared([("a",), ("b",)], [("a",), ("a",), ("b",)]) == (1, 0, 0)
    assert _compared([("a",), ("a",)], [("a",), (None,)]) == (1, 1, 0)
    assert _compared([("a", "b")], [("ab", "")]) == (1, 1, 0)
    assert _compared([], []) == (0, 0, 0)


def test_rows_that_differ_in_the_last_digits_of_floats_are_near() -> None:
    published = [("a", "0.1"), ("a", "2.0"), ("b", None), ("c", "nan")]
    source = [("a", "2.0000000000000004"), ("a", "0.10000000000000002"), ("b", None), ("c", "nan")]

    assert _compared(published, source, floats=[1]) == (0, 0, 2)
    assert _compared([("a", "0.1")], [("b", "0.1")], floats=[1]) == (1, 1, 0)
    assert _compared([("a", "0.1")], [("a", "0.11")], floats=[1]) == (1, 1, 0)
    assert _compared([("a", "0.1")], [("a", None)], floats=[1]) == (1, 1, 0)


def test_floats_may_differ_each_time_that_postgresql_adds_them() -> None:
    published: list[Row] = [(str(at), "0.1") for at in range(500)]
    answers: Iterator[list[Row]] = iter(
        [[(str(at), f"0.1000000000000000{at % 7}") for at in range(500)], [(str(at), "0.1") for at in range(500)]]
    )

    found = compare(lambda: published, lambda: next(answers), floats=[1])

    assert (found.missing, found.extra, found.rows, found.source_rows) == (0, 0, 500, 500)


@pytest.mark.parametrize("seed", range(20))
def test_any_difference_between_multisets_is_counted(seed: int) -> None:
    chance = random.Random(seed)
    published = [(str(chance.randrange(40)),) for _ in range(chance.randrange(60))]
    source = [*published, *((str(chance.randrange(40)),) for _ in range(chance.randrange(3)))]
    for _ in range(min(len(source), chance.randrange(3))):
        source.pop(chance.randrange(len(source)))
    chance.shuffle(source)
    mine, other = Counter(published), Counter(source)

    assert _compared(published, source) == ((other - mine).total(), (mine - other).total(), 0)


def test_memory_does_not_grow_with_equal_rows() -> None:
    def rows() -> Iterator[Row]:
        return ((str(at), "a name") for at in range(100_000))

    tracemalloc.start()
    try:
        found = compare(rows, rows, floats=())
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (found.missing, found.extra, found.rows) == (0, 0, 100_000)
    assert most_bytes < 4_000_000, "one digest per row took 10 MB"


def test_examples_are_few_and_a_key_tells_the_columns_that_differ() -> None:
    rows: list[Row] = [(str(at), "x", "y") for at in range(9)]
    other: list[Row] = [(str(at), "x", "z" if at > 5 else "y") for at in range(9)]
    found = compare(lambda: rows, lambda: other, floats=(), key=[0])

    assert len(found.examples) == EXAMPLES_MAX
    assert found.examples[:2] == [("extra", ("6", "x", "y")), ("missing", ("6", "x", "z"))]
    assert found.columns == {2: 3}


def _names(sql: str) -> list[str]:
    return [str(name) for name in view_text(_PG + sql).names]


def test_the_tables_of_a_text_are_found() -> None:
    assert _names("select * from orders o join public.Customers c on c.id = o.customer_id") == [
        "orders",
        "public.customers",
    ]
    assert _names('select (select max(x) from "Big Table") from t where exists (select from u)') == [
        "Big Table",
        "t",
        "u",
    ]
    assert _names("with a as (select 1), b as (select * from a, t) select * from b, a, public.a") == ["t", "public.a"]
    assert _names("with a as (select * from a) select * from a") == ["a"]
    assert _names("with recursive a as (select 1 union all select * from a) select * from a, t") == ["t"]
    assert _names("select * from (with a as (select 1) select * from a) x, a") == ["a"]
    assert _names("select * from generate_series(1, 2) g, unnest(array[1]) u") == []


def test_names_are_replaced_and_nothing_else_changes() -> None:
    text = view_text(f"{_PG}select 'orders', orders.id -- of orders\nfrom orders, public . lines l\n;")

    sql = replaced(text, lambda name: f"<{name}>")

    assert sql == f"{_PG}select 'orders', orders.id -- of orders\nfrom <orders> as \"orders\", <public.lines> l\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("select 1", "Spark SQL"),
        (f"{_PG}select * from history.orders", "only in the lake"),
        (f"{_PG}select * from archive.orders", "only in the lake"),
        (f"{_PG}select 1 from t join r on valid_at(r, t)", "valid_at exists only in the lake"),
        (f"{_PG}select * from only t", "ONLY"),
        (f"{_PG}select 1; select 2", "not one query"),
        (f"{_PG}select (", "cannot be parsed"),
    ],
)
def test_what_postgresql_cannot_run_is_said(text: str, why: str) -> None:
    with pytest.raises(NotCheckable, match=why):
        view_text(text)


def test_views_that_a_view_reads_come_first() -> None:
    texts = {
        "top": view_text(f"{_PG}select * from middle, t"),
        "middle": view_text(f"{_PG}with x as (select * from base) select * from x -- end"),
        "base": view_text(f"{_PG}select * from t;"),
    }

    sql, ctes = one_query("top", texts, lambda name: f"<{name}>")

    assert list(ctes) == ['"tailrace_view_2"', '"tailrace_view_1"']
    assert sql.endswith('select * from "tailrace_view_1" as "middle", <t> as "t"')
    assert '"tailrace_view_2" as "base"' in ctes['"tailrace_view_1"']
    assert views_read("top", texts) == {"middle", "base"}


def test_a_cycle_of_views_is_said() -> None:
    texts = {"a": view_text(f"{_PG}select * from b"), "b": view_text(f"{_PG}select * from a")}

    def table(name: NamedTable) -> str:
        return str(name)

    with pytest.raises(NotCheckable, match="read each other"):
        one_query("a", texts, table)


def test_the_key_of_a_file_is_read() -> None:
    assert view_text(f'{_PG}-- key: id, "Line No"\nselect 1').key == ("id", "Line No")
