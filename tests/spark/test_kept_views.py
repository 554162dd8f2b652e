"""Views kept by their plans on Spark: equal to their query at every cut, computed once, by the reported plan."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from msgspec import structs
from pyspark.sql.functions import expr

from sinks.warehouse import frame_of
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.committer import Txn
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import Manifest
from sinks.warehouse.planner.plan import plan_view
from sinks.warehouse.read.lake_reader import Lake
from sinks.warehouse.read.view_check import ViewReport, check_views
from sinks.warehouse.views.definition import parse_view
from sinks.warehouse.views.same_query import same_query
from sinks.warehouse.views.version_diff import Versions
from tests.fixtures.views.kept_views import KeptLake
from tests.property.viewshapes import BY_KEYS
from tests.property.viewworld import COLUMNS, KEYS, Shop, relations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ARROW: Final = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string()}
TABLES: Final = ("customers", "orders", "lines", "follows")
SCHEMAS: Final = {name: pa.schema([(one, _ARROW[kind]) for one, kind in COLUMNS[name].items()]) for name in TABLES}

VIEWS: Final = {
    "document": "select o.id, o.status, c.region, sort_array(collect_list(struct(l.id, l.sku, l.qty)) "
    "filter (where l.id is not null)) as items from orders o left join lines l on l.order_id = o.id "
    "left join customers c on c.id = o.customer_id group by o.id, o.status, c.region",
    "regions": "select c.region, o.status, count(*) as n, sum(o.cents) as cents from orders o "
    "left join customers c on o.customer_id = c.id group by c.region, o.status",
    "best": "select customer_id, id, cents, r from (select o.*, row_number() over (partition by customer_id "
    "order by cents desc, id) as r from orders o) x where r <= 2",
    "without": "select c.id, c.region from customers c where not exists "
    "(select 1 from orders o where o.customer_id = c.id and o.status = 'paid')",
    "pairs": "select o.id as oid, c.id as cid, o.status from orders o full join customers c on o.customer_id = c.id",
    "friends": "select a.follower, b.followee, count(*) as n from follows a join follows b "
    "on a.followee = b.follower group by a.follower, b.followee",
    "sketched": "select o.customer_id, hll_sketch_estimate(hll_sketch_agg(l.sku)) as skus, "
    "approx_percentile(l.qty, 0.5) as middle from orders o join lines l on l.order_id = o.id group by o.customer_id",
    "above": "select d.id, d.items, b.r from document d left join best b on b.id = d.id",
    "counted": "select region, count(*) as n, sum(n) as orders from regions group by region",
}


def lake_of(spark: SparkSession, folder: Path, views: dict[str, str]) -> KeptLake:
    return KeptLake(spark, folder, views, SCHEMAS, {name: KEYS[name] for name in TABLES})


def changes(before: list[dict[str, Any]], after: list[dict[str, Any]], key: tuple[str, ...]) -> tuple[Any, Any]:
    """Return what to add and what to remove to get from one to the other."""
    places = {tuple(row[one] for one in key) for row in after}
    return [row for row in after if row not in before], [
        row for row in before if tuple(row[one] for one in key) not in places
    ]


def bag(rows: pa.Table) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows.to_pylist())


def assert_right(lake: KeptLake) -> None:
    for view in lake.texts:
        assert bag(lake.rows(view)) == bag(lake.recomputed(view)), view


def plans(manifest: Manifest) -> dict[str, str]:
    return {name: state.plan.plan for name, state in manifest.views.items() if state.plan is not None}


def test_every_view_is_what_its_query_gives_after_each_cut(spark: SparkSession, tmp_path: Path) -> None:
    lake, shop = lake_of(spark, tmp_path, VIEWS), Shop(7)
    lake.cut({name: (shop.rows[name], []) for name in TABLES})
    used: Counter[tuple[str, str]] = Counter()

    for _ in range(3):
        cut = shop.cut()
        manifest = lake.cut(
            {name: changes(*cut[name], KEYS[name]) for name in TABLES if cut[name][0] != cut[name][1]},
            **dict.fromkeys(VIEWS, "affected"),
        )
        assert_right(lake)
        used.update((name, plan) for name, plan in plans(manifest).items() if manifest.views[name].cut == manifest.cut)

    # Nothing of this shop's cuts concerns `friends`.
    assert {name for name, plan in used if plan == "affected"} == set(VIEWS) - {"friends"}
    assert {plan for _, plan in used} == {"affected"}
    assert spark.catalog.listTables() == []


def test_rows_that_are_many_are_read_by_spark_and_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.warehouse.views.inputs.stored_rows", lambda *_, **__: None)
    few = {name: VIEWS[name] for name in ("document", "regions", "best", "pairs", "friends")}
    lake, shop = lake_of(spark, tmp_path, few), Shop(11)
    lake.cut({name: (shop.rows[name], []) for name in TABLES})
    cut = shop.cut()

    manifest = lake.cut(
        {name: changes(*cut[name], KEYS[name]) for name in TABLES if cut[name][0] != cut[name][1]},
        **dict.fromkeys(few, "affected"),
    )

    assert_right(lake)
    assert "affected" in plans(manifest).values(), "the test is weaker than it says"


def test_what_a_cut_replaced_of_a_published_view_is_remembered_and_says_what_differs(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In Spark's types and order. A view without a topic, or one that was recomputed, needs nothing in memory."""
    views = {"sent": f"-- key: id\n-- publish: topic\n{VIEWS['document']}", "kept": VIEWS["document"]}
    lake, shop = lake_of(spark, tmp_path, views), Shop(11)
    lake.cut({name: (shop.rows[name], []) for name in TABLES})
    assert lake.keeper.moved == {}
    for plan, remembered in (("affected", {"sent"}), ("recompute", set())):
        cut = shop.cut()
        lake.cut(
            {name: changes(*cut[name], KEYS[name]) for name in TABLES if cut[name][0] != cut[name][1]},
            **dict.fromkeys(views, plan),
        )

        assert lake.keeper.moved.keys() == remembered
        for moved in lake.keeper.moved.values():
            versions = Versions(Location.of(tmp_path), "shop", "sent", ("id",), moved.old, moved.new)
            found = versions.among(moved)
            assert found
            assert sorted(found, key=str) == sorted(versions.differences(), key=str)


