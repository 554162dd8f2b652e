"""Measures a cut with TPC-H's 22 views: how long the views take, each and all, and what a cut without changes costs.

A lake without Kafka: each cut merges RF1, RF2 and updates into the mirrors and keeps the views, as the sink does. The
first cuts are not counted: they compile code, and try the plans. Times are of the views alone, without the merges.

``python -m tests.bench.tpch [--scale 0.02] [--changes 1500] [--csv FILE]`` runs it alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.machine import Machine
from cdc.clock import SystemClock
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.lake.committer import DELETED
from sinks.warehouse.lake.cut_commit import CutCommit
from sinks.warehouse.lake.cut_position import CutPosition, Partition
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import Manifest, ManifestStore, Pending
from sinks.warehouse.spark.spark_session import SparkOptions, close_session, open_session
from sinks.warehouse.views.at_once import AT_ONCE_MAX
from sinks.warehouse.views.definition import View, load_views, parse_view
from sinks.warehouse.views.keeper import ViewKeeper
from sinks.warehouse.views.meaning.pg_types import PgType, written
from tests.tpch.merges import Merges
from tests.tpch.refresh import Refresh, Sizes, Transaction
from tests.tpch.tables import KEYS, VIEWS, mirror, tables, types

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES: Final = ((0.02, 1_500), (0.5, 3_500))
"""Scale, and about how many rows a cut changes."""
WARM_UPS: Final = 4
CUTS: Final = 5
_ROWS_PER_ORDER: Final = 5  # an order and four line items, on average
_UPDATED_SHARE: Final = 0.25
_SPARK: Final = {"int4": "int", "date": "date"}


@dataclass(frozen=True, slots=True)
class Measured:
    """One view in one cut; with `view` "all", all views together. `plan` is empty if the view was not affected."""

    scale: float
    changes: int
    cut: int
    view: str
    plan: str
    seconds: float


def measure_tpch(folder: Path, scale: float, changes: int, *, plan: str = "auto", cuts: int = CUTS) -> list[Measured]:
    """Measure `cuts` cuts after those that warm up, and one without changes, whose number is 0.

    Args:
        folder: for the lake and Spark.
        scale: factor of TPC-H.
        changes: about how many rows each cut changes.
        plan: of every view.
        cuts: number of measured cuts.
    """
    options = SparkOptions(master="local[2]", memory="4g", scratch=folder / "spark")
    spark = open_session(options, machine=Machine.here(), progress=NoProgress())
    try:
        bench = _Bench(spark, folder / "lake", scale, changes, plan)
        base = tables(scale)
        bench.cut({mirror(table): _live(rows) for table, rows in base.items()})
        merges, log = Merges(base), _Log(Refresh(Sizes.of_scale(scale), seed=11))
        found = [bench.cut(merges.merge(log.next(changes))) for _ in range(WARM_UPS + cuts)]
        found.append([Measured(**{**asdict(one), "cut": 0}) for one in bench.cut({})])
        return [one for part in found[WARM_UPS:] for one in part]
    finally:
        close_session(spark)


def measure_sizes() -> list[dict[str, Any]]:
    """Measure all sizes, and return their summary."""
    found: list[Measured] = []
    for scale, changes in SIZES:
        with tempfile.TemporaryDirectory(dir=Machine.here().cache) as folder:
            found += measure_tpch(Path(folder), scale, changes)
    return summary(found)


def summary(found: Sequence[Measured]) -> list[dict[str, Any]]:
    """Return for each scale the median and longest cut, the cost of an unaffected view, and each view's median."""
    said = []
    for scale, changes in dict.fromkeys((one.scale, one.changes) for one in found):
        mine = [one for one in found if (one.scale, one.changes) == (scale, changes)]
        whole = [one.seconds for one in mine if one.view == "all" and one.cut]
        idle = [one.seconds for one in mine if one.view == "all" and not one.cut]
        views = sorted({one.view for one in mine} - {"all"})
        said.append(
            {
                "scale": scale,
                "changes": changes,
                "cut_seconds": {"median": round(statistics.median(whole), 2), "longest": round(max(whole), 2)},
                "unaffected_view_ms": round(1000 * max(idle) / len(views), 1) if views and idle else None,
                "views": {
                    view: {
                        "plan": statistics.mode(one.plan for one in mine if one.view == view and one.cut),
                        "seconds": round(
                            statistics.median(one.seconds for one in mine if one.view == view and one.cut), 3
                        ),
                    }
                    for view in views
                },
            }
        )
    return said


