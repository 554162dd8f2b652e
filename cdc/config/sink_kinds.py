"""Sinks of a configuration by name and kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from cdc.config.settings import Applied, Config, Plugin, Sink, Warehouse
from cdc.errors import UsageError

_S = TypeVar("_S")
_VIEWS = "views."  # `cdc.model.topic_names.VIEWS`, which is beside this layer


def sink_of(config: Config, name: str) -> Sink:
    """The section of a sink. Raises UsageError with what there is."""
    return _found(config.sinks, name, "sink")


def lake_of(config: Config, name: str) -> Warehouse:
    """The section of a sink of kind `warehouse`. Raises UsageError with what there is."""
    return _found(lakes(config), name, "warehouse sink")


def applied_of(config: Config, name: str) -> Applied:
    """The section of a sink that applies one key at a time. Raises UsageError for another kind."""
    settings = sink_of(config, name)
    if not isinstance(settings, Applied):
        raise UsageError(
            f"sink {name!r} is a warehouse, which takes whole cuts: this is for search and cache",
            hint="end its process to pause it; nothing is lost by that",
        )
    return settings


def kind_of(sink: Sink) -> str:
    """Return the `kind` of a sink, as written in the configuration."""
    return sink.plugin if isinstance(sink, Plugin) else str(type(sink).__struct_config__.tag)


def lakes(config: Config) -> dict[str, Warehouse]:
    """The sinks of kind `warehouse`."""
    return {name: sink for name, sink in config.sinks.items() if isinstance(sink, Warehouse)}


def view_lakes(config: Config, patterns: Sequence[str]) -> list[str]:
    """The warehouse sinks whose published views a sink of these patterns may keep.

    Views are asked for by their schema, as ``views.*``: ``*.*`` means captured tables, so that no sink gets a view
    that nobody meant for it.
    """
    if not any(pattern.startswith(_VIEWS) for pattern in patterns):
        return []
    return [name for name, lake in lakes(config).items() if lake.views]


def _found(sinks: Mapping[str, _S], name: str, what: str) -> _S:
    if name not in sinks:
        known = ", ".join(sorted(sinks))
        raise UsageError(
            f"there is no {what} {name!r} in the configuration",
            hint=f"it has {known}" if known else "add a table [sinks.NAME]",
        )
    return sinks[name]
