"""A small shop whose tables change cut by cut in DuckDB, with views that are updated by their plans.

Tables are few rows over few values, with nulls, so that keys move, partners come and go, and groups become empty.
`clicks` has no key, and rows of it are there twice. Images hold more than what changed now and then, as they may.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import duckdb
import pyarrow as pa
import sqlglot

from sinks.warehouse.planner.plan import ViewPlan, plan_view
from sinks.warehouse.planner.relations import WEIGHT, Relation, Unplannable, images, old
from sinks.warehouse.planner.top_rows import BEFORE, LAST, ORIGIN
from tests.property.obligations import ONLY_CANDIDATES, VIEW_IS_QUERY, demand

KEYS: Final[dict[str, tuple[str, ...]]] = {
    "customers": ("id",),
    "orders": ("id",),
    "lines": ("id",),
    "follows": ("follower", "followee"),
    "clicks": (),
}
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "customers": {"id": "bigint", "region": "string", "tier": "int"},
    "orders": {"id": "bigint", "customer_id": "bigint", "status": "string", "cents": "int"},
    "lines": {"id": "bigint", "order_id": "bigint", "sku": "string", "qty": "int"},
    "follows": {"follower": "bigint", "followee": "bigint", "since": "int"},
    "clicks": {"customer_id": "bigint", "page": "string"},
}
_ARROW: Final = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string()}

Row = dict[str, Any]


def relations() -> dict[str, Relation]:
    """The shop's tables as a planner knows them. Some are known to be small, so that they are looked up for keys."""
    small = dict.fromkeys(("customers", "orders"), 10)
    return {name: Relation(name, columns, KEYS[name], small.get(name, 0)) for name, columns in COLUMNS.items()}


@cache
def in_duckdb(sql: str) -> str:
    """The same query for DuckDB."""
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0]


class Shop:
    """The tables. `cut` changes some of them and says what became of each row."""

    def __init__(self, seed: int, size: int = 9) -> None:
        self.random = random.Random(seed)
        self.size = size
        self.rows: dict[str, list[Row]] = {name: [] for name in COLUMNS}
        for table in COLUMNS:
            for _ in range(self.random.randrange(2 * size)):
                self._put(table)

    def cut(self) -> dict[str, tuple[list[Row], list[Row]]]:
        """Table -> its rows before and after, of a few changes; of none at all now and then."""
        before = {name: list(rows) for name, rows in self.rows.items()}
        for table in self.random.sample(list(COLUMNS), self.random.choice([0, 1, 1, 1, 2, 5])):
            for _ in range(self.random.choice([1, 1, 2, 6])):
                self._change(table)
        return {name: (before[name], self.rows[name]) for name in COLUMNS}

    def _change(self, table: str) -> None:
        rows = self.rows[table]
        if rows and self.random.random() < 0.35:
            rows.pop(self.random.randrange(len(rows)))
        else:
            self._put(table)

    def _put(self, table: str) -> None:
        new, key = self._row(table), KEYS[table]
        if key:
            place = [new[column] for column in key]
            self.rows[table] = [row for row in self.rows[table] if [row[column] for column in key] != place]
        self.rows[table].append(new)

    def _row(self, table: str) -> Row:
        pick, size = self.random, self.size

        def maybe(value: Any) -> Any:
            return None if pick.random() < 0.15 else value

        if table == "customers":
            return {"id": pick.randrange(size), "region": maybe(pick.choice("NS")), "tier": maybe(pick.randrange(3))}
        if table == "orders":
            status = pick.choice(["new", "paid"])
            row = {"id": pick.randrange(2 * size), "customer_id": maybe(pick.randrange(size)), "status": status}
            return {**row, "cents": maybe(pick.randrange(6))}
        if table == "lines":
            row = {"id": pick.randrange(3 * size), "order_id": maybe(pick.randrange(2 * size))}
            return {**row, "sku": maybe(pick.choice("ab")), "qty": maybe(pick.randrange(4))}
        if table == "follows":
            return {"follower": pick.randrange(size), "followee": pick.randrange(size), "since": pick.randrange(3)}
        return {"customer_id": maybe(pick.randrange(size)), "page": maybe(pick.choice("xy"))}


