"""Puts a sink of kind `search` together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cdc.clock import Clock, SystemClock
from sinks.search.client import Client
from sinks.search.indices import Indices
from sinks.search.placebook import PlaceBook
from sinks.search.target import SearchTarget, Shape

if TYPE_CHECKING:
    from cdc.config.settings import Config, Search

_MORE_CONNECTIONS: Final = 2
"""Beside those of requests under way: the runner's own thread asks too."""


def target(config: Config, name: str, settings: Search, *, clock: Clock | None = None) -> SearchTarget:
    """The store of the sink `name`. No connection is made yet; raises SinkUnfit for options that nobody takes."""
    indices = indices_of(config.name, name, settings)
    return SearchTarget(
        indices, PlaceBook(indices.client, config.name, name), shape_of(settings), clock or SystemClock()
    )


def indices_of(pipeline: str, name: str, settings: Search) -> Indices:
    """The indices of a sink."""
    client = Client(settings.url, settings.options, connections=settings.parallel + _MORE_CONNECTIONS, sink=name)
    return Indices(client, pipeline, name, settings.index)


def shape_of(settings: Search) -> Shape:
    """What its settings say of its indices."""
    return Shape(
        json=settings.json,
        fields=settings.fields,
        refresh_interval_s=settings.refresh_interval_s,
        gc_deletes_s=settings.gc_deletes_s,
    )
