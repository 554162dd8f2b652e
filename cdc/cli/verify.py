"""`cdc verify SINK`: compare a sink with the log, row by row."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from cdc.cli import output
from cdc.cli.options import config_option, configuration, json_option


@click.command("verify")
@click.argument("sink")
@click.option("--table", "tables", multiple=True, help="Only tables that fit this pattern; may be given again.")
@config_option
@json_option
def command(sink: str, tables: tuple[str, ...], config_path: Path | None, as_json: bool) -> int:
    """Compare the sink SINK with the topics, as of the cut it is at.

    Every topic is read again from its beginning and folded; each row must be there once, as of its last event, with its
    content. The sink may run meanwhile. Exit code 1 when anything differs.
    """
    from cdc.app import verify_sink
    from cdc.cli.localprogress import Bars
    from cdc.errors import EXIT_FAILED, EXIT_OK
    from cdc.lsn import Lsn

    config = configuration(config_path)
    with Bars() as told, output.waiting("reading the topics again"):
        manifest, reports = verify_sink(config, sink, tables, told)
    ok = all(report.ok for report in reports)
    if as_json:
        output.show_json(
            {
                "ok": ok,
                "cut": manifest.cut,
                "lsn": str(Lsn(manifest.end_lsn)),
                "tables": [
                    {
                        "table": report.table,
                        "compared": report.compared,
                        "missing": report.missing,
                        "extra": report.extra,
                        "stale": report.stale,
                        "different": report.different,
                        "examples": {kind: list(keys) for kind, keys in report.examples.items()},
                    }
                    for report in reports
                ],
            }
        )
        return EXIT_OK if ok else EXIT_FAILED
    numbers = ("compared", "missing", "extra", "stale", "different")
    shown = output.table("table", *numbers, "", right=numbers)
    for report in reports:
        mark = Text("✓", style="bold green") if report.ok else Text("✗", style="bold red")
        counts = (report.compared, report.missing, report.extra, report.stale, report.different)
        shown.add_row(output.plain(report.table), *(f"{count:,}" for count in counts), mark)
    output.show_table(shown)
    for report in reports:
        for kind, keys in report.examples.items():
            output.note(f"{report.table}: {kind} {', '.join(map(str, keys))}")
    if ok:
        rows = sum(report.compared for report in reports)
        output.done(f"{rows:,} rows of {len(reports)} tables equal their topics at {Lsn(manifest.end_lsn)}")
    return EXIT_OK if ok else EXIT_FAILED
