"""Measures the cost of a view per cut with each plan, for several sizes of bases and changes, including writes.

A lake without Kafka: each cut merges generated changes into the mirrors and updates the views. Each view has one copy
per plan, and one copy with a chosen plan (`auto`). All copies are updated in the same cut, one after the other, in a
new order each time. So every plan sees the same changes on the same machine at almost the same time. Times are of the
view alone: reading, computing and committing. Merging the mirrors is the same for all and reported separately.

``python -m tests.bench.views [--small] [--csv FILE]`` runs it alone; `make bench --only views` runs the small
grid, with figures for the report. A cell of the grid fails if its copies differ.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.machine import Machine
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.lake.cut_commit import CutCommit
from sinks.warehouse.lake.cut_position import CutPosition, Partition
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import Manifest, ManifestStore, Pending
from sinks.warehouse.read.lake_reader import Lake
from sinks.warehouse.spark.spark_session import SparkOptions, close_session, open_session
from sinks.warehouse.views.definition import View, parse_view
from tests.bench.viewdata import KINDS, Sizes, base, changes
from tests.bench.viewkeeping import Keeping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUTO: Final = "auto"
PLANS: Final = ("recompute", "affected")
REPETITIONS: Final = 5
_WARM_UPS: Final = 1  # cuts of a cell that are not counted: the first of a new size
_FIRST_WARM_UPS: Final = 6  # those of a base's first cell: compiled code, and each plan looked at twice
_COMPARED_ROWS_MAX: Final = 1_000_000
VIEWS: Final = {
    "document": (
        "select o.id, o.status, sort_array(collect_list(struct(l.id, l.sku, l.qty)) filter (where l.id is not null))"
        " as items from orders o left join order_lines l on l.order_id = o.id group by o.id, o.status"
    ),
    "customer": (
        "select o.customer_id, count(*) as n, sum(l.qty) as q from orders o join order_lines l on l.order_id = o.id"
        " where o.status = 'paid' group by o.customer_id"
    ),
    "region": (
        "select c.region, count(*) as n, sum(l.qty) as q from order_lines l join orders o on l.order_id = o.id"
        " join customers c on o.customer_id = c.id group by c.region"
    ),
    "hours": (
        "select sku, window.start as hour, count(*) as n, sum(qty) as q from order_lines"
        " group by sku, window(at, '1 hour')"
    ),
    "hopping": (
        "select window.start as began, window.end as ended, count(*) as n, sum(qty) as q from order_lines"
        " group by window(at, '1 hour', '10 minutes')"
    ),
    "sessions": (
        "select order_id, session_window.start as began, session_window.end as ended, count(*) as n, sum(qty) as q"
        " from order_lines group by order_id, session_window(at, '10 minutes')"
    ),
    "pattern": (
        "select order_id, began, falls from order_lines match_recognize (partition by order_id order by at"
        " measures A.at as began, count(B.*) as falls pattern (A B+) define B as qty < prev(qty))"
    ),
    "row": (
        "select o.id, o.status, c.region from orders o join customers c on o.customer_id = c.id where o.cents > 100"
    ),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One size of base and changes, and the distribution of their keys."""

    lines: int
    changes: int
    kind: str


@dataclass(frozen=True, slots=True)
class Measured:
    """One view in one cut. `plan` is the requested plan, `ran` the plan that the driver ran."""

    lines: int
    changes: int
    kind: str
    view: str
    plan: str
    ran: str
    repetition: int
    seconds: float
    merge_seconds: float


SMALL: Final = tuple(Cell(200_000, count, "uniform") for count in (200, 2_000))
WHOLE: Final = tuple(
    Cell(lines, count, kind)
    for lines in (200_000, 1_000_000, 5_000_000, 20_000_000)
    for kind in KINDS
    for count in (200, 2_000, 20_000)
)


