"""`cdc views check`: compares views with their queries on Spark, and with PostgreSQL's own answer to their texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, json_option, wait_option
from cdc.cli.lake_choice import choose_lake, lake_option, views_of_files, views_option
from cdc.control.chosen_lake import LakeChoice
from cdc.errors import EXIT_FAILED, EXIT_OK, TailraceError, UsageError

if TYPE_CHECKING:
    from cdc.verify.source_views import SourceViewReport, SourceViews
    from sinks.warehouse.read.view_check import ViewReport
    from sinks.warehouse.views.definition import ViewFiles

_OF_SPARK: Final = "its query on Spark"
_OF_SOURCE: Final = "PostgreSQL"
_STATES: Final = {
    "equal": ("✓", "bold green"),
    "near": ("✓", "bold green"),
    "different": ("✗", "bold red"),
    "undecided": ("?", "yellow"),
    "not_compared": ("?", "yellow"),
    "not_checkable": ("-", "dim"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What the command line asks for."""

    names: Sequence[str]
    config_path: Path | None
    wait_s: float
    statement_s: float
    values: bool
    as_json: bool


@click.command("check")
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Check every view of the lake.")
@click.option("--source", "only_source", is_flag=True, help="Compare only with PostgreSQL; needs no Spark.")
@click.option("--no-source", is_flag=True, help="Compare only with the query on Spark.")
@click.option("--at", "at", metavar="LSN|CUT", help="Check at an older cut, on Spark only  [default: the newest].")
@wait_option
@click.option(
    "--statement-timeout",
    "statement_s",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    help="Seconds that a view's query may take on PostgreSQL.",
)
@click.option("--values", is_flag=True, help="Show the values of the first rows that differ from PostgreSQL's.")
@views_option
@lake_option
@config_option
@json_option
def check_command(
    name: str | None,
    *,
    everything: bool,
    only_source: bool,
    no_source: bool,
    at: str | None,
    wait_s: float,
    statement_s: float,
    values: bool,
    folder: Path | None,
    lake_text: str | None,
    config_path: Path | None,
    as_json: bool,
) -> int:
    """Compare a view with its query, on Spark and on PostgreSQL.

    On Spark over the same cut; rows that differ only in the last digits of floats, or in estimates of sketches, count
    as near. On PostgreSQL the view's own text runs in a snapshot and is compared with the lake's next cut, while
    tables change; views in Spark SQL, and those that read histories or archives, cannot be checked there. Without
    --source, the comparison with PostgreSQL is left out if it cannot be reached. Keys are shown, values only with
    --values. Exit code 1 when a view differs or could not be compared.
    """
    if (name is None) == (not everything):
        raise UsageError("name a view or pass --all", command="cdc views check --all")
    if only_source and (no_source or at is not None):
        raise UsageError(
            "--source does not go with --no-source or --at",
            hint="PostgreSQL has only its present rows, so an older cut cannot be compared with it",
        )
    found = choose_lake(config_path, lake_text)
    wanted = _Wanted(
        names=[] if name is None else [name],
        config_path=config_path,
        wait_s=wait_s,
        statement_s=statement_s,
        values=values,
        as_json=as_json,
    )
    if only_source:
        return _shown(None, _at_source(found, wanted), "", wanted)
    views = partial(views_of_files, config_path, lake_text, folder)
    of_spark = _on_spark(found, views, wanted.names, at)
    of_source, why = (None, "") if no_source or at is not None else _if_reachable(found, wanted)
    return _shown(of_spark, of_source, why, wanted)


def _on_spark(
    found: LakeChoice, views: Callable[[], ViewFiles], names: Sequence[str], at: str | None
) -> tuple[int, list[ViewReport]]:
    from cdc.cli.progress_bars import DownloadBars
    from cdc.run.app import check_lake_views
    from sinks.warehouse.read.lake_reader import parse_at

    with DownloadBars() as bars, output.waiting("computing the views"):
        return check_lake_views(found.location, views(), names, at=None if at is None else parse_at(at), progress=bars)


def _at_source(found: LakeChoice, wanted: _Wanted) -> SourceViews:
    from cdc.clock import SystemClock
    from cdc.verify.source_views import Limits, check_views_at_source

    limits = Limits(wait_s=wanted.wait_s, statement_s=wanted.statement_s)
    config = configuration(wanted.config_path)
    with output.waiting("comparing with PostgreSQL"):
        return check_views_at_source(
            config, found.location, wanted.names, clock=SystemClock(), limits=limits, say=_notify(wanted)
        )


def _if_reachable(found: LakeChoice, wanted: _Wanted) -> tuple[SourceViews | None, str]:
    """Return the comparison with PostgreSQL, or why there is none."""
    try:
        return _at_source(found, wanted), ""
    except TailraceError as error:
        return None, error.message


def _notify(wanted: _Wanted) -> Callable[[str], None]:
    """Return what reports waits: on stderr, but with --json only if a person reads it."""
    out = output.console(stderr=True)
    if wanted.as_json and not out.is_terminal:
        return lambda _: None
    return lambda text: out.print(Text(output.plain(text), style="dim"))


