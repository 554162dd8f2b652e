"""Empties a cache and what its sink knows of the log, so that the next run fills it anew: `cdc sink rebuild`.

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
    """Take away every row and mark of the sink's tables, its offsets and its positions; the tables.

    Readers miss until the rows come again. Killed at any moment it can be done again. Raises SinkUnfit while workers
    run, SinkBusy while somebody else is at it, and what Kafka and the store say.
    """
    with claimed(config, sink, "rebuild", clock):
        _refuse_workers(config, sink)
        topics = _topics(config, settings, clock)
        if not topics:
            raise UsageError(f"sink {sink!r} keeps no table yet", hint="there is nothing to take away")
        # A worker that comes meanwhile does nothing before this has ended; one that came before is seen now.
        with paused(config, sink, clock):
            _refuse_workers(config, sink)
            _empty(config, sink, settings, topics)
    return [topic.table for topic in topics]


def _refuse_workers(config: Config, sink: str) -> None:
    workers = len(GroupAdmin(config.kafka).members(sink_group(config.name, sink)))
    if workers:
        raise SinkUnfit(
            f"sink {sink!r} is running ({workers} in its group), and would write on from where it is",
            hint="stop them first; one that was killed is counted until its session is over",
            command=f"cdc sink status {sink}",
            sink=sink,
        )


def _empty(config: Config, sink: str, settings: Cache, topics: Sequence[Topic]) -> None:
    # The offsets go first: whoever is killed in between begins anew over rows that are older or the same.
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
