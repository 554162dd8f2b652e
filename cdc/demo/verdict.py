"""The end of the demo: what was compared, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cdc.demo.bank import TOTALS
from cdc.demo.lake import LakeVerdict
from cdc.verify.findings import TableFindings
from cdc.verify.key_verdict import DifferenceKind
from cdc.verify.verify_report import VerifyReport

BAG_NOTE: Final = "* no key: compared as a bag of rows, topic not compacted"
_PANEL_WIDTH: Final = 76
_FAULTS: Final = {
    "repeated": "events are in the log twice",
    "disordered": "events are out of order",
    "misplaced": "records are in a wrong partition",
    "unpaired": "deletes and tombstones do not match",
    "foreign": "records are not ours",
    "miscounted": "partitions have another number of records than were published",
    "altered": "partitions have other bytes than were published",
}


@dataclass(frozen=True, slots=True)
class StoresVerdict:
    """What index and cache were found to hold: sink -> its tables."""

    tables: dict[str, list[TableFindings]]

    @property
    def compared(self) -> int:
        """Keys."""
        return sum(table.compared for tables in self.tables.values() for table in tables)

    @property
    def ok(self) -> bool:
        """Whether all of them are what their topics say."""
        return all(tables and all(table.ok for table in tables) for tables in self.tables.values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """Everything the proof found.

    Attributes:
        report: of `cdc.verify`.
        sums: the bank's four sums, by PostgreSQL.
        lake: what the lake was found to hold; None without one.
        stores: what index and cache were found to hold.
    """

    report: VerifyReport
    sums: dict[str, int]
    lake: LakeVerdict | None = None
    stores: StoresVerdict | None = None

    @property
    def log_sums(self) -> dict[str, int]:
        """The bank's four sums, from the topics."""
        by_table = {table.table: table.totals for table in self.report.tables}
        return {table: by_table.get(table, {}).get(column, (0, 0))[0] for table, column in TOTALS.items()}

    @property
    def sums_agree(self) -> bool:
        """Whether all eight are one number."""
        return len({*self.sums.values(), *self.log_sums.values()}) == 1

    @property
    def ok(self) -> bool:
        """Whether the log holds exactly what PostgreSQL holds."""
        counted = all(table.countable == "exact" for table in self.report.tables)
        lake = self.lake is None or self.lake.ok
        stores = self.stores is None or self.stores.ok
        return self.report.ok and counted and self.sums_agree and lake and stores


def tables(report: VerifyReport) -> RenderableType:
    """One line for each table."""
    shown = _table("table", "records", "rows in Kafka", "in PostgreSQL", "differ")
    for table in report.tables:
        name = table.table if table.keyed else f"{table.table} *"
        numbers = (table.record_count, table.live_count, table.differences.compared)
        wrong = table.differences.count
        differences = Text(f"{wrong:,}", style="bold red" if wrong else "")
        shown.add_row(name, *(f"{number:,}" for number in numbers), differences, _mark(table.ok))
    return shown


def sums(verdict: Verdict) -> RenderableType:
    """The bank's sums, from both sides."""
    shown = _table("sums of the bank", *(table.rpartition("_")[2] for table in TOTALS))
    for side, found in (("in PostgreSQL", verdict.sums), ("in Kafka", verdict.log_sums)):
        good = set(found.values()) == set(verdict.sums.values()) and len(set(found.values())) == 1
        shown.add_row(side, *(f"{found[table]:,}" for table in TOTALS), _mark(good))
    return shown


def lake(found: LakeVerdict) -> RenderableType:
    """The view's rows from both sides, and the mirrors."""
    shown = _table("day", "orders", "items", "revenue by Spark", "in PostgreSQL")
    wanted = {row[0]: row for row in found.query}
    days = {row[0]: row for row in found.view}
    for day in sorted({*wanted, *days}):
        kept, there = days.get(day), wanted.get(day)
        cells = [f"{value:,}" for value in kept[1:]] if kept else ["-"] * 3
        shown.add_row(str(day), *cells, f"{there[3]:,}" if there else "-", _mark(kept == there))
    mirrors = ", ".join(
        f"{table} {kept:,}{'' if kept == there else f' and not {there:,}'}"
        for table, (kept, there) in found.counts.items()
    )
    views = _table("view by Spark", "rows", "by PostgreSQL's query", "differ")
    for view in found.views:
        views.add_row(view.name, f"{view.rows:,}", f"{view.wanted:,}", f"{view.differ:,}", _mark(view.differ == 0))
    return Group(shown, views, Text(f"rows in the lake: {mirrors}", style="dim"))


def stores(found: StoresVerdict) -> RenderableType:
    """One line for each table of each sink."""
    shown = _table("kept in", "table", "keys", "missing", "extra", "stale", "different")
    for sink, tables in found.tables.items():
        for table in tables:
            counts = (
                table.counts[kind]
                for kind in (
                    DifferenceKind.MISSING,
                    DifferenceKind.EXTRA,
                    DifferenceKind.STALE,
                    DifferenceKind.DIFFERENT,
                )
            )
            shown.add_row(
                sink, table.table, f"{table.compared:,}", *(f"{count:,}" for count in counts), _mark(table.ok)
            )
    return shown


def findings(report: VerifyReport) -> list[str]:
    """What is wrong, in words; empty when nothing is."""
    said = [f"{table.table}: {table.problem}" for table in report.tables if table.problem]
    for table in report.tables:
        said += [f"{table.table}: {count} {_FAULTS[name]}" for name, count in table.faults.named().items()]
        said += [f"{table.table}: {kind} {', '.join(keys)}" for kind, keys in table.differences.examples.items()]
    return said


def ending(verdict: Verdict, seconds: float) -> RenderableType:
    """The last word."""
    report = verdict.report
    if verdict.ok:
        text = Text.assemble(
            ("✓ Exactly once. ", "bold green"),
            "Kafka holds what PostgreSQL holds, although capture was killed in the middle of it. "
            f"Every one of {report.record_count:,} records is there once and in order: number and hash of each of "
            f"{report.partition_count} partitions are those of the {report.cut_count:,} Kafka transactions that "
            "wrote them.",
            "" if verdict.lake is None else " And each view of the lake is the query's answer at one LSN.",
            "" if verdict.stores is None else " Index and cache hold what their topics say, key by key.",
        )
    else:
        text = Text("✗ Kafka does not hold what PostgreSQL holds.", style="bold red")
        if not verdict.sums_agree:
            text.append("\nThe sums of the bank differ.", style="red")
        if verdict.lake is not None and not verdict.lake.ok:
            text.append("\nThe lake differs.", style="red")
        if verdict.stores is not None and not verdict.stores.ok:
            text.append("\nThe index or the cache differs.", style="red")
        for finding in findings(report):
            text.append(f"\n{finding}", style="red")
    panel = Panel(text, border_style="green" if verdict.ok else "red", width=_PANEL_WIDTH)
    return Group(panel, Text(f"  {seconds:.0f} s in all", style="dim"))


def _table(*columns: str) -> Table:
    """An empty one: names on the left, numbers on the right, a mark at the end."""
    shown = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate((*columns, "")):
        shown.add_column(column, justify="right" if 0 < number < len(columns) else "left", no_wrap=True)
    return shown


def _mark(good: bool) -> Text:  # noqa: FBT001 - a cell is good or not
    return Text("✓", style="bold green") if good else Text("✗", style="bold red")
