"""Shows what `cdc.verify` found: the tables, the sums of the bank, and the result of the demo."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cdc.demo.bank import TOTALS
from cdc.verify.verify_report import VerifyReport

BAG_NOTE: Final = "* no key: compared as a bag of rows, topic not compacted"
_PANEL_WIDTH: Final = 76
_FAULTS: Final = {
    "repeated": "events are in Kafka twice",
    "disordered": "events are out of order",
    "misplaced": "records are in a wrong partition",
    "unpaired": "deletes and tombstones do not match",
    "foreign": "records are from another program",
    "miscounted": "partitions have another number of records than published",
    "altered": "partitions have other bytes than published",
}


def sums_agree(report: VerifyReport) -> bool:
    """Return whether the bank's four sums are one number, in PostgreSQL and in Kafka."""
    return len({total for table in report.tables for both in table.totals.values() for total in both}) == 1


def is_exact(report: VerifyReport) -> bool:
    """Return whether Kafka holds exactly what PostgreSQL holds."""
    return report.ok and all(table.countable == "exact" for table in report.tables) and sums_agree(report)


def tables(report: VerifyReport) -> RenderableType:
    """Return one line per table."""
    shown = _table("table", "records", "rows in Kafka", "in PostgreSQL", "differ")
    for table in report.tables:
        name = table.table if table.keyed else f"{table.table} *"
        wrong = table.differences.count
        numbers = (table.record_count, table.live_count, table.differences.compared)
        differences = Text(f"{wrong:,}", style="bold red" if wrong else "")
        shown.add_row(name, *(f"{number:,}" for number in numbers), differences, _mark(table.ok))
    return shown


def sums(report: VerifyReport) -> RenderableType:
    """Return the sums of the bank on both sides."""
    shown = _table("sums of the bank", *(table.rpartition("_")[2] for table in TOTALS))
    found = {table.table: table.totals for table in report.tables}
    for side, name in enumerate(("in Kafka", "in PostgreSQL")):
        values = [found[table][column][side] for table, column in TOTALS.items()]
        shown.add_row(name, *(f"{value:,}" for value in values), _mark(sums_agree(report)))
    return shown


def findings(report: VerifyReport) -> list[str]:
    """Describe what is wrong; empty if nothing is."""
    found = [f"{table.table}: {table.problem}" for table in report.tables if table.problem]
    for table in report.tables:
        found += [f"{table.table}: {count} {_FAULTS[name]}" for name, count in table.faults.named().items()]
        found += [f"{table.table}: {kind} {', '.join(keys)}" for kind, keys in table.differences.examples.items()]
    return found if sums_agree(report) else ["The sums of the bank differ.", *found]


def ending(report: VerifyReport, failed_checks: list[str] | None, seconds: float) -> RenderableType:
    """Return the result. `failed_checks` are the checks of sinks that failed; None without sinks."""
    exact = is_exact(report)
    if exact and not failed_checks:
        text = Text.assemble(
            ("✓ Exactly once. ", "bold green"),
            "Kafka holds what PostgreSQL holds, although capture was killed in between. "
            f"Each of {report.record_count:,} records is there once and in order: number and hash of "
            f"{report.partition_count} partitions match the {report.cut_count:,} Kafka transactions that wrote them.",
            ""
            if failed_checks is None
            else " The lake's view is its query's answer at one LSN. Indices and caches match their topics, "
            "key by key.",
        )
    else:
        text = Text("✗ " + ("A sink differs." if exact else "Kafka does not hold what PostgreSQL holds."))
        text.stylize("bold red")
        for line in (*findings(report), *(f"{command} failed" for command in failed_checks or ())):
            text.append(f"\n{line}", style="not bold red")
    panel = Panel(text, border_style="red" if failed_checks or not exact else "green", width=_PANEL_WIDTH)
    return Group(panel, Text(f"  {seconds:.0f} s in total", style="dim"))


def _table(*columns: str) -> Table:
    """Return an empty table: names on the left, numbers on the right, a mark at the end."""
    shown = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate((*columns, "")):
        shown.add_column(column, justify="right" if 0 < number < len(columns) else "left", no_wrap=True)
    return shown


def _mark(good: bool) -> Text:  # noqa: FBT001 - a cell is good or not
    return Text("✓", style="bold green") if good else Text("✗", style="bold red")
