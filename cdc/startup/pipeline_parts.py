"""Makes the parts of a pipeline from the configuration and from what a start has found (`cdc.startup.protocol`)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from cdc.capture.assembler import Assembler, BatchLimits
from cdc.capture.side_topics import SideTopics
from cdc.capture.table_planner import TablePlanner
from cdc.capture.transaction_spans import TracedSideTopics, TransactionSpans
from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.encode.side_records import SideRecords
from cdc.kafka.log_reader import LogReader
from cdc.kafka.schema_registry import ConfluentRegistry
from cdc.model.change_records import StreamPosition, TopicBuffer
from cdc.model.incomplete_record import IncompleteRecords
from cdc.model.topic_names import message_topic, transaction_topic
from cdc.model.type_facts import FIRST_USER_OID, TypeFacts
from cdc.progress.restore import recorded_forms
from cdc.replication import catalog_queries
from cdc.replication.catalog_watch import CatalogWatch
from cdc.replication.connect import Connection, deadline
from cdc.replication.key_read import read_by_key
from cdc.replication.reselect import Reselector
from cdc.startup.outbox_setup import OutboxStage
from cdc.startup.source_identity import Source
from cdc.startup.topic_check import LedgerTopics, side_topics
from cdc.telemetry.capture_status import Status
from cdc.telemetry.spans import Sampler
from snapshot.chunk import JoinedChunk
from snapshot.handover import HandOver

ANSWER_S: Final = 30.0  # a query about one relation takes milliseconds


def planner_of(
    config: Config,
    source: Source,
    accounts: LedgerTopics,
    reader: LogReader,
    closing: ExitStack,
    *,
    epoch: int,
    holes: IncompleteRecords,
) -> TablePlanner:
    """Return the planner of tables, with the catalog of the source and a registry if the format needs one."""
    return TablePlanner(
        config,
        source.identity.database,
        _Catalog(source.sql),
        accounts.open_topic,
        registry=_registry(config, closing),
        epoch=epoch,
        forms=recorded_forms(reader, config.name),
        holes=holes,
    )


def _registry(config: Config, closing: ExitStack) -> ConfluentRegistry | None:
    if config.encode.format != "avro":
        return None
    registry = ConfluentRegistry(config.registry)
    closing.callback(registry.close)
    return registry


class _Catalog:
    """Implements `cdc.capture.table_planner.Catalog` on an open connection, which is cut if an answer is late."""

    def __init__(self, sql: Connection) -> None:
        self._sql = sql
        self._built_in: dict[int, TypeFacts] = {}  # these never change, and most tables have no others

    def key_columns(self, oid: int, wanted: Sequence[str]) -> tuple[str, ...]:
        with deadline(self._sql, ANSWER_S):
            return catalog_queries.key_columns(self._sql, oid, wanted)

    def ancestors(self, oid: int) -> list[str]:
        with deadline(self._sql, ANSWER_S):
            return catalog_queries.ancestors(self._sql, oid)

    def generated_columns(self, oid: int) -> list[str]:
        with deadline(self._sql, ANSWER_S):
            return catalog_queries.generated_columns(self._sql, oid)

    def types(self, oids: Sequence[int]) -> dict[int, TypeFacts]:
        unknown = [oid for oid in oids if oid not in self._built_in]
        found: dict[int, TypeFacts] = {}
        if unknown:
            with deadline(self._sql, ANSWER_S):
                found = catalog_queries.types(self._sql, unknown)
        self._built_in |= {oid: facts for oid, facts in found.items() if oid < FIRST_USER_OID}
        return found | {oid: self._built_in[oid] for oid in oids if oid in self._built_in}


def assembler_of(
    config: Config,
    position: StreamPosition,
    epoch: int,
    side: SideTopics,
    hand_over: HandOver,
    outbox: OutboxStage | None,
) -> Assembler:
    """Return the assembler, which begins at this position."""
    caps = BatchLimits(config.capture.batch_rows_max, config.capture.batch_bytes_max)
    on_truncate = config.source.on_truncate
    stages = [outbox.router] if outbox else []
    return Assembler(
        position, epoch=epoch, caps=caps, on_truncate=on_truncate, side=side, snapshots=hand_over, stages=stages
    )


def reselector_of(
    sql: Connection,
    holes: IncompleteRecords,
    clock: Clock,
    stop: threading.Event,
    status: Status,
    watch: CatalogWatch,
    hand_over: HandOver,
) -> Reselector:
    """Return what reads unchanged large values from the tables."""
    read = partial(read_by_key, sql)
    return Reselector(read, holes, clock, stop, observer=status, healthy=watch.verified, owe=hand_over.owe)


def spans_of(config: Config, status: Status, clock: Clock, hand_over: HandOver) -> list[TransactionSpans]:
    """Return the maker of spans, which gets the chunks of snapshots, too; an empty list without tracing."""
    if status.spans is None:
        return []
    spans = TransactionSpans(config.name, Sampler(config.name, config.otel.sample_ratio), status.spans, clock)

    def joined(one: JoinedChunk) -> None:
        spans.chunk(one.table, one.number, began_s=one.began_s, row_count=one.row_count, byte_count=one.size)

    hand_over.chunk_joined = joined
    return [spans]


def traced(stages: list[OutboxStage], spans: Sequence[TransactionSpans]) -> list[OutboxStage]:
    """Have these stages report their events to the maker of spans, if there is one."""
    for stage in stages:
        stage.router.traced = spans[0].event if spans else None
    return stages


def side_topics_of(config: Config, database: str, spans: Sequence[TransactionSpans]) -> SideTopics:
    """Return the topics of transactions and messages that the configuration asks for."""
    asked = side_topics(config)

    def buffer(topic: str) -> TopicBuffer | None:
        return TopicBuffer(topic, 1, compacted=False) if topic in asked else None

    made = (TracedSideTopics if spans else SideTopics)(
        SideRecords(config.name, database),
        transactions=buffer(transaction_topic(config.name)),
        messages=buffer(message_topic(config.name)),
        row_bytes_max=config.capture.row_bytes_max,
    )
    if isinstance(made, TracedSideTopics):
        made.spans = spans[0]
    return made