def test_view_over_one_whose_columns_changed_is_recomputed_and_says_why(spark: SparkSession, tmp_path: Path) -> None:
    """Values of another type may look equal to the previous ones."""
    outer = "select status, count(id) as n from inner_one group by status"
    lake, shop = lake_of(spark, tmp_path, {"inner_one": "select id, status from orders", "outer": outer}), Shop(5)
    lake.cut({name: (shop.rows[name], []) for name in TABLES})
    lake.parsed[0] = parse_view(Path("inner_one.sql"), "select cast(id as string) as id, status from orders")
    lake.restart()

    manifest = lake.cut({"orders": ([], shop.rows["orders"][:1])}, inner_one="recompute", outer="affected")

    record = manifest.views["outer"].plan
    assert record is not None
    assert (record.plan, record.reason) == ("recompute", "columns of the view inner_one changed")


def test_rows_of_which_no_column_is_named_count(spark: SparkSession, tmp_path: Path) -> None:
    lake, shop = lake_of(spark, tmp_path, {"each": "select c.region from customers c cross join follows f"}), Shop(5)
    lake.cut({name: (shop.rows[name], []) for name in TABLES})
    before = lake.rows("each").num_rows
    gone = shop.rows["follows"][:2]

    manifest = lake.cut({"follows": ([], gone)}, each="affected")

    assert plans(manifest) == {"each": "affected"}
    assert lake.rows("each").num_rows < before
    assert_right(lake)


OVER: Final = {
    "regions": "select c.region, count(*) as n, sum(o.cents) as cents, avg(o.cents) as middle from orders o "
    "join customers c on o.customer_id = c.id group by c.region",
    "above": "select n, count(*) as regions from regions group by n",
}


class DiesBehind:
    """A committer that is killed right after the first commit to a table."""

    def __init__(self, inner: DeltaRs, table: str) -> None:
        self._inner = inner
        self._table = table

    def replace_keys(self, table: str, *given: Any, **named: Any) -> int:
        version = self._inner.replace_keys(table, *given, **named)
        if table == self._table:
            raise KilledError
        return version

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class KilledError(Exception):
    """The process is gone."""


