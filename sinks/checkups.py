"""Finds the checkup of a store by the kind of its sink, and imports it only when it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Final

from cdc.config.settings import Applied, Cache, Config, Plugin, Search
from sinks.store_findings import StoreFinding

_KINDS: Final[Mapping[type[Applied], str]] = {
    Search: "sinks.search.checkup",
    Cache: "sinks.cache.checkup",
    Plugin: "sinks.plugin.checkup",
}


def store_checkup(config: Config, name: str, settings: Applied) -> Iterable[StoreFinding]:
    """Return the findings about the store of a sink. Iterating raises SinkUnreachable and SinkUnfit."""
    found: Iterable[StoreFinding] = import_module(_KINDS[type(settings)]).checkup(config, name, settings)
    return found
