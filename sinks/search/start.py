"""Puts a sink of kind `search` together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cdc.clock import Clock, SystemClock
from sinks.search.index_positions import IndexPositions
from sinks.search.indices import Indices
from sinks.search.matches import MatchTopic
from sinks.search.opensearch_client import Client
from sinks.search.stored_queries import Matcher, Publisher, StoredQueries
from sinks.search.target import IndexOptions, SearchTarget

if TYPE_CHECKING:
    from cdc.config.settings import Config, Search

_MORE_CONNECTIONS: Final = 2
"""Beside those of requests under way: the runner's own thread asks too."""


def target(
    config: Config,
    name: str,
    settings: Search,
    *,
    clock: Clock | None = None,
    publisher: Publisher | None = None,
) -> SearchTarget:
    """The store of the sink `name`. No connection is made yet; raises SinkUnfit for options that nobody takes.

    `publisher` takes what stored queries match, in place of Kafka.
    """
    clock, indices = clock or SystemClock(), indices_of(config.name, name, settings)
    matcher = Matcher(StoredQueries(indices), publisher or MatchTopic(config, name), clock)
    book = IndexPositions(indices.client, config.name, name)
    return SearchTarget(indices, book, shape_of(settings), clock, watcher=matcher)


def indices_of(pipeline: str, name: str, settings: Search) -> Indices:
    """The indices of a sink."""
    client = Client(settings.url, settings.options, connections=settings.parallel + _MORE_CONNECTIONS, sink=name)
    return Indices(client, pipeline, name, settings.index)


def shape_of(settings: Search) -> IndexOptions:
    """What its settings say of its indices."""
    return IndexOptions(
        json=settings.json,
        fields=settings.fields,
        refresh_interval_s=settings.refresh_interval_s,
        gc_deletes_s=settings.gc_deletes_s,
    )
