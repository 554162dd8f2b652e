"""Empties a cache and resets the offsets of its sink, so that the next run refills it: `cdc sink rebuild`.

Part of the composition root beside `cdc.run.app`: it names concrete classes.
"""

from __future__ import annotations

from collections.abc import Sequence

from cdc.clock import Clock
from cdc.config.settings import Cache, Config
from cdc.errors import SinkUnfit, UsageError
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.group_offsets import GroupAdmin
from cdc.kafka.log_reader import LogReader
from cdc.model.topic_names import sink_group
from sinks.cache.start import target
from sinks.contract import Topic
from sinks.state.exclusive import claimed
from sinks.state.pause import paused
from sinks.state.read_topics import forget
from sinks.state.schema_follower import SchemaFollower


def empty_cache(config: Config, sink: str, settings: Cache, clock: Clock) -> list[str]:
    """Delete every row and mark of the sink's tables, its offsets and its positions; return the tables.

    Readers get misses until the rows are written again. After a crash at any moment it can be repeated. Raises
    SinkUnfit while workers run, SinkBusy while another command runs, and errors of Kafka and the store.
    """
    with claimed(config, sink, "rebuild", clock):
        _refuse_workers(config, sink)
        topics = _topics(config, settings, clock)
        if not topics:
            raise UsageError(f"sink {sink!r} has no tables yet", hint="there is nothing to delete")
        # A worker that starts from now on waits until this has ended; one that started before is found now.
        with paused(config, sink, clock):
            _refuse_workers(config, sink)
            _empty(config, sink, settings, topics)
    return [topic.table for topic in topics]


def _refuse_workers(config: Config, sink: str) -> None:
    workers = len(GroupAdmin(config.kafka).members(sink_group(config.name, sink)))
    if workers:
        raise SinkUnfit(
            f"sink {sink!r} is running ({workers} in its group), and would continue at its current offsets",
            hint="stop its workers first; a killed worker counts until its session ends",
            command=f"cdc sink status {sink}",
            sink=sink,
        )


def _empty(config: Config, sink: str, settings: Cache, topics: Sequence[Topic]) -> None:
    # Offsets first: after a crash in between, the next run starts from the beginning, over older or equal rows.
    forget(config, sink)
    store = target(config, sink, settings)
    try:
        store.forget(topics)
    finally:
        store.close()


def _topics(config: Config, settings: Cache, clock: Clock) -> Sequence[Topic]:
    with LogReader(config.kafka, client_id="tailrace-rebuild") as reader:
        book = SchemaFollower(reader, config.name, settings.tables, clock)
        book.look()
        tables = book.tables()
    found = TopicAdmin(config.kafka).describe(sorted(tables))
    return [
        Topic(topic, facts.topic_id, facts.partition_count, tables[topic].table, tables[topic].key)
        for topic, facts in found.items()
        if facts is not None
    ]
