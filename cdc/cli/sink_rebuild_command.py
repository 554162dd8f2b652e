"""`cdc sink rebuild` and `cdc sink rollback`: rebuild a search index or cache, and undo a rebuild."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.clock import Clock, SystemClock
from cdc.config.settings import Cache, Config
from cdc.config.sink_kinds import sink_of
from cdc.errors import UsageError

if TYPE_CHECKING:
    from sinks.search.rebuild import SwapResult
    from sinks.search.rebuild_job import RebuildRequest

_tables = click.option(
    "--table", "tables", multiple=True, metavar="SCHEMA.TABLE", help="Only this table; repeatable  [default: all]."
)


@click.command("rebuild")
@click.argument("name")
@_tables
@click.option("--accept-refused", is_flag=True, help="Continue without records that the new index rejects.")
@config_option
@json_option
def rebuild_command(
    name: str, tables: tuple[str, ...], accept_refused: bool, config_path: Path | None, as_json: bool
) -> None:
    """Rebuild the search sink or cache NAME from its topics.

    Search: fills new indices, then switches readers to them. Readers search the old indices meanwhile; these are kept
    for `cdc sink rollback`. Workers keep running and pause only for the switch. Rebuild after a column changes its
    type, or after the sink's settings change its fields. A rebuild that was killed can be run again.

    Cache: removes all rows of the sink; the next `cdc sink run` fills it again, and readers miss until then. No worker
    may run.
    """
    from sinks.search.rebuild_job import RebuildRequest, rebuild_indices

    config = configuration(config_path)
    settings = sink_of(config, name)
    if isinstance(settings, Cache):
        if tables or accept_refused:
            raise UsageError(
                "--table and --accept-refused apply to search sinks only; a cache is emptied as a whole",
                command=f"cdc sink rebuild {name}",
            )
        _empty(config, name, settings, as_json)
        return
    _show(rebuild_indices, RebuildRequest(config, name, tables, accept_refused), as_json)


@click.command("rollback")
@click.argument("name")
@_tables
@config_option
@json_option
def rollback_command(name: str, tables: tuple[str, ...], config_path: Path | None, as_json: bool) -> None:
    """Switch the search sink NAME back to its former indices.

    The old indices are first brought up to date. Run it again to return to the new ones.
    """
    from sinks.search.rebuild_job import RebuildRequest, roll_back_indices

    _show(roll_back_indices, RebuildRequest(configuration(config_path), name, tables), as_json)


COMMANDS: Final = (rebuild_command, rollback_command)


def _empty(config: Config, name: str, settings: Cache, as_json: bool) -> None:
    from sinks.cache.refill import empty_cache

    tables = empty_cache(config, name, settings, SystemClock())
    if as_json:
        output.show_json({"sink": name, "emptied": tables})
    else:
        output.done(f"emptied {name} ({', '.join(tables)}); `cdc sink run {name}` fills it again")


def _show(
    work: Callable[[RebuildRequest, Clock], Iterator[SwapResult]], request: RebuildRequest, as_json: bool
) -> None:
    from cdc.telemetry import log

    log.configure(json=not sys.stderr.isatty())
    found = []
    for swapped in work(request, SystemClock()):
        found.append(swapped._asdict())
        if not as_json:
            refused = f", {swapped.refused} refused" if swapped.refused else ""
            output.done(f"{swapped.table}: {swapped.now}, {swapped.records} records{refused}")
    if as_json:
        output.show_json({"sink": request.sink, "tables": found})
