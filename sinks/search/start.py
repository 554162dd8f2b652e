"""Builds the target of a sink of kind `search`."""

from __future__ import annotations

from typing import Final

from cdc.clock import Clock, SystemClock
from cdc.config.settings import Config, Search
from sinks.search.index_positions import IndexPositions
from sinks.search.indices import Indices
from sinks.search.matches import MatchTopic
from sinks.search.opensearch_client import Client
from sinks.search.stored_queries import Matcher, Publisher, StoredQueries
from sinks.search.target import IndexOptions, SearchTarget

_MORE_CONNECTIONS: Final = 2
"""In addition to the requests under way: the runner's own thread sends requests too."""


def target(
    config: Config,
    name: str,
    settings: Search,
    *,
    clock: Clock | None = None,
    publisher: Publisher | None = None,
) -> SearchTarget:
    """Return the target of the sink `name`. No connection is made yet; raises SinkUnfit for unknown options.

    `publisher` receives the matches of stored queries instead of Kafka.
    """
    clock, indices = clock or SystemClock(), indices_of(config.name, name, settings)
    matcher = Matcher(StoredQueries(indices), publisher or MatchTopic(config, name), clock)
    book = IndexPositions(indices.client, config.name, name)
    return SearchTarget(indices, book, shape_of(settings), clock, watcher=matcher)


def indices_of(pipeline: str, name: str, settings: Search) -> Indices:
    """Return the indices of a sink."""
    client = Client(settings.url, settings.options, connections=settings.parallel + _MORE_CONNECTIONS, sink=name)
    return Indices(client, pipeline, name, settings.index)


def shape_of(settings: Search) -> IndexOptions:
    """Return the index options from the settings."""
    return IndexOptions(
        json=settings.json,
        fields=settings.fields,
        refresh_interval_s=settings.refresh_interval_s,
        gc_deletes_s=settings.gc_deletes_s,
    )
