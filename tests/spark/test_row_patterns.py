"""Views with MATCH_RECOGNIZE have the rows of a naive search, recomputed and kept by keys."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pytest

from sinks.warehouse.patterns.task import Task, matching
from sinks.warehouse.read.data_frames import read_sql
from sinks.warehouse.read.lake_reader import Lake
from sinks.warehouse.read.planning_report import planned
from sinks.warehouse.read.view_check import check_views
from sinks.warehouse.views import pattern_frames
from tests.fixtures.views.kept_views import KeptLake
from tests.property.pattern_oracle import Meets, Tree, matches
from tests.property.pattern_oracle import Path as Way
from tests.tidy.tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows: TypeAlias = "list[dict[str, Any]]"

ZERO: Final = datetime(2026, 1, 1)  # noqa: DTZ001 - a column without a time zone
SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("the `user", pa.int32()),
        ("At", pa.timestamp("us")),
        ("kind", pa.string()),
        ("am.ount", pa.int32()),
    ]
)
USER: Final = "the `user"
AMOUNT: Final = "am.ount"


def _v(name: str) -> Tree:
    return ("v", name)


def _paid(rows: Rows) -> Meets:
    return lambda start, path: bool(rows[start + len(path) - 1]["kind"] == path[-1].lower())


def _paid_rows(rows: Rows, start: int, path: Way, number: int) -> Iterable[tuple[Any, ...]]:
    own = rows[start : start + len(path)]
    amounts = [row[AMOUNT] for row, name in zip(own, path, strict=True) if name == "F" and row[AMOUNT] is not None]
    least = min(amounts, default=None)
    yield rows[start][USER], len(path), rows[start]["At"], sum(amounts) if amounts else None, least, number


def _falls(rows: Rows) -> Meets:
    def meets(start: int, path: Way) -> bool:
        at = start + len(path) - 1
        here, first = rows[at][AMOUNT], rows[start][AMOUNT]
        if path[-1] == "B":
            before = rows[at - 1][AMOUNT] if at else None
            return here is not None and before is not None and here < before
        return path[-1] == "A" or (here is not None and first is not None and here > first)

    return meets


def _falls_rows(rows: Rows, start: int, path: Way, number: int) -> Iterable[tuple[Any, ...]]:
    for index, name in enumerate(path):
        row = rows[start + index]
        running = path[: index + 1].count("B")
        yield row[USER], row["id"], row[AMOUNT], name, number, running, path.count("B")


def _soon(rows: Rows) -> Meets:
    def meets(start: int, path: Way) -> bool:
        first, row = rows[start], rows[start + len(path) - 1]
        if first["At"] is None or row["At"] is None or row["At"] > first["At"] + timedelta(seconds=10):
            return False
        known = [one[AMOUNT] for one in rows[start : start + len(path)] if one[AMOUNT] is not None]
        return bool({"A": row["kind"] == "f", "O": True, "Z": known and sum(known) > 4}[path[-1]])

    return meets


def _soon_rows(rows: Rows, start: int, path: Way, number: int) -> Iterable[tuple[Any, ...]]:
    behind = start + len(path)
    following = rows[behind]["id"] if behind < len(rows) else None
    other = next((rows[start + i]["id"] for i, name in enumerate(path) if name == "O"), None)
    yield rows[start][USER], rows[start]["id"], path[-1], other, following, len(path) * 2, number


SHAPES: Final[dict[str, tuple[str, Tree, Callable[[Rows], Meets], tuple[str, str], Any]]] = {
    "paid": (
        """select m.*, m.n + 1 > n as t from events as e match_recognize (
               partition by `the ``user` order by At
               measures count(*) as n, first(F.at) as `Began "at"`, sum(F.`am.ount`) as total,
                   min(f.`am.ount`) as least, match_number() as number
               pattern (F{2,3} S | F S F)
               define F as kind = 'f', S as S.kind = 's') as m where n > 0""",
        ("or", ("seq", ("rep", _v("F"), 2, 3, False), _v("S")), ("seq", _v("F"), _v("S"), _v("F"))),
        _paid,
        ("past", ""),
        _paid_rows,
    ),
    "falls": (
        """select `the ``user`, id, `am.ount`, c, m, running, whole from events match_recognize (
               partition by `the ``user` order by at nulls last, id
               measures classifier() as c, match_number() as m, count(B.*) as running, final count(B.*) as whole
               all rows per match after match skip to next row
               pattern (A B+ C?)
               define B as `am.ount` < prev(`am.ount`), C as `am.ount` > first(A.`am.ount`))""",
        ("seq", _v("A"), ("rep", _v("B"), 1, None, False), ("rep", _v("C"), 0, 1, False)),
        _falls,
        ("next", ""),
        _falls_rows,
    ),
    "soon": (
        """select * from mirror.public.events match_recognize (
               partition by `the ``user` order by at
               measures A.id as id, classifier() as c, first(O.id) as other, next(last(id)) as following,
                   count(*) * 2 as twice, match_number() as number
               after match skip past last row
               pattern (A O*? (Z | $)) within interval '10' second
               define A as kind = 'f', Z as sum(`am.ount`) > 4)""",
        ("seq", _v("A"), ("rep", _v("O"), 0, None, True), ("or", _v("Z"), ("$",))),
        _soon,
        ("past", ""),
        _soon_rows,
    ),
}


def expected(name: str, rows: Iterable[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """The rows of a view, by the naive search."""
    _, tree, meets, skip, shown = SHAPES[name]
    nulls_last = name == "falls"
    found: Counter[tuple[Any, ...]] = Counter()
    apart: dict[Any, Rows] = defaultdict(list)
    for row in rows:
        apart[row[USER]].append(row)
    for own in apart.values():
        own.sort(key=lambda row: ((row["At"] is None) == nulls_last, row["At"] or ZERO, row["id"]))
        for number, (start, path) in enumerate(matches(tree, len(own), meets(own), skip), 1):
            found.update(shown(own, start, path, number))
    return found


def event(chance: random.Random, number: int) -> dict[str, Any]:
    """A random row; many share their time."""
    seconds = chance.choice([None, *range(40)])
    return {
        "id": number,
        USER: chance.choice([None, 1, 2, 3, 4, 5, 6, 7]),
        "At": None if seconds is None else ZERO + timedelta(seconds=seconds),
        "kind": chance.choice(["f", "f", "s", None]),
        AMOUNT: chance.choice([None, 0, 1, 2, 3]),
    }


def test_views_have_the_rows_of_a_naive_search(spark: SparkSession, tmp_path: Path) -> None:
    """Recomputed, and kept by keys after changes, deletes, and rows that move to another partition."""
    chance = random.Random(5)
    views = {name: sql for name, (sql, *_) in SHAPES.items()}
    views["users"] = "select `the ``user` as u, count(*) as n, sum(n) as rows from paid group by 1"
    views["direct"] = SHAPES["paid"][0].replace("select m.*, m.n + 1 > n as t", "select `the ``user` as u, sum(n) as s")
    views["direct"] += " group by 1"
    spark = spark.newSession()
    lake = KeptLake(spark, tmp_path, views, {"events": SCHEMA}, {"events": ["id"]})
    rows = {number: event(chance, number) for number in range(150)}
    lake.cut({"events": (list(rows.values()), [])})
    check(lake, rows)
    for _ in range(3):
        put = {number: event(chance, number) for number in chance.choices(range(170), k=4)}
        gone = [rows.pop(key) for key in chance.sample(sorted(rows), 2) if key not in put]
        rows |= put
        manifest = lake.cut({"events": (list(put.values()), gone)}, **dict.fromkeys(views, "affected"))
        for name in views:
            record = manifest.views[name].plan
            assert record is not None
            if not lake.in_frames:
                assert (record.plan, record.refused) == ("affected", ""), (name, record)
        check(lake, rows)


def check(lake: KeptLake, rows: dict[int, dict[str, Any]]) -> None:
    for name in SHAPES:
        have = Counter(tuple(row.values()) for row in lake.rows(name).to_pylist())
        if name == "paid":
            have = Counter({values[:-1]: count for values, count in have.items()})
        assert have == expected(name, [dict(row) for row in rows.values()]), name
        assert have
    paid = expected("paid", [dict(row) for row in rows.values()])
    sums: Counter[Any] = Counter()
    for values in paid.elements():
        sums[values[0]] += values[1]
    assert {row["u"]: row["s"] for row in lake.rows("direct").to_pylist()} == dict(sums)
    assert {row["u"]: row["rows"] for row in lake.rows("users").to_pylist()} == dict(sums)


def test_only_changed_partitions_are_matched(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice: before the change, and after it."""
    seen = tmp_path / "partitions"

    def counting(what: Task) -> Callable[[pa.Array], pa.Array]:
        plain, path = matching(what), str(seen)

        def match(partitions: pa.Array) -> pa.Array:
            with open(path, "a") as file:  # noqa: PTH123 - in another process
                file.write(f"{len(partitions)}\n")
            return plain(partitions)

        return match

    monkeypatch.setattr(pattern_frames, "matching", counting)
    lake = KeptLake(
        spark.newSession(), tmp_path / "lake", {"falls": SHAPES["falls"][0]}, {"events": SCHEMA}, {"events": ["id"]}
    )
    rows = [
        {"id": number, USER: number // 5, "At": ZERO + timedelta(seconds=number), "kind": "f", AMOUNT: number % 3}
        for number in range(1_000)
    ]
    lake.cut({"events": (rows, [])})
    assert sum(map(int, seen.read_text().split())) == 200
    seen.unlink()

    changed = [{**row, AMOUNT: 5} for row in rows[7:12]]
    manifest = lake.cut({"events": (changed, [])}, falls="affected")

    record = manifest.views["falls"].plan
    assert record is not None
    assert record.plan == ("recompute" if lake.in_frames else "affected")
    assert sum(map(int, seen.read_text().split())) == (200 if lake.in_frames else 2 * 2)
    everything = {row["id"]: row for row in [*rows, *changed]}
    assert Counter(tuple(row.values()) for row in lake.rows("falls").to_pylist()) == expected(
        "falls", everything.values()
    )


CLAUSE: Final = "from events match_recognize (partition by id order by at"
STOPPED: Final = {
    "measures count(*) as n after match skip to first A pattern (A+))": (
        "MATCH_RECOGNIZE: a partition by id with 1 rows: AFTER MATCH SKIP TO FIRST A: that is the first row"
    ),
    "measures count(*) as n after match skip to last B pattern (A | B))": "a match has no row of B",
    "measures count(*) as n pattern (A) define A as A.kind)": "the condition of A is of type string",
    "measures count(*) as n pattern (A B) define B as B.kind > count(A.*))": "B compares string with bigint",
    "measures sum(kind) as n pattern (A))": "sum() of a value of type string",
    "measures nothing as n pattern (A))": "nothing",
    "measures count(*) as kind all rows per match pattern (A))": "'kind' has the name of a column",
    "measures count(*) as n pattern (A B) define B as kind is distinct from A.kind and `am.ount` < 1.5e0)": "",
    "measures count(*) as n pattern (A B) within interval '1' month define B as kind = 'b')": "",
}


@pytest.mark.parametrize("clause", STOPPED)
def test_a_clause_that_does_not_fit_stops_its_view_by_an_error(
    clause: str, spark: SparkSession, tmp_path: Path
) -> None:
    column = "kind" if "count(*) as kind" in clause else "n"
    views = {"v": f"select {column} {CLAUSE} {clause}"}
    lake = KeptLake(spark.newSession(), tmp_path, views, {"events": SCHEMA}, {"events": ["id"]})

    manifest = lake.cut({"events": ([event(random.Random(1), number) for number in range(3)], [])})

    reason = manifest.views["v"].reason if "v" in manifest.views else manifest.unbuilt["v"].reason
    assert STOPPED[clause] in reason
    assert bool(STOPPED[clause]) == bool(reason), reason


def _at(minute: int) -> datetime:
    return ZERO + timedelta(minutes=minute)


Steps: TypeAlias = "list[tuple[int, int, str]]"
PAYMENTS: Final[Steps] = [
    *((1, 0, "failed"), (1, 1, "failed"), (1, 2, "failed"), (1, 3, "paid")),
    *((2, 0, "failed"), (2, 1, "failed"), (2, 2, "paid")),
    *((3, minute, "failed") for minute in range(5)),
]
CARTS: Final[Steps] = [
    *((1, 0, "add"), (1, 5, "add"), (1, 9, "checkout")),
    *((2, 0, "add"), (2, 5, "add")),
    *((3, 0, "add"), (3, 70, "checkout")),
]
ORDERS: Final[Steps] = [
    *((1, 0, "packed"), (1, 30, "shipped")),
    *((2, 0, "packed"), (2, 10, "noted"), (2, 31, "shipped")),
    *((3, 0, "packed"), (3, 10, "noted")),
]
GUIDE: Final[dict[str, tuple[str, str, Steps, list[tuple[Any, ...]]]]] = {
    "payments": ("customer_id", "status", PAYMENTS, [(1, 3, _at(0), _at(3), 3)]),
    "cart_events": ("cart_id", "kind", CARTS, [(2, _at(5), 2), (3, _at(0), 1)]),
    "order_events": ("order_id", "kind", ORDERS, [(2, _at(0)), (3, _at(0))]),
}


def test_examples_of_the_guide(spark: SparkSession, tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "howto" / "views-patterns.md").read_text(encoding="utf-8")
    texts = re.findall(r"^```sql\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    views = dict(zip(("failed", "abandoned", "late"), texts, strict=True))
    schemas, put = {}, {}
    for table, (owner, kind, rows, _) in GUIDE.items():
        named = {"id": pa.int64(), owner: pa.int64(), "at": pa.timestamp("us"), kind: pa.string()}
        schemas[table] = pa.schema([*named.items(), ("amount", pa.int64())])
        put[table] = [
            {"id": number, owner: whose, "at": _at(minute), kind: what, "amount": number}
            for number, (whose, minute, what) in enumerate(rows)
        ]
    lake = KeptLake(spark.newSession(), tmp_path, views, schemas, {table: ["id"] for table in GUIDE})

    manifest = lake.cut({table: (rows, []) for table, rows in put.items()})

    for view, (table, (owner, _, _, want)) in zip(views, GUIDE.items(), strict=True):
        assert manifest.views[view].reason == ""
        assert sorted(tuple(row.values()) for row in lake.rows(view).to_pylist()) == want
        assert sorted(map(tuple, read_sql(lake.spark, tmp_path, views[view]).collect())) == want
        plan = planned(Lake(tmp_path), manifest, lake.parsed, view).document()
        assert (plan["reads"], plan["key"]) == ([f"public.{table} match_recognize"], [owner])
    for report in check_views(lake.spark, Lake(tmp_path), manifest, lake.parsed, list(views)):
        assert (report.problem, report.missing, report.extra) == ("", 0, 0)
    assert not [one.name for one in lake.spark.catalog.listTables() if one.isTemporary]
