"""Views as files: parsed, refused, ordered, and bound to the lake's tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdc.errors import ViewRefused
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.table_naming import captured_table, sql_name
from sinks.warehouse.views.definition import BoundView, View, bind, inputs, load_views, parse_view, read_view, temporary
from sinks.warehouse.views.meaning.pg_types import INT8, TEXT, TIMESTAMPTZ, numeric
from tests.fixtures.views.pg_columns import types_of_ddl
from tests.tidy.tree import ROOT

TABLES = [
    "mirror/public.orders",
    "mirror/public.order_lines",
    "mirror/sales.customers",
    "mirror/public.customers",
    "mirror/public.Order-20lines",
    "history/public.orders",
    "archive/shop.public.orders",
    "archive/shop.events.order",
]


TYPES = {
    table: {"id": INT8, "note": TEXT, "total": numeric(12, 3), "placed_at": TIMESTAMPTZ}
    for table in ("mirror/public.orders", "mirror/public.Orders")
}


def view(sql: str, name: str = "v") -> View:
    return parse_view(Path(f"{name}.sql"), sql)


def bound(sql: str, tables: list[str] | None = None) -> BoundView:
    return bind([view(sql)], TABLES if tables is None else tables, TYPES)[0]


def refusal(sql: str, *, tables: list[str] | None = None) -> ViewRefused:
    with pytest.raises(ViewRefused) as refused:
        bound(sql, tables)
    return refused.value


def folder(path: Path, **files: str) -> Path:
    for name, sql in files.items():
        (path / f"{name}.sql").write_text(sql, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("orders", "mirror/public.orders"),
        ("public.orders", "mirror/public.orders"),
        ("mirror.orders", "mirror/public.orders"),
        ("mirror.public.orders", "mirror/public.orders"),
        ("ORDERS", "mirror/public.orders"),
        ("sales.customers", "mirror/sales.customers"),
        ("`Order lines`", "mirror/public.Order-20lines"),
        ("public.`Order lines`", "mirror/public.Order-20lines"),
        ("history.orders", "history/public.orders"),
        ("history.public.orders", "history/public.orders"),
        ("archive.orders", "archive/shop.public.orders"),
        ("archive.public.orders", "archive/shop.public.orders"),
        ("archive.shop.public.orders", "archive/shop.public.orders"),
        ("archive.`shop.public.orders`", "archive/shop.public.orders"),
        ("archive.events.`order`", "archive/shop.events.order"),
    ],
)
def test_a_name_means_one_table_of_the_lake(name: str, table: str) -> None:
    found = bound(f"select 1 as one from {name} as t")

    assert inputs(found) == {table}
    assert found.sql == f"select 1 as one from `{temporary(table)}` as t"


def test_text_of_spark_sql_is_run_as_it_was_written_but_for_the_names() -> None:
    sql = (
        "-- Umsätze\nselect  orders.id, o2.id as b -- all\nfrom public.orders\n  join orders o2 on o2.id = orders.id\n"
    )

    found = bound(sql)

    name = temporary("mirror/public.orders")
    assert found.sql == sql.replace("public.orders", f"`{name}` as `orders`").replace("orders o2", f"`{name}` o2")


def test_windows_of_event_time_are_taken() -> None:
    sql = "select window.start as day, sum(x) over w as y from {} group by {}('p', '1 day') window w as (order by x)"

    for word in ("window", "WINDOW", "session_window", "`window`"):
        found = bound(sql.format("orders", word))
        assert found.sql == sql.format(f"`{temporary('mirror/public.orders')}` as `orders`", word)


@pytest.mark.parametrize(
    "sql",
    [
        "from {} |> where id > 1 |> select id",
        "select id from ({}) where id > 1",
        "select * from {} pivot (sum(total) for status in ('new' as fresh)) p",
        "select id from {} lateral view explode(tags) e as tag",
        "select /*+ BROADCAST(orders) */ id from customers c left anti join {} on true",
        "select id from customers c, {} where c.id in (values (1))",
        "with a as (select id from {}), b as (select id from a) select id from b",
        "select id from (select id, row_number() over (partition by id order by at) as n from {}) where n = 1",
    ],
)
def test_a_name_without_an_alias_keeps_its_own(sql: str) -> None:
    tables = ["mirror/public.orders", "mirror/public.customers"]
    customers = f"`{temporary(tables[1])}`"

    found = bound(sql.format("public.orders"), tables)

    assert found.sql == sql.format(f"`{temporary(tables[0])}` as `orders`").replace("customers", customers)


def test_names_of_a_with_are_not_tables() -> None:
    found = bound(
        "with orders as (select id from orders), big as (select id from orders)\n"
        "select id from big where exists (with customers as (select 1 as x) select x from customers)"
    )

    assert found.tables == {temporary("mirror/public.orders"): "mirror/public.orders"}
    assert found.sql.count(temporary("mirror/public.orders")) == 1


def test_a_recursive_with_reads_itself() -> None:
    sql = "with recursive n as (select 1 as i union all select i + 1 from n where i < 9) select i from n"

    assert inputs(bound(sql)) == frozenset()


def test_functions_in_from_are_not_tables() -> None:
    assert inputs(bound("select id from range(3)")) == frozenset()
    assert inputs(bound("select id, tag from orders lateral view explode(tags) e as tag")) == {"mirror/public.orders"}


def test_tables_of_every_subquery_are_found() -> None:
    found = bound(
        "select (select max(line) from order_lines) as n from orders o where o.c in (select id from sales.customers)\n"
        "union all select 1 as n from history.orders"
    )

    assert inputs(found) == {
        "mirror/public.order_lines",
        "mirror/public.orders",
        "mirror/sales.customers",
        "history/public.orders",
    }


def test_postgres_is_translated() -> None:
    sql = "-- dialect: postgres\nselect Id, note like '%x%' as x, total::numeric(10,2) as t from Orders"
    (found,) = bind([view(sql)], TABLES, TYPES)

    name = temporary("mirror/public.orders")
    assert found.view.dialect == "postgres"
    assert found.sql == (
        "select `orders`.`id`, (`orders`.`note` like '%x%') as `x`,"
        f" cast(`orders`.`total` as decimal(10,2)) as `t` from `{name}` as `orders`"
    )
    assert found.relies_on == {name: {"id": "bigint", "note": "string", "total": "decimal(12,3)"}}


def test_an_unknown_table_is_refused_with_what_there_is_and_what_is_near() -> None:
    error = refusal("select 1 as a,\n  2 as b\nfrom ordres")

    assert error.message == "v.sql, line 3, column 6: table ordres does not exist"
    assert error.hint.startswith("did you mean public.orders? known names: archive.`shop.events.order`, ")
    assert "public.`Order lines`" in error.hint
    assert (error.facts["view"], error.facts["line"]) == ("v", 3)
    assert (
        "line 4, column 6: table ordres does not exist"
        in refusal("-- dialect: postgres\nselect 1 as a,\n2 as b\nfrom Ordres").message
    )


def test_a_path_of_files_is_no_table() -> None:
    assert "table parquet./tmp/x does not exist" in refusal("select * from parquet.`/tmp/x`").message


def test_an_empty_lake_says_so() -> None:
    assert refusal("select id from orders", tables=[]).hint == "the lake has no tables yet"


def test_an_ambiguous_name_is_refused_with_the_names_to_write() -> None:
    error = refusal("select id from customers")

    assert error.message == "v.sql, line 1, column 16: customers is ambiguous: public.customers, sales.customers"
    assert error.hint == "write mirror.public.customers or mirror.sales.customers"


def test_a_schema_named_as_a_kind_is_ambiguous_unless_its_kind_is_said() -> None:
    tables = ["mirror/history.orders", "history/public.orders"]

    assert (
        "is ambiguous: history.public.orders, history.orders"
        in refusal("select id from history.orders", tables=tables).message
    )
    assert inputs(bound("select id from mirror.history.orders", tables)) == {"mirror/history.orders"}
    assert inputs(bound("select id from history.public.orders", tables)) == {"history/public.orders"}


def test_the_case_of_a_name_counts_where_two_differ_by_it() -> None:
    tables = ["mirror/public.Orders", "mirror/public.orders"]

    assert inputs(bound("select id from Orders", tables)) == {"mirror/public.Orders"}
    assert inputs(bound("-- dialect: postgres\nselect id from Orders", tables)) == {"mirror/public.orders"}
    assert inputs(bound('-- dialect: postgres\nselect id from "Orders"', tables)) == {"mirror/public.Orders"}
    assert "is ambiguous" in refusal("select id from ORDERS", tables=tables).message


def test_views_come_behind_the_views_they_read(tmp_path: Path) -> None:
    views = load_views(
        folder(
            tmp_path,
            a="select x from b join c using (x)",
            b="select x from C",
            c="select id as x from orders",
            d="select id as x from orders",
        )
    )

    names = [found.name for found in views]
    assert sorted(names) == ["a", "b", "c", "d"]
    assert names.index("c") < names.index("b") < names.index("a")
    last = next(found for found in bind(views, TABLES) if found.name == "a")
    assert set(last.views.values()) == {"b", "c"}
    assert last.tables == {}


def test_a_circle_of_views_is_refused_and_named(tmp_path: Path) -> None:
    with pytest.raises(ViewRefused, match=r"in a cycle: (a -> c -> b -> a|b -> a -> c -> b|c -> b -> a -> c)"):
        load_views(folder(tmp_path, a="select x from c", b="select x from a", c="select x from b"))


def test_a_view_named_as_a_table_is_a_table_only_with_its_schema(tmp_path: Path) -> None:
    views = load_views(folder(tmp_path, orders="select id from public.orders"))

    assert inputs(bind(views, TABLES)[0]) == {"mirror/public.orders"}
    folder(tmp_path, last="select id from orders")
    with pytest.raises(ViewRefused, match=r"orders is ambiguous: public\.orders, the view orders"):
        bind(load_views(tmp_path), TABLES)
    folder(tmp_path, orders="select id from orders")
    with pytest.raises(ViewRefused, match="in a cycle: orders -> orders"):
        load_views(tmp_path)


def test_files_that_are_no_views_are_left_alone_and_bad_names_are_refused(tmp_path: Path) -> None:
    folder(tmp_path, a="select id from orders")
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    assert [found.name for found in load_views(tmp_path)] == ["a"]

    (tmp_path / "A.sql").write_text("select id from orders", encoding="utf-8")
    with pytest.raises(ViewRefused, match="case-insensitive"):
        load_views(tmp_path)

    for name in ("1a.sql", "a b.sql", "a-b.sql", "ä.sql", f"{'x' * 101}.sql"):
        with pytest.raises(ViewRefused, match="invalid view name"):
            read_view(tmp_path / name)


def test_folders_and_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ViewRefused, match=r"cannot read .*missing: No such file"):
        load_views(tmp_path / "missing")
    (tmp_path / "v.sql").write_bytes(b"select '\xff' as x")
    with pytest.raises(ViewRefused, match=r"v\.sql, line 1: is not text in UTF-8"):
        load_views(tmp_path)


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("", "contains no query", "SELECT"),
        ("-- nothing\n", "contains no query", "SELECT"),
        ("selct id from orders", "line 1, column 1: begins with 'selct'", "SELECT"),
        ("delete from orders", "begins with 'delete'", "SELECT"),
        ("explain select 1 as a", "begins with 'explain'", "SELECT"),
        ("with a as (select 1 as x) insert into b select x from a", "is not a SELECT", "SELECT"),
        ("select id\nfrom (orders", "is not valid SQL", "dialect: postgres"),
        ("select id\nfrom orders where note = 'x\n", "line 2: is not valid SQL: a text in quotes", "close it"),
        (
            "select id from orders where",
            "line 1, column 23: is not valid SQL: syntax error near 'where'",
            "dialect: postgres",
        ),
        ("select id from orders;\n\nselect 2 as x", "line 3, column 8: contains 2 statements", "one SELECT"),
        ("-- dialect: mysql\nselect 1 as a", "line 1: unknown dialect: mysql", "spark or postgres"),
        ("-- dialect: spark\n-- late: drop\nselect 1 as a", "line 2: unknown late: drop", "expected correct"),
        ("select id, total as Id from orders", "two columns are named 'Id'", "rename"),
        ("select count(*) from orders", "column 1 has no name", "as name"),
        (
            "-- dialect: postgres\nselect max(a->'b'->>'c') as x from orders",
            "line 2, column 12: -> as an argument",
            "parentheses",
        ),
        ("select id\nfrom orders limit 3", "LIMIT without ORDER BY", "ORDER BY"),
        ("select id from orders tablesample (10 percent)", "TABLESAMPLE", "condition"),
        ("select transform(id) using 'cat' as (x) from orders", "TRANSFORM runs a program", "remove"),
        ("select reflect('java.lang.Math', 'random') as x", "reflect() runs code", "remove"),
        ("select id from orders version as of 3", "names a version", "as of its cut"),
    ],
)
def test_invalid_view_is_refused_with_position_and_hint(sql: str, message: str, hint: str) -> None:
    error = refusal(sql)

    assert error.message.startswith("v.sql")
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    "text",
    [
        "now()",
        "NOW ( )",
        "`now`()",
        "system.builtin.now()",
        "current_timestamp",
        "current_timestamp()",
        "Current_Date",
        "localtimestamp",
        "unix_timestamp()",
        "rand()",
        "random()",
        "uuid()",
        "shuffle(tags)",
        "monotonically_increasing_id()",
        "input_file_name()",
        "current_user()",
        "cast('now' as timestamp)",
        "date 'today'",
        "first(note)",
        "any_value(note)",
        "mode(note)",
        "mode(note, false)",
        "collect_list(note)",
        "collect_set(note)",
        "array_agg(note)",
        "listagg(note, ',')",
        "size(collect_list(note))",
        "sort_array(slice(collect_list(note), 1, 2))",
    ],
)
def test_what_is_not_the_same_twice_is_refused(text: str) -> None:
    message = refusal(f"select id,\n {text} as x\nfrom orders group by id").message

    assert re.match(r"v\.sql, line 2, column \d+: ", message)


def test_the_clock_is_refused_in_every_place_and_dialect() -> None:
    assert (
        "line 3, column 13: now()"
        in refusal("select id from orders o\nwhere exists (select 1 from history.orders h\nwhere h.t < now())").message
    )
    assert "line 2, column 8: now()" in refusal("-- dialect: postgres\nselect now() as t from orders").message
    assert "clock_timestamp()" in refusal("-- dialect: postgres\nselect clock_timestamp() as t from orders").message


@pytest.mark.parametrize(
    "text",
    [
        "sort_array(collect_list(note))",
        "array_sort(collect_set(note))",
        "sort_array(collect_list(note) filter (where note <> ''), false)",
        "sort_array(array_agg(struct(id, note)))",
        "collect_list(note) over (partition by id order by line)",
        "first_value(note) over (partition by id order by line)",
        "listagg(note, ',') within group (order by note)",
        "max_by(note, line)",
        "mode(note, true)",
        "mode() within group (order by note)",
        "unix_timestamp(placed_at)",
        "date_trunc('day', placed_at)",
        "o.now",
        "o.current_date",
        "'now()'",
        "cast('2026-11-21' as date)",
    ],
)
def test_what_is_the_same_twice_is_taken(text: str) -> None:
    assert bound(f"select id as key, {text} as x from orders o /* now() */ -- rand()").sql


def test_headers_say_dialect_and_late_policy() -> None:
    found = view("-- Dialect: Postgres\n-- what it is for\n-- late: correct\nselect 1 as a")

    assert (found.dialect, found.late) == ("postgres", "correct")
    assert view("select 1 as a -- dialect: mysql").dialect == "spark"


def test_the_sum_changes_with_the_text_and_with_what_its_names_mean() -> None:
    one = bound("select id from orders")

    assert one.sha == bound("select id from orders").sha
    assert one.sha != bound("select id  from orders").sha
    assert one.sha != bound("select id from orders", ["mirror/sales.orders"]).sha


def test_lake_tables_are_spelled_as_a_query_names_them() -> None:
    assert sql_name("mirror/public.orders") == "public.orders"
    assert sql_name("mirror/public.Order-20lines") == "public.`Order lines`"
    assert sql_name("history/public.orders") == "history.public.orders"
    assert sql_name("archive/shop.public.orders") == "archive.`shop.public.orders`"


def test_temporary_names_are_plain_and_distinct() -> None:
    names = {temporary(table) for table in [*TABLES, "views/orders", "mirror/public.order-20lines"]}

    assert len(names) == len(TABLES) + 2
    assert all(name.isidentifier() and name == name.lower() for name in names)


def test_a_lake_table_is_traced_to_the_captured_table_it_is_made_of() -> None:
    complete = {"public.orders": "complete", "public.Order lines": "snapshotting"}

    assert captured_table("mirror/public.orders", complete) == "public.orders"
    assert captured_table("history/public.Order-20lines", complete) == "public.Order lines"
    assert captured_table("archive/shop.public.Order-20lines", complete) == "public.Order lines"
    assert captured_table("archive/shop.events.order", complete) == ""


def test_a_name_that_was_cut_for_the_file_system_is_found() -> None:
    table = layout.mirror("public", "ä" * 60)

    assert inputs(bound(f"select 1 as a from public.`{'ä' * 60}`", [table])) == {table}


def test_shipped_views_are_taken_and_shown_in_the_guide() -> None:
    guide = (ROOT / "docs" / "howto" / "views.md").read_text(encoding="utf-8")
    views = load_views(ROOT / "cdc" / "shop" / "views")
    shop = [f"mirror/shop.{table}" for table in ("customers", "products", "orders", "order_lines", "follows", "posts")]

    types = types_of_ddl((ROOT / "cdc" / "shop" / "schema.sql").read_text())

    read = {
        found.view.name: {table.rpartition(".")[2] for table in inputs(found)} for found in bind(views, shop, types)
    }
    assert read == {
        "daily_revenue": {"orders", "order_lines"},
        "order_document": {"customers", "products", "orders", "order_lines"},
        "timeline": {"customers", "follows", "posts"},
        "top_customers": {"customers", "orders", "order_lines"},
    }
    shown = re.findall(r"^```sql\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert shown[0] == next(view.sql for view in views if view.name == "daily_revenue")
    assert parse_view(Path("v.sql"), shown[1]).dialect == "postgres"
    assert bind([parse_view(Path("v.sql"), shown[1])], TABLES, TYPES)


def test_a_comment_says_by_which_plan_a_view_is_kept() -> None:
    assert view("select id from orders").plan == "auto"
    assert view("-- dialect: postgres\n-- plan: affected\nselect id from orders").plan == "affected"
    with pytest.raises(ViewRefused, match="line 1: unknown plan: quick"):
        view("-- plan: quick\nselect id from orders")


def test_a_plan_that_was_removed_is_refused_with_the_alternatives_and_goes_on_in_a_stored_text() -> None:
    text = "-- key: id\n-- plan: delta\nselect id from orders"

    with pytest.raises(ViewRefused, match=r"orders\.sql, line 2: plan delta was removed") as refused:
        view(text, "orders")
    assert all(word in refused.value.hint for word in ("remove the line", "affected", "recompute"))
    stored = parse_view(Path("v.sql"), text, is_stored=True)
    assert (stored.plan, stored.header.key) == ("auto", ("id",))
