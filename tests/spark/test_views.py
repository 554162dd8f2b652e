"""Views and tables of a lake in Spark: exact types, pinned versions, and what is recomputed or kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from cdc.errors import InvariantError, LakeDamaged, SinkBehind, UsageError, ViewRefused
from cdc.lsn import Lsn
from sinks.warehouse import frame_of, read_changes, read_cut, view_at
from sinks.warehouse.lake.manifest import ViewState
from sinks.warehouse.views.definition import BoundView, bind, parse_view, read_view
from sinks.warehouse.views.meaning.lake_types import types_of
from sinks.warehouse.views.meaning.pg_types import INT8, numeric
from sinks.warehouse.views.view_run import Computed, CutTables, Kept, Step, run_views
from tests.fixtures.lake.small_lakes import SmallLake
from tests.tidy.tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ORDERS = "mirror/public.orders"
LINES = "mirror/public.lines"


def orders(*rows: tuple[int, str | None]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([row[0] for row in rows], pa.int64()),
            "total": pa.array([None if row[1] is None else Decimal(row[1]) for row in rows], pa.decimal128(10, 2)),
        }
    )


def bound(lake: SmallLake, **sql: str) -> tuple[BoundView, ...]:
    return bind(
        [parse_view(Path(f"{name}.sql"), text) for name, text in sql.items()], lake.tables, types_of(lake.tables)
    )


def versions(lake: SmallLake) -> dict[str, int]:
    return {name: state.version for name, state in lake.tables.items()}


def run(
    spark: SparkSession,
    lake: SmallLake,
    views: tuple[BoundView, ...],
    *,
    changed: set[str] | None = None,
    complete: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run as the sink does; returns view -> its rows if it was computed, else the reason."""
    cut = CutTables(
        versions=versions(lake),
        complete=complete or {},
        previous=dict(lake.views),
        changed=set(lake.tables) if changed is None else changed,
    )
    shown: dict[str, Any] = {}

    def keep(step: Step | Kept) -> None:
        if isinstance(step, Kept):
            shown[step.view.name] = step.reason
            return
        assert isinstance(step, Computed)
        rows = step.rows().here()
        lake.view(step.view.name, rows, sql_sha=step.view.sha)
        step.committed(lake.views[step.view.name].version)
        shown[step.view.name] = rows.to_pylist()

    run_views([spark], views, lake.path, cut, begin=lambda _: None, keep=keep)
    return shown


def test_every_type_comes_back_as_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    rows = pa.table(
        {
            "id": pa.array([1], pa.int32()),
            "small": pa.array([2], pa.int16()),
            "price": pa.array([Decimal("12345678.90")], pa.decimal128(10, 2)),
            "wide": pa.array([Decimal("1" * 38)], pa.decimal128(38, 0)),
            "local": pa.array([datetime(2026, 3, 29, 2, 30)], pa.timestamp("us")),  # noqa: DTZ001 - it has no zone
            "moment": pa.array([NOON], pa.timestamp("us", "UTC")),
            "day": pa.array([date(2026, 11, 21)], pa.date32()),
            "bytes": pa.array([b"\x00\xff"], pa.binary()),
            "ratio": pa.array([0.1], pa.float64()),
            "Mixed name": ["ü"],
        }
    )
    version = lake.write("mirror/public.t", rows)

    frame = frame_of(spark, tmp_path, "mirror/public.t", version)

    assert [field.dataType.simpleString() for field in frame.schema.fields] == [
        "int", "smallint", "decimal(10,2)", "decimal(38,0)", "timestamp_ntz", "timestamp", "date", "binary", "double",
        "string",
    ]  # fmt: skip
    assert frame.toArrow().to_pylist() == rows.to_pylist()


