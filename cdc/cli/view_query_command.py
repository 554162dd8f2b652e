"""`cdc views query`: runs SQL over the tables and views of one cut. Needs neither Spark nor Kafka."""

from __future__ import annotations

from pathlib import Path

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, json_option
from cdc.cli.lake_choice import choose_lake, grid, json_value, lake_option
from cdc.errors import EXIT_OK

_ROWS: int = 1000


@click.command("query")
@click.argument("sql")
@click.option("--at", "at", metavar="LSN|CUT", default=None, help="Read an older cut  [default: the newest].")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=_ROWS, show_default=True, help="Show at most this many rows."
)
@lake_option
@config_option
@json_option
def command(
    sql: str, at: str | None, limit: int, lake_text: str | None, config_path: Path | None, as_json: bool
) -> int:
    """Run one SELECT over the lake, as of one cut.

    Names are those of view definitions: orders, public.orders, history.orders, archive.orders, or a view.
    """
    from cdc.lsn import Lsn
    from sinks.warehouse.read.cut_query import query
    from sinks.warehouse.read.lake_reader import Lake, parse_at

    lake = Lake(choose_lake(config_path, lake_text).location)
    manifest = lake.manifest(None if at is None else parse_at(at))
    rows = query(lake, manifest, sql, limit=limit)
    lsn = str(Lsn(manifest.end_lsn))
    if as_json:
        shown = [json_value(row) for row in rows.to_pylist()]
        output.show_json({"cut": manifest.cut, "lsn": lsn, "rows": shown})
        return EXIT_OK
    output.show_table(grid(rows.to_pylist(), list(rows.column_names)))
    output.note(f"{rows.num_rows:,} rows as of cut {manifest.cut}, {lsn}")
    return EXIT_OK
