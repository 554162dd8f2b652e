"""Finds the sinks of a configuration by name and kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from cdc.config.settings import Applied, Config, Plugin, Sink, Warehouse
from cdc.errors import UsageError

_S = TypeVar("_S")
_VIEWS = "views."  # `cdc.model.topic_names.VIEWS`, which this layer must not import


def sink_of(config: Config, name: str) -> Sink:
    """Return the section of a sink. Raises UsageError that lists the sinks."""
    return _found(config.sinks, name, "sink")


def lake_of(config: Config, name: str) -> Warehouse:
    """Return the section of a sink of kind `warehouse`. Raises UsageError that lists the warehouse sinks."""
    return _found(lakes(config), name, "warehouse sink")


def applied_of(config: Config, name: str) -> Applied:
    """Return the section of a sink that applies one key at a time. Raises UsageError for other kinds."""
    settings = sink_of(config, name)
    if not isinstance(settings, Applied):
        raise UsageError(
            f"sink {name!r} is a warehouse; expected a sink of kind search or cache",
            hint="to pause a warehouse, stop its process; nothing is lost",
        )
    return settings


def kind_of(sink: Sink) -> str:
    """Return the `kind` of a sink, as written in the configuration."""
    return sink.plugin if isinstance(sink, Plugin) else str(type(sink).__struct_config__.tag)


def lakes(config: Config) -> dict[str, Warehouse]:
    """Return the sinks of kind `warehouse`."""
    return {name: sink for name, sink in config.sinks.items() if isinstance(sink, Warehouse)}


def view_lakes(config: Config, patterns: Sequence[str]) -> list[str]:
    """Return the warehouse sinks whose published views match a sink with these patterns.

    A pattern selects views only by their schema, as in ``views.*``. ``*.*`` selects captured tables only, so that no
    sink receives views by accident.
    """
    if not any(pattern.startswith(_VIEWS) for pattern in patterns):
        return []
    return [name for name, lake in lakes(config).items() if lake.views]


def _found(sinks: Mapping[str, _S], name: str, what: str) -> _S:
    if name not in sinks:
        known = ", ".join(sorted(sinks))
        raise UsageError(
            f"no {what} {name!r} in the configuration",
            hint=f"configured: {known}" if known else "add a table [sinks.NAME]",
        )
    return sinks[name]