class Kept:
    """Views of one shop, kept by their plans, cut after cut; `check` compares them with their queries.

    Args:
        seed: of the shop.
        views: name -> SQL, each behind those it reads.
        without_old_images: a mistake, for tests that must see it.
    """

    def __init__(self, seed: int, views: Mapping[str, str], *, without_old_images: bool = False) -> None:
        self.shop = Shop(seed)
        self.views = dict(views)
        self.recomputed: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()
        self._without_old = without_old_images
        self._db = duckdb.connect(config={"threads": 1})
        self._known = relations()
        self.plans: dict[str, ViewPlan] = {}
        self._schemas: dict[str, pa.Schema] = {
            name: pa.schema([(column, _ARROW[kind]) for column, kind in columns.items()])
            for name, columns in COLUMNS.items()
        }
        self._rows: dict[str, list[Row]] = {}
        for name in COLUMNS:
            self._register(name, [], self.shop.rows[name])
        for name, sql in self.views.items():
            self._add(name, sql)

    def step(self) -> None:
        """One cut: tables, then the views in order."""
        changed = set()
        for name, (before, after) in self.shop.cut().items():
            if self._register(name, before, after):
                changed.add(name)
        for name, sql in self.views.items():
            before = self._rows[name]
            after = self._kept(name, sql, changed & set(self.plans[name].inputs))
            self._rows[name] = after
            if any(name in plan.inputs for plan in self.plans.values()) and self._register(name, before, after):
                changed.add(name)

    def check(self) -> None:
        """Every view is what its query gives now."""
        for name, sql in self.views.items():
            wanted = _bag(self._run(sql).to_pylist())
            demand(VIEW_IS_QUERY, _bag(self._rows[name]) == wanted, f"{name}: {self.views[name]}")

    def _add(self, name: str, sql: str) -> None:
        rows = self._run(sql)
        self._schemas[name] = rows.schema
        self._rows[name] = rows.to_pylist()
        plan = plan_view(name, sql, self._known)
        self.plans[name] = plan
        self._known[name] = Relation(name, dict.fromkeys(rows.schema.names, ""), plan.unique)
        self._register(name, [], self._rows[name])

    def _kept(self, name: str, sql: str, changed: set[str]) -> list[Row]:
        plan = self.plans[name]
        if not changed:
            return self._rows[name]
        if plan.obstacle(changed):
            self.recomputed[name] += 1
            return self._listed(sql)
        try:
            text = plan.keys_sql(changed)
        except Unplannable:
            self.recomputed[name] += 1
            return self._listed(sql)
        if any(self._listed(one) for one in plan.constants_sql(changed)):
            self.recomputed[name] += 1
            return self._listed(sql)
        keys = self._run(text)
        self._db.register("k", keys)
        if plan.top is not None:
            return self._first(name, sql)
        self.kept[name] += 1
        fresh = self._listed(plan.rows_sql("k"))
        gone = {_key(row, plan.key) for row in keys.to_pylist()}
        demand(ONLY_CANDIDATES, {_key(row, plan.key) for row in fresh} <= gone, name)
        return [row for row in self._rows[name] if _key(row, plan.key) not in gone] + fresh

    def _first(self, name: str, sql: str) -> list[Row]:
        """A view with ORDER BY ... LIMIT."""
        self._db.register(BEFORE, pa.Table.from_pylist(self._rows[name], schema=self._schemas[name]))
        rows = self._listed(self.plans[name].rows_sql("k"))
        if any(row.pop(ORIGIN) == LAST for row in rows):
            self.recomputed[name] += 1
            return self._listed(sql)
        self.kept[name] += 1
        return rows

    def _register(self, name: str, before: Sequence[Row], after: Sequence[Row]) -> bool:
        """Both sides and the images; returns whether there are any."""
        schema = self._schemas[name]
        gone, come = _difference(before, after), _difference(after, before)
        if (gone or come) and after and self.shop.random.random() < 0.2:
            same = next((row for row in after if row in before and row not in come), None)
            if same is not None:  # an image of what did not change
                gone, come = [*gone, same], [*come, same]
        olds = [] if self._without_old else [{**row, WEIGHT: -1} for row in gone]
        seen = [*olds, *({**row, WEIGHT: 1} for row in come)]
        self._db.register(name, pa.Table.from_pylist(list(after), schema=schema))
        self._db.register(old(name), pa.Table.from_pylist(list(before), schema=schema))
        with_weight = schema.append(pa.field(WEIGHT, pa.int32()))
        self._db.register(images(name), pa.Table.from_pylist(seen, schema=with_weight))
        return bool(gone or come)

    def _listed(self, sql: str) -> list[Row]:
        rows: list[Row] = self._run(sql).to_pylist()
        return rows

    def _run(self, sql: str) -> pa.Table:
        return self._db.sql(in_duckdb(sql)).to_arrow_table()


def _difference(one: Iterable[Row], other: Iterable[Row]) -> list[Row]:
    """Rows of `one`, as often as they are not in `other`."""
    spare, left = _bag(other), []
    for row in one:
        canonical = _canonical(tuple(row.values()))
        if spare[canonical]:
            spare[canonical] -= 1
        else:
            left.append(row)
    return left


def _key(row: Row, key: Sequence[str]) -> Any:
    return _canonical(tuple(row[column] for column in key))


def _bag(rows: Iterable[Row]) -> Counter[Any]:
    return Counter(_canonical(tuple(row.values())) for row in rows)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(map(_canonical, value.values()))
    if isinstance(value, list | tuple):
        return tuple(map(_canonical, value))
    if isinstance(value, float):
        return round(value, 9)
    return int(value) if hasattr(value, "as_tuple") and value == int(value) else value
