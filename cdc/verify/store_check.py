"""Puts a comparison of a store with its topics together: search and cache."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

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
from sinks.contract import Change, Content, Target, Topic
from sinks.operate.dead_letter_view import BlockedKeyReader
from sinks.state.read_topics import woken

ProgressCallback = Callable[[str, str, int], None]
"""Table, what is done (``fold``, ``again``), and how many records or keys."""


def verify_store(
    config: Config,
    sink: str,
    target: Target,
    patterns: Sequence[str],
    *,
    clock: Clock,
    sample: Sample,
    repair: bool,
    told: ProgressCallback = lambda _, __, ___: None,
    wait_s: float = WAIT_S,
    say: Notify = silent,
) -> list[TableFindings]:
    """Compare each table of a sink with its topic. The sink may run meanwhile, here or elsewhere.

    A sink that was STALE or in GAP may go on when all of it was repaired while no worker ran. Kafka may be away for
    `wait_s`; `say` takes a line when that is waited for.

    Raises UsageError when no table fits, CutNotReached when the sink never ran, and what Kafka and the store say.
    """
    settings = config.sinks[sink]
    assert isinstance(settings, Applied)
    refuse_other_formats(config)
    with (
        PatientReader(config.kafka, wait_s=wait_s, say=say) as reader,
        BlockedKeyReader(config, sink) as blocked,
        contextlib.closing(GroupOffsets(config.kafka, sink_group(config.name, sink))) as offsets,
    ):
        topics = _topics(config, reader, [*settings.tables], patterns)
        if not topics:
            raise UsageError("no table of the sink fits", hint="--table takes patterns of schema.table")
        places = [(topic.topic, partition) for topic in topics for partition in range(topic.partition_count)]
        groups, group = GroupAdmin(config.kafka, client_id="tailrace-verify"), sink_group(config.name, sink)
        if not offsets.committed(places):
            raise CutNotReached(
                f"sink {sink!r} has not applied anything yet", hint="let it run first", command=f"cdc sink run {sink}"
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
        found = [check_topic(sides, topic, lambda what, n, topic=topic: told(topic.table, what, n)) for topic in topics]  # type: ignore[misc]
        whole = repair and not patterns and sample.share >= 1 and all(one.ok for one in found)
        if whole and not groups.members(group):
            woken(config, sink, clock, reader.end_offsets([topic.topic for topic in topics]))
        return found


def refuse_other_formats(config: Config) -> None:
    """Raises UsageError unless the topics have Debezium's JSON envelope."""
    if config.encode.format != "json":
        raise UsageError(
            f'encode.format = "{config.encode.format}": sinks read the format json only, so there is none to compare',
            hint="topics in every format can be compared with the tables",
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
    """What the store would have of a change; it is told of each schema before the first row of it."""

    def __init__(self, reader: LogReader, name: str, target: Target, lakes: Sequence[str]) -> None:
        self._reader = reader
        self._topic = schema_topic(name)
        self._topics = [self._topic, *(view_schema_topic(name, lake) for lake in lakes)]
        self._target = target
        self._schemas: Mapping[tuple[str, str], SchemaRecord] = {}
        self._prepared: set[tuple[str, str]] = set()

    def of(self, change: Change) -> Content | None:
        """See `Target.content`. Raises TopicMismatch for a row of a schema that nobody wrote."""
        at = (change.topic, change.schema_id)
        if change.row is not None and at not in self._prepared:
            if at not in self._schemas:
                self._schemas = self._read()
            if at not in self._schemas:
                raise TopicMismatch(
                    f"a row of {change.topic} names schema {change.schema_id}, which {self._topic} does not have",
                    hint="somebody removed the record, or made the topic again",
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