def _shown(
    of_spark: tuple[int, list[ViewReport]] | None, of_source: SourceViews | None, why: str, wanted: _Wanted
) -> int:
    reports = of_source.reports if of_source is not None else ()
    ok = all(report.ok for report in (of_spark[1] if of_spark else ()))
    if of_spark is None:
        ok = _all_equal(reports, named=bool(wanted.names))
    elif any(report.state == "different" for report in reports):
        ok = False
    ok = ok and not any(report.collations for report in reports)
    if wanted.as_json:
        document: dict[str, Any] = {"ok": ok}
        if of_spark is not None:
            document |= {"cut": of_spark[0], "views": [_of_spark(report) for report in of_spark[1]]}
        if of_source is not None:
            views = [_of_source(report, values=wanted.values) for report in reports]
            document["source"] = {"cut": of_source.cut, "lsn": str(of_source.lsn), "views": views, "problem": None}
        elif why:
            document["source"] = {"cut": None, "lsn": None, "views": [], "problem": why}
        output.show_json(document)
        return EXIT_OK if ok else EXIT_FAILED
    if of_spark is not None:
        _show_spark(of_spark[1])
    if of_source is not None:
        _show_source(of_source, values=wanted.values)
    elif why:
        output.note(f"not compared with PostgreSQL: {why}; --no-source skips this")
    return EXIT_OK if ok else EXIT_FAILED


def _all_equal(reports: Sequence[SourceViewReport], *, named: bool) -> bool:
    """Whether every view agrees; without a name, views that PostgreSQL can never run do not count, if others agree."""
    checkable = [report for report in reports if named or report.state != "not_checkable"]
    return bool(checkable) and all(report.ok for report in checkable)


def _of_spark(report: ViewReport) -> dict[str, Any]:
    return {
        "name": report.name,
        "cut": report.cut,
        "rows": report.rows,
        "missing": report.missing,
        "extra": report.extra,
        "near": report.near,
        "problem": report.problem or None,
    }


def _of_source(report: SourceViewReport, *, values: bool) -> dict[str, Any]:
    found = report.found
    document: dict[str, Any] = {
        "name": report.name,
        "cut": report.cut,
        "state": report.state,
        "rows": found.rows,
        "source_rows": found.source_rows,
        "missing": found.missing,
        "extra": found.extra,
        "near": found.near,
        "from_log": report.replaced,
        "reason": report.reason or None,
        "collations": list(report.collations),
        "columns": [report.columns[at] for at in sorted(found.columns)],
        "examples": [{"kind": kind, "key": _key(report, row)} for kind, row in found.examples if report.key],
    }
    if values:
        document["examples"] = [
            {"kind": kind, "row": dict(zip(report.columns, row, strict=True))} for kind, row in found.examples
        ]
    return document


def _key(report: SourceViewReport, row: Sequence[str | None]) -> dict[str, str | None]:
    lower = {name.lower(): value for name, value in zip(report.columns, row, strict=True)}
    return {name: lower[name.lower()] for name in report.key if name.lower() in lower}


def _show_spark(reports: Sequence[ViewReport]) -> None:
    numbers = ("cut", "rows", "missing", "extra", "near")
    shown = output.table(f"against {_OF_SPARK}", *numbers, "", right=numbers)
    for report in reports:
        mark = Text("✓", style="bold green") if report.ok else Text("✗", style="bold red")
        counts = (report.cut, report.rows, report.missing, report.extra, report.near)
        shown.add_row(output.plain(report.name), *(f"{count:,}" for count in counts), mark)
    output.show_table(shown)
    for report in reports:
        if report.problem:
            output.note(f"{report.name}: not compared: {report.problem}")


def _show_source(found: SourceViews, *, values: bool) -> None:
    numbers = ("cut", "rows", "missing", "extra", "near")
    shown = output.table(f"against {_OF_SOURCE}", *numbers, "", right=numbers)
    for report in found.reports:
        mark, style = _STATES[report.state]
        counts = (report.cut, report.found.rows, report.found.missing, report.found.extra, report.found.near)
        shown.add_row(output.plain(report.name), *(f"{count:,}" for count in counts), Text(mark, style=style))
    output.show_table(shown)
    for report in found.reports:
        _explain(report, values=values)
    equal, answer = sum(report.ok for report in found.reports), f"PostgreSQL's own answer at {found.lsn}"
    if equal < len(found.reports):
        output.note(f"{equal} of {len(found.reports)} views equal {answer}")
    else:
        output.done(f"{equal} views equal {answer}" if equal > 1 else f"{found.reports[0].name} equals {answer}")


def _explain(report: SourceViewReport, *, values: bool) -> None:
    name, found = report.name, report.found
    if report.reason:
        word = "cannot be checked" if report.state == "not_checkable" else report.state.replace("_", " ")
        output.note(f"{name}: {word}: {report.reason}")
    for reason in report.collations:
        output.note(f"{name}: can differ from PostgreSQL: {reason}")
    if found.columns:
        output.note(f"{name}: rows differ in {', '.join(report.columns[at] for at in sorted(found.columns))}")
    sides = {"missing": "only in PostgreSQL", "extra": "only in the lake"}
    for kind, row in found.examples:
        shown = dict(zip(report.columns, row, strict=True)) if values else _key(report, row)
        if shown:
            text = ", ".join(f"{column}={'null' if value is None else value}" for column, value in shown.items())
            output.note(f"{name}: {sides[kind]}: {text}")
    if found.examples and not values and not report.key:
        output.note(f"{name}: add `-- key:` to its file to see keys of the rows, or pass --values")
