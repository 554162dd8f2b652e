"""Checks a sink of another package for `cdc doctor`: its package, its options, and what the package itself checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from cdc.config.settings import Config, Plugin
from cdc.config.sink_plugins import package, plugin
from sinks.plugin.start import target
from sinks.store_findings import Inspectable, StoreFinding


def checkup(config: Config, name: str, settings: Plugin) -> Iterator[StoreFinding]:
    """Yield the findings. Raises SinkUnfit when the target cannot be built, and errors of the package's checks."""
    with closing(target(config, name, settings)) as made:
        entry = plugin(settings.plugin)
        where = f" of {package(entry)}" if entry is not None else ""
        yield StoreFinding("ok", "sink_plugin", f"kind {settings.plugin!r}{where}")
        if isinstance(made, Inspectable):
            yield from made.checkup()