@pytest.mark.parametrize("second", ["affected", "recompute", "delta"])
def test_view_is_right_whatever_the_attempt_after_a_kill_does(second: str, spark: SparkSession, tmp_path: Path) -> None:
    """`delta` is a plan that earlier releases had: their interrupted cuts may request it."""
    lake, shop = lake_of(spark, tmp_path, OVER), Shop(3)
    by_keys = dict.fromkeys(OVER, "affected")
    lake.cut({name: (shop.rows[name], []) for name in TABLES}, **by_keys)
    orders = sorted(shop.rows["orders"], key=lambda row: str(row["id"]))
    steps: list[dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]]] = [
        {"orders": ([{**row, "cents": 5, "customer_id": 1}], [])} for row in orders[:3]
    ]
    steps[1]["customers"] = ([{"id": 1, "region": None, "tier": 1}], [])

    first = lake.cut(steps[0], **by_keys)
    assert_right(lake)
    lake.committer = DiesBehind(DeltaRs(tmp_path), layout.view("regions"))  # type: ignore[assignment]
    with pytest.raises(KilledError):
        lake.cut(steps[1], **by_keys)
    lake.restart()
    commit = lake.begin()
    lake.plans = dict.fromkeys(OVER, second)
    for name, (put, gone) in steps[1].items():
        lake.write(commit, name, put, gone)
    repeated = lake.finish(commit)
    assert_right(lake)
    last = lake.cut(steps[2], **by_keys)
    assert_right(lake)

    reports = check_views(spark, Lake(tmp_path), last, lake.parsed, [])
    assert [(report.name, report.ok) for report in reports] == [("above", True), ("regions", True)]
    older = structs.replace(last.views["regions"], version=first.views["regions"].version)
    wrong = structs.replace(last, views={**last.views, "regions": older})
    (report,) = check_views(spark, Lake(tmp_path), wrong, lake.parsed, ["regions"])
    assert not report.ok
    assert report.missing > 0
    assert report.extra > 0
    assert plans(first)["regions"] == plans(last)["regions"] == "affected"
    assert plans(repeated)["regions"] == ("affected" if second == "affected" else "recompute")
    record = last.views["regions"].plan
    assert record is not None
    assert "delta" not in record.runs


def test_check_distinguishes_inexact_results_from_wrong_ones(spark: SparkSession, tmp_path: Path) -> None:
    """A tenth added a thousand times, in any order; and the random numbers of KLL."""
    kll = "kll_sketch_get_quantile_bigint(kll_sketch_agg_bigint(n), 0.5d)"
    lake = KeptLake(
        spark,
        tmp_path,
        {
            "quantiles": f"select g, count(*) as n, {kll} as middle from facts group by g",
            "above": "select g, middle as m from quantiles",
            "sums": "select g, sum(x) as x, avg(x) as y from facts group by g",
            "exact": "select g, sum(n) as n from facts group by g",
        },
        {"facts": pa.schema([("id", pa.int64()), ("g", pa.int64()), ("n", pa.int64()), ("x", pa.float64())])},
        {"facts": ("id",)},
    )
    rows = [{"id": n, "g": n % 20, "n": n * 7919 % 10_007, "x": 0.1 * (n % 97) * 10 ** (n % 7)} for n in range(10_000)]
    lake.cut({"facts": (rows, [])})
    manifest = lake.cut({"facts": ([{**rows[0], "x": 0.2, "n": 1}], [])}, **dict.fromkeys(lake.texts, "affected"))
    assert set(plans(manifest).values()) == {"affected"}

    def report(view: str) -> ViewReport:
        (found,) = check_views(spark, Lake(tmp_path), manifest, lake.parsed, [view])
        return found

    def altered(view: str, **values: str) -> None:
        """Change one row of the view's table; unchanged rows are computed in another order."""
        table, state = Lake(tmp_path).view(view, manifest)
        frame = frame_of(spark, Location.of(tmp_path), table, state.version)
        columns = [expr(values.get(name, name)).alias(name) for name in frame.columns]
        changed = frame.select(*columns).toArrow()
        version = lake.committer.overwrite(
            table, changed, base=state.version, txn=Txn("test", manifest.cut + state.version)
        )
        manifest.views[view] = structs.replace(state, version=version)

    assert all(report(view).ok for view in lake.texts)
    altered("sums", x="x * (1 + 1e-12)", y="y * (1 - 1e-12)")
    assert (report("sums").near, report("sums").ok) == (20, True)
    altered("sums", y="if(g = 1, y * (1 + 1e-6), y)")
    wrong = report("sums")
    assert (wrong.near, wrong.missing, wrong.extra, wrong.ok) == (19, 1, 1, False)
    altered("quantiles", middle="middle + 5")
    altered("above", m="m + 7")
    assert (report("quantiles").near, report("quantiles").ok) == (20, True)
    assert (report("above").near, report("above").ok) == (20, True)
    altered("quantiles", n="if(g = 1, n + 1, n)")
    wrong = report("quantiles")
    assert (wrong.near, wrong.missing, wrong.extra) == (19, 1, 1)
    altered("exact", n="n + 1")
    wrong = report("exact")
    assert (wrong.near, wrong.missing, wrong.extra) == (0, 20, 20)