def measure_views(
    folder: Path, cells: Sequence[Cell] = SMALL, names: Sequence[str] = (), repetitions: int = REPETITIONS
) -> list[Measured]:
    """Measure all cells; cells of one base share a lake. `names` selects views; empty: all."""
    found: list[Measured] = []
    options = SparkOptions(master="local[2]", memory="3g", scratch=folder / "spark")
    spark = open_session(options, machine=Machine.here(), progress=NoProgress())
    try:
        for lines in dict.fromkeys(cell.lines for cell in cells):
            bench = _Bench(spark, folder / f"lake-{lines}", Sizes(lines), names or tuple(VIEWS))
            for cell in cells:
                if cell.lines == lines:
                    found += bench.cell(cell, repetitions)
            bench.compare()
    finally:
        close_session(spark)
    return found


def figures(found: Sequence[Measured]) -> list[dict[str, Any]]:
    """Return for each cell and view the medians by plan, the chosen plan, and its cost against the best plan."""
    cells = dict.fromkeys((one.lines, one.changes, one.kind, one.view) for one in found)
    said = []
    plans = dict.fromkeys(one.plan for one in found if one.plan != AUTO)  # of older raw data: also those removed since
    for place in cells:
        mine = [one for one in found if (one.lines, one.changes, one.kind, one.view) == place]
        medians = {
            plan: statistics.median(times)
            for plan in plans
            if (times := [one.seconds for one in mine if one.plan == plan and one.ran == plan])
        }
        chosen = [one.ran for one in mine if one.plan == AUTO]
        costs = [medians[plan] for plan in chosen if plan in medians]
        best = min(medians.values(), default=0.0)
        said.append(
            dict(zip(("lines", "changes", "kind", "view"), place, strict=True))
            | {
                "seconds": {plan: round(value, 3) for plan, value in medians.items()},
                "chosen": statistics.mode(chosen) if chosen else None,
                "chosen_to_best": round(statistics.mean(costs) / best, 2) if costs and best else None,
                "recompute_to_best": round(medians["recompute"] / best, 2) if "recompute" in medians else None,
            }
        )
    return said


def summary(found: Sequence[Measured]) -> dict[str, Any]:
    """Return the figures, and the median and worst cost of the chosen plan against the best (goals: 1.3 and 2)."""
    cells = figures(found)
    ratios = [cell["chosen_to_best"] for cell in cells if cell["chosen_to_best"] is not None]
    return {
        "chosen_to_best_median": round(statistics.median(ratios), 2) if ratios else None,
        "chosen_to_best_worst": max(ratios, default=None),
        "cells": cells,
    }


