"""The publication and slot of a start: the interface, and its implementation on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Protocol

from cdc.config.settings import Config
from cdc.lsn import Lsn
from cdc.model.timeline import TimelineSwitch
from cdc.replication import catalog_queries
from cdc.replication.blockers import Blocker
from cdc.replication.catalog_facts import names_of
from cdc.replication.connect import Connection, connect
from cdc.replication.generated_columns import publish_generated
from cdc.replication.publication import Ensured, PublicationFacts, ensure_publication, publication_facts
from cdc.replication.slot import CreationWatch, SlotFacts, create_slot, slot_facts
from cdc.replication.table_shape import SourceTable
from cdc.replication.timeline_history import timeline_history
from cdc.telemetry import log


class SourceServer(Protocol):
    """A database with the configured publication and slot. Every call may raise SourceError."""

    def publication(self) -> PublicationFacts | None:
        """Return the current publication; None if it does not exist."""

    def existing(self, oids: Collection[int]) -> frozenset[int]:
        """Return those of the pg_class.oid values that still exist."""

    def publish(self, tables: Sequence[SourceTable]) -> Ensured:
        """Create the publication, or add missing tables, if the configuration allows it."""

    def slot(self) -> SlotFacts:
        """Return the current slot."""

    def make_slot(self) -> SlotFacts:
        """Create the slot. Waits for open transactions, up to the configured time or until it is stopped."""

    def wal_end(self) -> Lsn:
        """Return where the next WAL record goes."""

    def timeline(self) -> int:
        """Return the server's current timeline."""

    def history(self, timeline: int) -> list[TimelineSwitch]:
        """Return where the earlier timelines were left."""


class PostgresServer:
    """Implements `SourceServer` on an open connection."""

    def __init__(self, config: Config, sql: Connection, stop: threading.Event) -> None:
        self._config = config
        self._sql = sql
        self._stop = stop

    def publication(self) -> PublicationFacts | None:
        """See `SourceServer.publication`."""
        return publication_facts(self._sql, self._config.publication)

    def existing(self, oids: Collection[int]) -> frozenset[int]:
        """See `SourceServer.existing`."""
        return frozenset(names_of(self._sql, oids))

    def publish(self, tables: Sequence[SourceTable]) -> Ensured:
        """See `SourceServer.publish`."""
        create = self._config.source.create
        ensured = ensure_publication(self._sql, self._config.publication, tables, create=create)
        return publish_generated(self._sql, ensured, tables, create)

    def slot(self) -> SlotFacts:
        """See `SourceServer.slot`."""
        return slot_facts(self._sql, self._config.slot)

    def make_slot(self) -> SlotFacts:
        """See `SourceServer.make_slot`."""
        config = self._config
        with connect(config.source.dsn, application_name="cdc slot watch") as second:
            watch = CreationWatch(second, _log_blockers, self._stop)
            timeout_s = config.source.slot_create_timeout_s
            create_slot(self._sql, config.slot, timeout_s, watch, failover=config.source.failover)
        return self.slot()

    def wal_end(self) -> Lsn:
        """See `SourceServer.wal_end`."""
        return catalog_queries.current_wal(self._sql)

    def timeline(self) -> int:
        """See `SourceServer.timeline`."""
        return catalog_queries.source_identity(self._sql).timeline

    def history(self, timeline: int) -> list[TimelineSwitch]:
        """See `SourceServer.history`."""
        return timeline_history(self._config.source.dsn, timeline)


def _log_blockers(blockers: Sequence[Blocker]) -> None:
    if blockers:
        log.get().info("slot_waits_for_transactions", count=len(blockers), oldest=blockers[0].what)