class _Log:
    """The refresh functions and updates, in pieces of any size."""

    def __init__(self, refresh: Refresh) -> None:
        self._inserts = chain.from_iterable(refresh.inserts(pair) for pair in count())
        self._deletes = chain.from_iterable(refresh.deletes(pair) for pair in count())
        self._updates = (one for pair in count() for one in refresh.updates(pair, 100))

    def next(self, changes: int) -> Iterator[Transaction]:
        """Yield transactions that change about so many rows."""
        updates = round(changes * _UPDATED_SHARE)
        orders = max(1, (changes - updates) // (2 * _ROWS_PER_ORDER))
        for source, number in ((self._inserts, orders), (self._deletes, orders), (self._updates, updates)):
            yield from islice(source, number)


class _Bench:
    """One lake with all views."""

    def __init__(self, spark: SparkSession, folder: Path, scale: float, changes: int, plan: str) -> None:
        self._scale, self._changes = scale, changes
        self._location = Location.of(folder)
        self._store, self._committer = ManifestStore(folder), DeltaRs(self._location)
        self._views = [_planned(view, plan) for view in load_views(VIEWS)]
        self._keeper = ViewKeeper(spark, self._location, self._views, SystemClock(), at_once=AT_ONCE_MAX)
        self._manifest: Manifest | None = None
        self._accounts: dict[Partition, tuple[int, int]] = {}
        self._cut = 0

    def cut(self, rows: Mapping[str, pa.Table]) -> list[Measured]:
        """Merge rows into the mirrors and keep all views."""
        self._cut += 1
        complete = {f"public.{table}": "complete" for table in KEYS}
        for table, changed in rows.items():
            place = f"bench.{table.partition('/')[2]}", 0
            total = self._accounts.get(place, (0, 0))[1] + changed.num_rows
            self._accounts[place] = total, total
        position = CutPosition(1, 256 * self._cut, 256 * self._cut - 8, self._cut, dict(self._accounts), complete, 0)
        plans = self._keeper.plans(self._manifest, position)
        pending = Pending(cut=self._cut, start_cut=self._cut - 1, position=position, plans=plans)
        commit = CutCommit(self._store, self._committer, pending)
        for table, changed in rows.items():
            key = KEYS[table.rpartition(".")[2]]
            commit.mirror(table, changed, key, schema_id="1")
            commit.describe(table, key=key, columns={name: _column(kind) for name, kind in types()[table].items()})
        began_s = time.monotonic()
        self._keeper.keep(commit, self._manifest, complete=complete, plans=plans)
        took_s = time.monotonic() - began_s
        self._manifest = commit.publish(name="tpch", committed_at_us=time.time_ns() // 1000)
        return self._measured(self._manifest, took_s)

    def _measured(self, manifest: Manifest, took_s: float) -> list[Measured]:
        found = [Measured(self._scale, self._changes, self._cut, "all", "", round(took_s, 4))]
        for view in self._views:
            state = manifest.views.get(view.name)
            if state is None or state.reason:
                reason = manifest.unbuilt[view.name].reason if state is None else state.reason
                raise SystemExit(f"bench: {view.name} is left behind: {reason}")
            ran = state.plan if state.cut == self._cut else None
            plan, seconds = ("", 0.0) if ran is None else (ran.plan, ran.seconds)
            found.append(Measured(self._scale, self._changes, self._cut, view.name, plan, seconds))
        return found


def _planned(view: View, plan: str) -> View:
    return view if plan == "auto" else parse_view(view.file, f"-- plan: {plan}\n{view.sql}")


def _column(kind: PgType) -> str:
    lake = f"decimal({kind.precision},{kind.scale})" if kind.name == "numeric" else _SPARK.get(kind.name, "string")
    return written(kind, lake)


def _live(rows: pa.Table) -> pa.Table:
    return rows.append_column(DELETED, pa.array([False] * rows.num_rows, pa.bool_()))


def write_csv(found: Sequence[Measured], file: Path) -> None:
    """Append raw data to the file, one line per view and cut."""
    is_new = not file.exists()
    with file.open("a", newline="") as out:
        writer = csv.DictWriter(out, [field.name for field in fields(Measured)], lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(asdict(one) for one in found)


def main() -> int:
    """Measure, write raw data, print the summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tpch")
    parser.add_argument("--scale", type=float, default=0.02)
    parser.add_argument("--changes", type=int, default=1_500, help="rows that a cut changes, about")
    parser.add_argument("--plan", choices=("auto", "recompute", "affected"), default="auto")
    parser.add_argument("--cuts", type=int, default=CUTS)
    parser.add_argument("--csv", type=Path, help="where raw data goes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Machine.here().cache) as folder:
        found = measure_tpch(Path(folder), options.scale, options.changes, plan=options.plan, cuts=options.cuts)
    if options.csv:
        write_csv(found, options.csv)
    sys.stdout.write(json.dumps(summary(found), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