def test_a_pinned_version_is_read_whatever_was_written_since(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    first = lake.write(ORDERS, orders((1, "1.00")))
    frame = frame_of(spark, tmp_path, ORDERS, first)
    lake.write(ORDERS, orders((2, "2.00")))
    last = lake.write(ORDERS, pa.table({"id": pa.array([3], pa.int64()), "note": ["late column"]}))

    assert [row.asDict() for row in frame.collect()] == [{"id": 1, "total": Decimal("1.00")}]
    assert [tuple(row) for row in frame_of(spark, tmp_path, ORDERS, last).orderBy("id").collect()] == [
        (1, Decimal("1.00"), None),
        (2, Decimal("2.00"), None),
        (3, None, "late column"),
    ]


def test_an_empty_table_has_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    version = SmallLake(tmp_path).write(ORDERS, orders())

    frame = frame_of(spark, tmp_path, ORDERS, version)

    assert frame.dtypes == [("id", "bigint"), ("total", "decimal(10,2)")]
    assert frame.count() == 0


def test_partition_columns_come_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"_open": [True, False, None], "id": [1, 2, 3], "p": ["a b", "ü/%20", None]})
    place = tmp_path / "a lake"
    version = SmallLake(place).write("history/public.t", rows, partition_by=["_open", "p"])

    frame = frame_of(spark, place, "history/public.t", version)

    assert frame.columns == ["_open", "id", "p"]
    assert frame.orderBy("id").toArrow().to_pylist() == rows.to_pylist()


def test_a_version_that_is_gone_is_named(spark: SparkSession, tmp_path: Path) -> None:
    SmallLake(tmp_path).write(ORDERS, orders((1, "1.00")))

    with pytest.raises(LakeDamaged, match=r"mirror/public\.orders has no version 7"):
        frame_of(spark, tmp_path, ORDERS, 7)
    for file in (tmp_path / ORDERS).glob("*.parquet"):
        file.unlink()
    with pytest.raises(LakeDamaged, match="files of the lake are gone"):
        frame_of(spark, tmp_path, ORDERS, 0)


