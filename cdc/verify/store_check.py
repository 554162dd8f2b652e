"""Sets up the comparison of a search or cache store with its topics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from cdc.clock import Clock
from cdc.config.settings import Applied, Config
from cdc.config.sink_kinds import view_lakes
from cdc.errors import CutNotReached, ProgressDamaged, TopicMismatch, UsageError
from cdc.inspect.log_reading import tables as logged_tables
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.group_offsets import GroupAdmin, GroupOffsets
from cdc.kafka.log_reader import LogReader
from cdc.model.progress_record import SchemaRecord
from cdc.model.topic_names import schema_topic, sink_group, view_schema_topic
from cdc.patterns import matches
from cdc.progress.record_format import decode_schema
from cdc.verify.capture_wait import WAIT_S, Notify, PatientReader, silent
from cdc.verify.findings import TableFindings
from cdc.verify.key_states import Sample
from cdc.verify.sink_check import SinkComparison, check_topic
from sinks.contract import Change, Content, Target, Topic, Verifiable
from sinks.operate.dead_letter_view import BlockedKeyReader
from sinks.state.read_topics import woken

ProgressCallback = Callable[[str, str, int], None]
"""Receives table, step (``fold``, ``compare``, ``again``) and the number of records, rows or keys."""


def verify_store(
    config: Config,
    sink: str,
    target: Target,
    patterns: Sequence[str],
    *,
    clock: Clock,
    sample: Sample,
    repair: bool,
    on_progress: ProgressCallback = lambda _, __, ___: None,
    wait_s: float = WAIT_S,
    say: Notify = silent,
) -> list[TableFindings]:
    """Compare each table of a sink with its topic. The sink may run meanwhile, on any machine.

    A sink in state STALE or GAP may continue after all of it was repaired while no worker ran. Waits up to `wait_s` for
    Kafka; `say` receives a line about such a wait.

    Raises UsageError when no table matches, CutNotReached when the sink never ran, and errors of Kafka and the store.
    """
    settings = config.sinks[sink]
    assert isinstance(settings, Applied)
    if not isinstance(target, Verifiable):
        raise UsageError(
            f"cannot verify sink {sink!r}: its kind does not support comparison",
            hint="topics can be compared with the tables for every kind of sink",
            command="cdc verify --topics",
        )
    refuse_other_formats(config)
    with (
        PatientReader(config.kafka, wait_s=wait_s, say=say) as reader,
        BlockedKeyReader(config, sink) as blocked,
        contextlib.closing(GroupOffsets(config.kafka, sink_group(config.name, sink))) as offsets,
    ):
        topics = _topics(config, reader, [*settings.tables], patterns)
        if not topics:
            raise UsageError(
                f"no captured table of sink {sink!r} matches", hint="--table takes patterns of schema.table"
            )
        places = [(topic.topic, partition) for topic in topics for partition in range(topic.partition_count)]
        groups, group = GroupAdmin(config.kafka, client_id="tailrace-verify"), sink_group(config.name, sink)
        if not offsets.committed(places):
            raise CutNotReached(
                f"sink {sink!r} has not applied any record yet", hint="run it first", command=f"cdc sink run {sink}"
            )
        target.open(topics)
        sides = SinkComparison(
            reader=reader,
            target=target,
            committed=offsets.committed,
            blocked=blocked.of,
            content=_Contents(reader, config.name, target, view_lakes(config, settings.tables)).of,
            clock=clock,
            sample=sample,
            repair=repair,
        )
        found = [check_topic(sides, topic, partial(on_progress, topic.table)) for topic in topics]
        whole = repair and not patterns and sample.share >= 1 and all(one.ok for one in found)
        if whole and not groups.members(group):
            woken(config, sink, clock, reader.end_offsets([topic.topic for topic in topics]))
        return found


def refuse_other_formats(config: Config) -> None:
    """Raise UsageError unless the topics have Debezium's JSON envelope."""
    if config.encode.format != "json":
        raise UsageError(
            f'cannot compare a sink with topics in encode.format = "{config.encode.format}": sinks read only json',
            hint="compare topics in any format with the tables",
            command="cdc verify --topics",
        )


def _topics(config: Config, reader: LogReader, sink: Sequence[str], patterns: Sequence[str]) -> list[Topic]:
    wanted = [
        table
        for table in logged_tables(reader, config.name, view_lakes(config, sink))
        if table.key and matches(table.name, sink) and (not patterns or matches(table.name, patterns))
    ]
    facts = TopicAdmin(config.kafka, client_id="tailrace-verify").describe([table.topic for table in wanted])
    return [
        Topic(table.topic, found.topic_id, found.partition_count, table.name, table.key)
        for table in wanted
        if (found := facts[table.topic]) is not None
    ]


class _Contents:
    """Computes the content that the store would have for a change; prepares the target for each new schema first."""

    def __init__(self, reader: LogReader, name: str, target: Verifiable, lakes: Sequence[str]) -> None:
        self._reader = reader
        self._topic = schema_topic(name)
        self._topics = [self._topic, *(view_schema_topic(name, lake) for lake in lakes)]
        self._target = target
        self._schemas: Mapping[tuple[str, str], SchemaRecord] = {}
        self._prepared: set[tuple[str, str]] = set()

    def of(self, change: Change) -> Content | None:
        """See `Verifiable.content`. Raises TopicMismatch for a row whose schema record is missing."""
        at = (change.topic, change.schema_id)
        if change.row is not None and at not in self._prepared:
            if at not in self._schemas:
                self._schemas = self._read()
            if at not in self._schemas:
                raise TopicMismatch(
                    f"schema {change.schema_id} of a row in {change.topic} is missing in {self._topic}",
                    hint="the record was deleted, or the topic was recreated",
                    topic=change.topic,
                )
            self._target.prepare(self._schemas[at])
            self._prepared.add(at)
        return self._target.content(change)

    def _read(self) -> dict[tuple[str, str], SchemaRecord]:
        found: dict[tuple[str, str], SchemaRecord] = {}
        for topic in self._topics:
            with contextlib.suppress(TopicMismatch):  # a lake that has not published yet
                for _, value in self._reader.last_records(topic).values():
                    with contextlib.suppress(ProgressDamaged):
                        record = decode_schema(value, topic)
                        found[(record.topic, record.schema_id)] = record
        return found
