"""Steps 1 to 5 of a start (`cdc.startup.protocol`): become the only writer of the log, and read its position back.

The order of the steps is what makes fail-over safe. They use only interfaces, so that the simulation runs this code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import OutcomeUnknown, ProgressDamaged, SourceError, TopicMismatch
from cdc.kafka.cluster_facts import TopicFacts
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.progress_record import Identity
from cdc.model.topic_names import signals_topic
from cdc.progress.restore import Restored, TopicReader, restore
from cdc.publish.publisher import KafkaPublisher
from cdc.publish.topic_setup import TopicDirectory
from cdc.replication.publication import PublicationFacts
from cdc.replication.slot import SlotFacts
from cdc.replication.stream import ServerIdentity
from cdc.startup.slot_setup import SourceServer
from cdc.startup.source_identity import (
    Source,
    check_identity,
    find_or_make_slot,
    identity_now,
    publish_tables,
    refuse_nothing_to_capture,
)
from cdc.startup.topic_check import control_topics, data_topics, refuse_orphans, without_topic
from cdc.startup.writer_claim import read_behind_sentinel

_FIRST_EPOCH: Final = 1


class Session(Protocol):
    """An open stream; `cdc.replication.stream.ReplicationSession` implements it."""

    @property
    def identity(self) -> ServerIdentity:
        """The server that sends the stream."""


S = TypeVar("S", bound=Session)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartConnections(Generic[S]):
    """The external systems that a start uses.

    Attributes:
        stream: opens the replication stream of the slot at a position and reads nothing. Raises SlotHeld.
        publisher: creates a publisher for an epoch of the log. It has not fenced other producers yet.
    """

    server: SourceServer
    reader: TopicReader
    admin: TopicDirectory
    stream: Callable[[Lsn, SlotFacts], S]
    publisher: Callable[[int], KafkaPublisher]
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Generic[S]):
    """The slot is held, every older producer is fenced, and the position of the log is known.

    Attributes:
        restored: the recorded state of the log, which no other process can change any more.
        data: the topics of tables and those beside them.
        signals: the topic of signals, which no recorded position depends on.
    """

    session: S
    publisher: KafkaPublisher
    epoch: int
    restored: Restored
    position: StreamPosition
    identity: Identity
    publication: PublicationFacts
    data: Mapping[str, TopicFacts]
    signals: TopicFacts


def claim_log(config: Config, source: Source, connections: StartConnections[S]) -> Claim[S]:
    """Take slot and log, or raise what forbids it. The caller closes session and publisher, also after an error.

    The stream is opened before the old producer is fenced: the slot is the lock. The other way round, a second daemon
    would stop a healthy one just by starting.

    Raises ProducerFenced if another process took both meanwhile.
    """
    reader, server = connections.reader, connections.server
    control = control_topics(config, connections.admin)
    before = restore(reader, config.name)  # 1
    publication = publish_tables(config, source, server, before)
    signals = control.pop(signals_topic(config.name))  # no position depends on it, so it may be created again
    data = _data_topics(config, connections.admin, source, before.identity)
    slot = find_or_make_slot(config, source, server, before)

    session = connections.stream(_position(before, slot).end_lsn, slot)  # 2
    epoch = before.progress.epoch if before.progress else _FIRST_EPOCH
    publisher = connections.publisher(epoch)
    publisher.fence()  # 3
    restored = read_behind_sentinel(config, reader, publisher, connections.clock)  # 4
    _refuse_stale(before, restored)
    position = _position(restored, slot)
    identity = identity_now(config, source, publication, session.identity, {**control, **data}, restored.identity)
    try:
        check_identity(server, restored, identity, slot, position)  # 5
        refuse_orphans(config.name, restored, reader, data)
    except (SourceError, ProgressDamaged, TopicMismatch):
        # Only the current writer may report a stop that needs an operator. A start may stall at any line while another
        # one takes over; what it compares afterwards is not the log that it read. Kafka refuses this sentinel then,
        # and the error is ProducerFenced.
        publisher.write_sentinel(b"")
        raise
    return Claim(
        session=session,
        publisher=publisher,
        epoch=epoch,
        restored=restored,
        position=position,
        identity=identity,
        publication=publication,
        data=data,
        signals=signals,
    )


def _data_topics(
    config: Config, admin: TopicDirectory, source: Source, recorded: Identity | None
) -> dict[str, TopicFacts]:
    """Return the topics. A table that is new since the last start and has no usable topic is left out."""
    try:
        return data_topics(config, admin, source.tables, recorded)
    except TopicMismatch:
        if recorded is None:
            raise
        left_out = without_topic(config, admin, source.tables, recorded)
        if not left_out:
            raise
    source.leave_out(left_out)
    refuse_nothing_to_capture(source)
    return data_topics(config, admin, source.tables, recorded)


def _refuse_stale(before: Restored, restored: Restored) -> None:
    """Raise if epoch or identity were not visible in step 1: nothing that was derived from `before` holds then.

    A repair happened in between, or the last commits of the predecessor were hidden (`LogFacts.hidden`).
    """
    if restored.progress is not None and (before.progress is None or restored.progress.epoch != before.progress.epoch):
        raise OutcomeUnknown(f"the log is in epoch {restored.progress.epoch} now; capture starts over")
    if restored.identity != before.identity:
        raise OutcomeUnknown("the log has newer records than were visible before; capture starts over")


def _position(restored: Restored, slot: SlotFacts) -> StreamPosition:
    """Return where to resume: the recorded position or, at the very first start, the beginning of the slot."""
    position = restored.position
    if position is not None:
        return position
    assert slot.confirmed_flush_lsn is not None
    return StreamPosition(slot.confirmed_flush_lsn)
