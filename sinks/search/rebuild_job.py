"""Builds the rebuild of search indices from Kafka, OpenSearch, and the pause of the sink's workers.

Part of the composition root beside `cdc.run.app`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from cdc.clock import Clock
from cdc.config.settings import Config, Search
from cdc.config.sink_kinds import sink_of, view_lakes
from cdc.errors import SinkUnfit, TopicMismatch, UsageError
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.group_member import CommittedOffset
from cdc.kafka.group_offsets import GroupAdmin
from cdc.kafka.log_reader import LogReader
from cdc.model.progress_record import SchemaRecord
from cdc.model.topic_names import schema_topic, sink_group, view_schema_topic
from cdc.patterns import matches
from cdc.progress.record_format import decode_schema
from sinks.contract import Topic
from sinks.runner.key_fold import by_key, change_of
from sinks.search.index_positions import IndexPositions
from sinks.search.mapping import PLAIN, form_of, source_of
from sinks.search.matches import MatchTopic
from sinks.search.rebuild import RebuildContext, SwapResult, rebuild, roll_back
from sinks.search.start import indices_of, shape_of
from sinks.search.stored_queries import LOOK_S, StoredQueries
from sinks.state.exclusive import claimed
from sinks.state.offset_metadata import metadata, window_of
from sinks.state.pause import paused
from sinks.state.read_topics import ReadPartitions
from sinks.state.schema_follower import SchemaFollower
from sinks.state.state_topic import StateTopic

_HEARD_S: Final = 1.0
"""For requests that a worker sent before it noticed the query."""
_SLACK: Final = 0.8
"""Share of the time that a topic keeps deletes: compaction is not punctual, and applying records takes time."""


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    """The sink and tables to rebuild; `accept_refused` as in `RebuildContext`."""

    config: Config
    sink: str
    tables: Sequence[str] = ()
    accept_refused: bool = False


def search_of(config: Config, sink: str) -> Search:
    """Return the section of a search sink. Raises UsageError for another kind."""
    settings = sink_of(config, sink)
    if not isinstance(settings, Search):
        raise UsageError(
            f"sink {sink!r} is not of kind search",
            hint="`cdc sink rebuild` also refills a cache; give a lake a new path, and other sinks a new name",
        )
    return settings


def rebuild_indices(what: RebuildRequest, clock: Clock) -> Iterator[SwapResult]:
    """Rebuild the index of each table, one after the other. Raises SinkBusy while another command runs."""
    with claimed(what.config, what.sink, "rebuild", clock), open_rebuild(what, clock) as (shop, tables):
        for topic, _ in tables:
            swapped = rebuild(shop, topic)
            _settle(what, topic, swapped, clock)
            yield swapped


def roll_back_indices(what: RebuildRequest, clock: Clock) -> Iterator[SwapResult]:
    """Roll back the index of each table. Raises SinkBusy while another command runs."""
    with claimed(what.config, what.sink, "rollback", clock), open_rebuild(what, clock) as (shop, tables):
        for topic, remembers_ms in tables:
            yield roll_back(shop, topic, remembers_ms=remembers_ms)


def replay_query(shop: RebuildContext, config: Config, sink: str, topic: Topic, name: str) -> int:
    """Publish the matches of a query for all rows in the topic; return their number. Repeating it is harmless.

    It starts when every worker has noticed the query, so no row is missed.
    """
    shop.clock.wait(threading.Event(), LOOK_S + _HEARD_S)
    book, publisher = StoredQueries(shop.indices), MatchTopic(config, sink)
    forms = {
        record.schema_id: form_of(record, shop.shape.fields.get(record.table, {}), shop.shape.json)
        for record in shop.schemas.all(topic.topic)
    }
    ends, count = shop.reader.end_offsets([topic.topic]), 0
    begins, until = {at: low for at, (low, _) in ends.items()}, {at: high for at, (_, high) in ends.items()}
    try:
        for batch in shop.reader.read(begins, until):
            changes = [change_of(records) for records in by_key(batch).values()]
            rows = [(each, source_of(each.row, forms.get(each.schema_id, PLAIN))) for each in changes if each.row]
            matches = list(book.matches(topic, rows, only=name))
            publisher.publish(matches)
            count += len(matches)
    finally:
        publisher.close()
    return count


def _settle(what: RebuildRequest, topic: Topic, swapped: SwapResult, clock: Clock) -> None:
    """Commit the positions of the new index if the sink has no workers, so that a STALE or GAP sink can continue.

    Running workers continue by themselves from an earlier offset, which is harmless.
    """
    admin, group = GroupAdmin(what.config.kafka), sink_group(what.config.name, what.sink)
    if admin.members(group):
        return
    mark = metadata(topic.topic_id, clock.wall_s())
    places = {(topic.topic, partition): at for partition, at in swapped.positions.items()}
    state = StateTopic(what.config, what.sink)
    try:
        ReadPartitions(state).committed(dict.fromkeys(places, topic.topic_id))
        admin.alter(group, {place: CommittedOffset(at, mark) for place, at in places.items()})
    finally:
        state.close()


@contextmanager
def open_rebuild(what: RebuildRequest, clock: Clock) -> Iterator[tuple[RebuildContext, list[tuple[Topic, int]]]]:
    """Open the parts; yield them and the topics, each with the time in ms that it keeps deletes."""
    config, settings = what.config, search_of(what.config, what.sink)
    with ExitStack() as closing:
        client_id = f"{config.name}.sink.{what.sink}.rebuild"
        reader, other = (closing.enter_context(LogReader(config.kafka, client_id=client_id)) for _ in range(2))
        lakes = view_lakes(config, settings.tables)
        tables = _tables(what, settings, SchemaFollower(other, config.name, settings.tables, clock, lakes=lakes))
        indices = indices_of(config.name, what.sink, settings)
        closing.callback(indices.client.close)
        yield (
            RebuildContext(
                indices=indices,
                book=IndexPositions(indices.client, config.name, what.sink),
                shape=shape_of(settings),
                reader=reader,
                schemas=_Schemas(
                    other, [schema_topic(config.name), *(view_schema_topic(config.name, one) for one in lakes)]
                ),
                paused=lambda: paused(config, what.sink, clock),
                clock=clock,
                accept_refused=what.accept_refused,
                parallel=settings.parallel,
                request_records=settings.request_records,
            ),
            tables,
        )


def _tables(what: RebuildRequest, settings: Search, book: SchemaFollower) -> list[tuple[Topic, int]]:
    """Return the topics, and how many ms each keeps deletes."""
    book.look()
    kept = {topic: record for topic, record in book.tables().items() if matches(record.table, settings.tables)}
    missing = sorted(set(what.tables) - {record.table for record in kept.values()})
    if missing or not kept:
        there = ", ".join(sorted(record.table for record in kept.values())) or "none"
        raise UsageError(f"sink {what.sink!r} has no table {', '.join(missing) or 'yet'}", hint=f"its tables: {there}")
    found = []
    for topic, facts in TopicAdmin(what.config.kafka).describe(sorted(kept)).items():
        record = kept[topic]
        if what.tables and record.table not in what.tables:
            continue
        if facts is None:
            raise SinkUnfit(f"topic {topic!r} does not exist", hint="capture the table first", topic=topic)
        remembers_s = window_of(facts.configs).delete_s
        remembers_ms = (1 << 62) if remembers_s is None else int(remembers_s * 1000 * _SLACK)
        place = Topic(topic, facts.topic_id, facts.partition_count, record.table, record.key)
        found.append((place, remembers_ms))
    return found


class _Schemas:
    """See `sinks.search.rebuild.Schemas`."""

    def __init__(self, reader: LogReader, topics: Sequence[str]) -> None:
        self._reader = reader
        self._topics = topics

    def all(self, topic: str) -> Sequence[SchemaRecord]:
        """See `Schemas`."""
        found: list[tuple[int, SchemaRecord]] = []
        for schemas in self._topics:
            with contextlib.suppress(TopicMismatch):  # a lake that has not published yet
                newest = self._reader.last_records(schemas).values()
                found += [(at, decode_schema(value, schemas)) for at, value in newest]
        return [record for _, record in sorted(found, key=lambda each: -each[0]) if record.topic == topic]
