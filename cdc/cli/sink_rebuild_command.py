"""`cdc sink rebuild` and `cdc sink rollback`: a search index anew, and the way back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.errors import UsageError

if TYPE_CHECKING:
    from cdc.clock import Clock
    from cdc.config.settings import Cache, Config
    from sinks.search.rebuild import SwapResult
    from sinks.search.rebuild_job import RebuildRequest

_tables = click.option("--table", "tables", multiple=True, metavar="SCHEMA.TABLE", help="Only this one; repeatable.")


@click.command("rebuild")
@click.argument("name")
@_tables
@click.option("--accept-refused", is_flag=True, help="Go on without records that the new index does not take.")
@config_option
@json_option
def rebuild_command(
    name: str, tables: tuple[str, ...], accept_refused: bool, config_path: Path | None, as_json: bool
) -> None:
    """Fill the search sink or cache NAME from the topics anew.

    Search: new indices are filled, and readers search them then. The ones that are there are searched meanwhile, and
    kept for `cdc sink rollback`. Workers go on, and stand still for the last moment. When a column has another type
    now, or the sink's settings other fields, this is what makes them fit. Killed at any moment it can be run again.

    Cache: all rows of the sink are taken away, and the next `cdc sink run` brings them again; readers miss until then.
    No worker may run.
    """
    from cdc.config.settings import Cache
    from cdc.config.sink_kinds import sink_of
    from sinks.search.rebuild_job import RebuildRequest, rebuild_indices

    config = configuration(config_path)
    settings = sink_of(config, name)
    if isinstance(settings, Cache):
        if tables or accept_refused:
            raise UsageError("a cache is emptied as a whole", command=f"cdc sink rebuild {name}")
        _empty(config, name, settings, as_json)
        return
    _show(rebuild_indices, RebuildRequest(config, name, tables, accept_refused), as_json)


@click.command("rollback")
@click.argument("name")
@_tables
@config_option
@json_option
def rollback_command(name: str, tables: tuple[str, ...], config_path: Path | None, as_json: bool) -> None:
    """Have readers of the search sink NAME search the indices before the last rebuild, brought up to date first.

    Run it again to go forth again.
    """
    from sinks.search.rebuild_job import RebuildRequest, roll_back_indices

    _show(roll_back_indices, RebuildRequest(configuration(config_path), name, tables), as_json)


COMMANDS: Final = (rebuild_command, rollback_command)


def _empty(config: Config, name: str, settings: Cache, as_json: bool) -> None:
    from cdc.clock import SystemClock
    from sinks.cache.refill import empty_cache

    tables = empty_cache(config, name, settings, SystemClock())
    if as_json:
        output.show_json({"sink": name, "emptied": tables})
    else:
        output.done(f"{name} is empty ({', '.join(tables)}); `cdc sink run {name}` fills it")


def _show(work: Callable[[RebuildRequest, Clock], Iterator[SwapResult]], what: RebuildRequest, as_json: bool) -> None:
    from cdc.clock import SystemClock
    from cdc.telemetry import log

    log.configure(json=not sys.stderr.isatty())
    found = []
    for swapped in work(what, SystemClock()):
        found.append(swapped._asdict())
        if not as_json:
            refused = f", {swapped.refused} refused" if swapped.refused else ""
            output.done(f"{swapped.table}: {swapped.now}, {swapped.records} records{refused}")
    if as_json:
        output.show_json({"sink": what.sink, "tables": found})