def test_tables_are_read_as_of_a_cut(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.write(ORDERS, orders((1, "1.00")))
    lake.publish()
    lake.write(ORDERS, orders((2, "2.00")))
    lake.publish()

    assert read_cut(spark, tmp_path, "orders").count() == 2
    assert read_cut(spark, tmp_path, "public.orders", lsn=0x1FF).count() == 1
    assert read_cut(spark, str(tmp_path), ORDERS, lsn="0/200").count() == 2
    with pytest.raises(SinkBehind, match="does not reach 0/201: its newest cut 2 ends at 0/200"):
        read_cut(spark, tmp_path, "orders", lsn=0x201)
    with pytest.raises(UsageError, match="table customers does not exist") as refused:
        read_cut(spark, tmp_path, "customers")
    assert refused.value.hint == "known names: public.orders"


def test_changes_lie_between_two_lsns(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    events = {"_op": ["c", "u", "d"], "_commit_lsn": [0x10, 0x100, 0x1F0], "_epoch": [1, 1, 1]}
    lake.write("archive/shop.public.orders", pa.table(events))
    lake.publish()
    lake.publish(since_lsn=0x8)

    def ops(*places: int | str) -> str:
        return "".join(sorted(row["_op"] for row in read_changes(spark, tmp_path, "orders", *places).collect()))

    assert ops() == "cdu"
    assert ops(0, 0x100) == "c"
    assert ops("0/100", "0/200") == "du"
    with pytest.raises(SinkBehind, match="does not reach 0/300"):
        ops(0, 0x300)
    with pytest.raises(UsageError, match="the archive begins at 0/8, after 0/7"):
        ops(7)


def test_a_view_is_computed_over_the_tables_of_its_cut_and_read_back(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.write(ORDERS, orders((1, "1.50"), (2, "2.50"), (3, None)))
    views = bound(lake, total="select sum(orders.total) as total, count(*) as n from public.orders")

    shown = run(spark, lake, views)
    lake.publish()

    assert shown == {"total": [{"total": Decimal("4.00"), "n": 3}]}
    assert view_at(spark, tmp_path, "total").schema["total"].dataType.simpleString() == "decimal(20,2)"
    assert view_at(spark, tmp_path, "total", 1).count() == view_at(spark, tmp_path, "total", Lsn(0x100)).count() == 1
    with pytest.raises(UsageError, match="view totals does not exist") as refused:
        view_at(spark, tmp_path, "totals", "0/100")
    assert "did you mean total?" in refused.value.hint


def test_views_over_views_read_what_this_cut_committed(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.write(ORDERS, orders((1, "1.00")))
    views = bound(
        lake, big="select id, total from orders where total > 1", n="select count(*) as n from big b join orders"
    )
    run(spark, lake, views)
    lake.publish()

    lake.write(ORDERS, orders((2, "2.00")))
    shown = run(spark, lake, views)

    assert shown["n"] == [{"n": 2}]
    assert spark.catalog.listTables() == []


def test_a_view_is_computed_only_when_something_it_reads_changed(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.write(ORDERS, orders((1, "1.00")))
    lake.write(LINES, pa.table({"id": [1]}))
    sql = {"a": "select count(*) as n from orders", "b": "select count(*) as n from lines", "c": "select n from a"}
    assert all(isinstance(found, list) for found in run(spark, lake, bound(lake, **sql)).values())

    assert run(spark, lake, bound(lake, **sql), changed=set()) == {"a": "", "b": "", "c": ""}
    shown = run(spark, lake, bound(lake, **sql), changed={ORDERS})
    assert [name for name, found in shown.items() if isinstance(found, list)] == ["a", "c"]
    shown = run(spark, lake, bound(lake, **sql | {"b": "select count(*) as m from lines"}), changed=set())
    assert shown == {"a": "", "b": [{"m": 1}], "c": ""}


def test_a_view_is_left_behind_while_a_table_it_reads_is_snapshotted(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.write(ORDERS, orders((1, "1.00")))
    lake.write(LINES, pa.table({"id": [1]}))
    views = bound(lake, a="select count(*) as n from orders", b="select n from a", c="select id from lines")

    shown = run(spark, lake, views, complete={"public.orders": "snapshotting", "public.lines": "complete"})

    assert shown == {"a": "public.orders is being snapshotted", "b": "the view a is left behind", "c": [{"id": 1}]}
    # What was left behind is computed as soon as it can be, also when nothing changes any more.
    state = ViewState(version=0, generation=1, reason="public.orders is being snapshotted", cut=1, sql_sha=views[0].sha)
    lake.views["a"] = state
    assert run(spark, lake, views, changed=set())["a"] == [{"n": 1}]


def test_a_table_that_no_cut_has_yet_leaves_the_view_behind(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    views = bind([parse_view(Path("a.sql"), "select id from orders")], [ORDERS])

    assert run(spark, lake, views) == {"a": "public.orders is not in the lake yet"}


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select id,\n  amount as x from orders", r"a\.sql, line 2, column 3: .*`amount` cannot be resolved"),
        ("select id, from orders", r"a\.sql.*"),
        ("select *, 1 as ID from orders", r"a\.sql: two columns are named 'ID'"),
        ("select null as x from orders", r"a\.sql: column 'x' has type void"),
        ("select id, total - total as x, make_interval(id) as y from orders", r"column 'y' has type interval"),
        ("select array(named_struct('interval', null)) as x from orders", r"column 'x' has type void"),
        ("select no_such_function(id) as x from orders", r"a\.sql, line 1, column 8: .*no_such_function"),
    ],
)
def test_view_that_spark_rejects_is_left_behind_with_the_position(
    spark: SparkSession, tmp_path: Path, sql: str, message: str
) -> None:
    lake = SmallLake(tmp_path)
    lake.write(ORDERS, orders((1, "1.00")))

    reason = run(spark, lake, bound(lake, a=sql))["a"]

    assert isinstance(reason, str)
    assert re.search(message, reason)
    assert "mirror_public_orders" not in reason


def test_a_value_that_does_not_fit_is_refused_and_not_shown(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.write(ORDERS, pa.table({"id": [1], "note": ["secret"]}))

    with pytest.raises(ViewRefused, match=r"a\.sql: CAST_INVALID_INPUT") as refused:
        run(spark, lake, bound(lake, a="select cast(note as int) as x from orders"))
    assert "secret" not in refused.value.message


def test_views_that_read_a_failed_one_are_left_behind_too(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.write(ORDERS, orders((1, "1.00")))
    cut = CutTables(versions=versions(lake), complete={}, previous={}, changed=set())
    steps: list[Step | Kept] = []

    def keep(step: Step | Kept) -> None:
        steps.append(step)
        if isinstance(step, Computed):
            step.left_behind()

    views = bound(lake, a="select id from orders", b="select id from a")
    run_views([spark], views, tmp_path, cut, begin=lambda _: None, keep=keep)

    assert isinstance(steps[0], Computed)
    assert isinstance(steps[1], Kept)
    assert steps[1].reason == "the view a is left behind"


def test_a_computed_view_must_be_committed(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.write(ORDERS, orders((1, "1.00")))
    cut = CutTables(versions=versions(lake), complete={}, previous={}, changed=set())
    views = bound(lake, a="select id from orders")

    with pytest.raises(InvariantError, match="view a was computed and not committed"):
        run_views([spark], views, tmp_path, cut, begin=lambda _: None, keep=lambda _: None)


def test_daily_revenue_corrects_a_day_that_was_published(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lines = {
        "order_number": pa.array([1, 1, 2], pa.int64()),
        "line": pa.array([1, 2, 1], pa.int16()),
        "quantity": pa.array([2, 1, 1], pa.int32()),
        "price": pa.array([Decimal("0.10"), Decimal("0.25"), Decimal("9.99")], pa.decimal128(10, 2)),
    }
    lake.write("mirror/shop.order_lines", pa.table(lines))

    def placed(*rows: tuple[int, datetime, str]) -> None:
        columns = list(zip(*rows, strict=True))
        moments = pa.array(columns[1], pa.timestamp("us", "UTC"))
        lake.write(
            "mirror/shop.orders",
            pa.table({"number": columns[0], "placed_at": moments, "status": columns[2]}),
            mode="overwrite",
        )

    placed((1, NOON, "new"), (2, NOON.replace(day=22, hour=0), "returned"))
    views = bind([read_view(ROOT / "cdc" / "shop" / "views" / "daily_revenue.sql")], list(lake.tables))
    first = run(spark, lake, views)["daily_revenue"]
    placed((1, NOON, "new"), (2, NOON.replace(hour=23, minute=59), "new"))
    second = run(spark, lake, views)["daily_revenue"]

    day = date(2026, 11, 21)
    assert first == [{"day": day, "orders": 1, "items": 3, "revenue": Decimal("0.45")}]
    assert second == [{"day": day, "orders": 2, "items": 4, "revenue": Decimal("10.44")}]


def test_views_in_sql_of_postgres_run(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.write(
        ORDERS,
        pa.table(
            {
                "id": pa.array([1, 2, 3], pa.int64()),
                "total": pa.array([Decimal("1.50"), Decimal("2.50"), None], pa.decimal128(10, 2)),
                "placed_at": pa.array([NOON, NOON, NOON.replace(day=22)], pa.timestamp("us", "UTC")),
                "note": ["Gift", "b", None],
            }
        ),
    )
    sql = """-- dialect: postgres
        select o.placed_at::date as "Day", count(*) filter (where note like 'G%') as gifts,
               coalesce(sum(total), 0)::numeric(20,2) as total,
               string_agg(note, ',' order by note collate "C") as notes,
               extract(year from min(placed_at)) as y, div(max(id), 2) as half
        from Orders as o where placed_at >= '2026-01-01'::timestamptz - interval '1 day'
        group by 1 order by 1"""

    assert run(spark, lake, bound(lake, a=sql))["a"] == [
        {
            "Day": date(2026, 11, 21),
            "gifts": 1,
            "total": Decimal("4.00"),
            "notes": "Gift,b",
            "y": 2026,
            "half": 1,
        },
        {
            "Day": date(2026, 11, 22),
            "gifts": 0,
            "total": Decimal("0.00"),
            "notes": None,
            "y": 2026,
            "half": 1,
        },
    ]


def test_a_time_zone_is_utc_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    moments = {
        "id": pa.array([1], pa.int64()),
        "zoned": pa.array([NOON], pa.timestamp("us", "UTC")),
        "plain": pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")),
    }
    lake.write(ORDERS, pa.table(moments))

    good = (
        "-- dialect: postgres\nselect (zoned at time zone 'utc')::text as t, plain at time zone 'UTC' as z from orders"
    )
    assert run(spark, lake, bound(lake, b=good))["b"] == [{"t": "2026-11-21 12:00:00", "z": NOON}]
    with pytest.raises(ViewRefused, match="time zone other than UTC"):
        bound(lake, c="-- dialect: postgres\nselect zoned at time zone 'Asia/Tokyo' as t from orders")


def test_an_input_with_another_type_than_the_translation_relies_on_leaves_the_view_behind(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = SmallLake(tmp_path)
    lake.write(ORDERS, orders((1, "1.50")))
    text = "-- dialect: postgres\nselect total + 1 as more from orders"
    types = {ORDERS: {"id": INT8, "total": numeric(12, 3)}}

    found = run(spark, lake, bind([parse_view(Path("a.sql"), text)], lake.tables, types))["a"]

    assert "orders.total is decimal(10,2), not decimal(12,3)" in found