def test_sketches_that_are_compared_exactly_are_the_same_in_any_order(spark: SparkSession) -> None:
    rows = spark.range(20_000).withColumn("v", expr("xxhash64(id)"))
    estimates = [
        rows.repartition(parts)
        .sortWithinPartitions(expr(f"hash(v, {parts})"))
        .selectExpr("theta_sketch_estimate(theta_sketch_agg(v))", "approx_count_distinct(v)")
        .collect()
        for parts in (1, 2, 5, 8)
    ]

    assert all(one == estimates[0] for one in estimates)
    assert estimates[0][0][0] != 20_000, "a sketch that is not full says nothing"


SAME: Final = ("comma", "exists_or", "top_k_joined", "window_of_groups", "full", "with", "union_joined", "document")
# Spark adds conditions that the columns are not null, and orders three and more by numbers of columns.
CONDITIONS: Final = """with a as (
    select status, cents, sum(cents) over (partition by status order by id) as some,
        sum(cents) over (partition by status) as whole from orders
) select status, min(cents) as least from a where some >= 0.95 * whole group by status"""
CONDITIONS_TURNED: Final = """select w.status as status, min(w.cents) as least from (
    select v.status as status, v.cents as cents, sum(v.cents) over (partition by v.status order by v.id) as some,
        sum(v.cents) over (partition by v.status) as whole from orders as v
) as w where w.some >= 0.95 * w.whole group by w.status"""
OTHERS: Final = (
    ("select id, cents + 1 as x from orders", "select id, cents - 1 as x from orders"),
    ("select id from orders where cents > 1", "select id from orders where cents > 2"),
    ("select id, cast(cents as bigint) as x from orders", "select id, cents as x from orders"),
    (
        "select id, rank() over (partition by status order by id) as r from orders",
        "select id, rank() over (partition by status order by id desc) as r from orders",
    ),
    (
        "select o.id from orders o left join customers c on o.customer_id = c.id where c.tier = 1 or c.id is null",
        "select o.id from orders o join customers c on o.customer_id = c.id where c.tier = 1 or c.id is null",
    ),
)


def test_spark_tells_whether_the_planner_reads_a_query_as_it_does(spark: SparkSession, tmp_path: Path) -> None:
    for name, columns in COLUMNS.items():
        place = str(tmp_path / name)
        spark.createDataFrame([], ", ".join(f"{one} {kind}" for one, kind in columns.items())).write.parquet(place)
        spark.read.parquet(place).createOrReplaceTempView(name)

    for shape in SAME:
        whole = plan_view(shape, BY_KEYS[shape], relations()).whole_sql()
        assert same_query(spark.sql(BY_KEYS[shape]), spark.sql(whole)), shape
    assert same_query(spark.sql(CONDITIONS), spark.sql(CONDITIONS_TURNED))
    for one, other in OTHERS:
        assert not same_query(spark.sql(one), spark.sql(other)), one
    for name in COLUMNS:
        spark.catalog.dropTempView(name)


def test_an_update_of_columns_that_a_view_does_not_read_leaves_its_version(spark: SparkSession, tmp_path: Path) -> None:
    views = {
        "paid": "select customer_id, count(*) as n from orders where status = 'paid' group by customer_id",
        "money": "select sum(cents) as cents from orders",
        "whole": "select * from orders",
    }
    lake = KeptLake(spark, tmp_path, views, SCHEMAS, {"orders": KEYS["orders"]})
    first = {"id": 1, "customer_id": 7, "status": "paid", "cents": 5}
    moved = []
    for put, gone in (
        ([first, {**first, "id": 2}], []),
        ([{**first, "cents": 6}], []),
        ([{**first, "cents": 6, "status": "open"}], []),
        ([{**first, "id": 3}], []),
        ([], [{**first, "id": 2}]),
    ):
        manifest = lake.cut({"orders": (put, gone)})
        assert_right(lake)
        moved.append({name for name, state in manifest.views.items() if state.cut == manifest.cut})

    assert moved == [{*views}, {"money", "whole"}, {"paid", "whole"}, {*views}, {*views}]