class _Bench:
    """One lake, and the copies of its views."""

    def __init__(self, spark: SparkSession, folder: Path, sizes: Sizes, names: Sequence[str]) -> None:
        self._spark, self._sizes = spark, sizes
        self._location = Location.of(folder)
        self._store, self._committer = ManifestStore(folder), DeltaRs(self._location)
        self._views = {(name, plan): _view(name, plan) for name in names for plan in (*PLANS, AUTO)}
        self._chance = random.Random(sizes.lines)
        self._cut = 0
        self._warm_ups = _FIRST_WARM_UPS
        self._manifest: Manifest | None = None
        self._accounts: dict[Partition, tuple[int, int]] = {}
        self._keepers = {view.name: Keeping(spark, self._location, view) for view in self._views.values()}
        with self._made(base(sizes, seed=1)):
            for view in self._views.values():
                self._keep(view)

    def cell(self, cell: Cell, repetitions: int) -> list[Measured]:
        """Make `repetitions` cuts, each with every copy of every view, in a new order each time."""
        found = []
        warm_ups, self._warm_ups = self._warm_ups, _WARM_UPS
        for number in range(warm_ups + repetitions):
            rows = changes(self._sizes, cell.changes, cell.kind, seed=1000 * self._cut + number)
            with self._made(rows) as merged_s:
                for name, plan in self._chance.sample(list(self._views), len(self._views)):
                    began_s = time.monotonic()
                    ran = self._keep(self._views[name, plan])
                    took_s = time.monotonic() - began_s
                    place = (cell.lines, cell.changes, cell.kind, name, plan, ran, number - warm_ups)
                    found.append(Measured(*place, round(took_s, 4), round(merged_s, 4)))
        return [one for one in found if one.repetition >= 0]

    def compare(self) -> None:
        """Check that all copies of a view have the same rows; otherwise the figures are meaningless."""
        lake = Lake(self._location)
        manifest = lake.manifest()
        for name in dict.fromkeys(name for name, _ in self._views):
            frames = {}
            for plan in (*PLANS, AUTO):
                table, state = lake.view(f"{name}_{plan}", manifest)
                if state.reason:
                    raise SystemExit(f"bench: {name} by {plan} is left behind: {state.reason}")
                frames[plan] = frame_of(self._spark, self._location, table, state.version)
            wanted = frames["recompute"]
            if wanted.count() > _COMPARED_ROWS_MAX:
                continue
            for plan, frame in frames.items():
                different = wanted.exceptAll(frame).count() + frame.exceptAll(wanted).count()
                if different:
                    raise SystemExit(f"bench: {name} by {plan} differs from recompute in {different} rows")

    def _keep(self, view: View) -> str:
        """Keep this one view in the cut that is open; returns the plan it ran."""
        return self._keepers[view.name].keep(self._commit, self._manifest, self._complete)

    @contextmanager
    def _made(self, rows: dict[str, pa.Table]) -> Iterator[float]:
        """A cut: the rows merged, then what the block does, then the manifest. Hands out the seconds of the merges."""
        self._cut += 1
        self._complete = {table.partition("/")[2]: "complete" for table in rows}
        for table, changed in rows.items():
            count = self._accounts.get(place := _partition(table), (0, 0))[1] + changed.num_rows
            self._accounts[place] = (count, count)
        pending = Pending(
            cut=self._cut,
            start_cut=self._cut - 1,
            position=CutPosition(
                1, 256 * self._cut, 256 * self._cut - 8, self._cut, dict(self._accounts), self._complete, 0
            ),
        )
        self._commit = CutCommit(self._store, self._committer, pending)
        began_s = time.monotonic()
        for table, changed in rows.items():
            given = changed if "_deleted" in changed.column_names else _live(changed)
            self._commit.mirror(table, given, ("id",), schema_id="1")
            self._commit.describe(table, key=("id",))
        yield time.monotonic() - began_s
        self._manifest = self._commit.publish(name="viewbench", committed_at_us=time.time_ns() // 1000)


def _view(name: str, plan: str) -> View:
    return parse_view(Path(f"{name}_{plan}.sql"), f"-- plan: {plan}\n{VIEWS[name]}\n")


def _partition(table: str) -> Partition:
    """Return the partition that would have the records of a mirror."""
    return f"viewbench.{table.partition('/')[2]}", 0


def _live(rows: pa.Table) -> pa.Table:
    return rows.append_column("_deleted", pa.array([False] * rows.num_rows, pa.bool_()))


def write_csv(found: Sequence[Measured], file: Path) -> None:
    """Append raw data to the file, one line per measurement."""
    names = [field.name for field in fields(Measured)]
    is_new = not file.exists()
    with file.open("a", newline="") as out:
        writer = csv.DictWriter(out, names, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(asdict(one) for one in found)


def read_csv(file: Path) -> list[Measured]:
    """Read a file of `write_csv`."""
    with file.open(newline="") as lines:
        return [msgspec.convert(row, Measured, strict=False) for row in csv.DictReader(lines)]


def main() -> int:
    """Measure, write raw data, print the summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.views")
    parser.add_argument("--small", action="store_true", help="the grid of two minutes")
    parser.add_argument("--lines", type=int, action="append", help="only these bases")
    parser.add_argument("--changes", type=int, action="append", help="only cuts of so many changes")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only such keys")
    parser.add_argument("--view", choices=tuple(VIEWS), action="append", help="only these views")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--csv", type=Path, help="where raw data goes")
    options = parser.parse_args()
    cells = [
        cell
        for cell in (SMALL if options.small else WHOLE)
        if (not options.lines or cell.lines in options.lines)
        and (not options.changes or cell.changes in options.changes)
        and (not options.kind or cell.kind in options.kind)
    ]
    found: list[Measured] = []
    for lines in dict.fromkeys(cell.lines for cell in cells):
        with tempfile.TemporaryDirectory(dir=Machine.here().cache) as folder:
            part = measure_views(
                Path(folder), [cell for cell in cells if cell.lines == lines], options.view or (), options.repetitions
            )
        if options.csv:
            write_csv(part, options.csv)
        found += part
    sys.stdout.write(json.dumps(summary(found), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
