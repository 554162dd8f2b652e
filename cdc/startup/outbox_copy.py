"""Routes the rows that were in an outbox before capture saw it, once, before the stream is read.

Like the copy of tables without a key (`cdc.startup.keyless_copy`), it is one snapshot and one Kafka transaction, which
also records that the rows are done. Rows go in the order of `created_at` and key, because their commit order is
unknown.

After a repair (`cdc slot recreate`) a range of changes is unknown. Rows whose ids the event topics already have are
left out, so every available event is in the log once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from cdc.encode.envelope import snapshot_stamp
from cdc.errors import SourceUnreachable
from cdc.kafka.log_reader import LogReader
from cdc.model.change_records import TopicBuffer
from cdc.model.log_record import LogRecord
from cdc.model.outbox_record import OutboxRecord
from cdc.replication.connect import Connection
from cdc.replication.table_shape import SourceTable
from cdc.startup.keyless_copy import Copier
from cdc.startup.outbox_setup import OutboxStage
from cdc.telemetry import log
from cdc.wire import copy_text
from outbox.row_form import column_of
from snapshot import table_reader, whole_copy
from snapshot.chunk import Form

_AHEAD_BYTES: Final = 2 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxCopier(Copier):
    """Routes the rows of the outbox table."""

    stage: OutboxStage

    def run(self) -> None:
        """Route the rows. Returns when they are in the log. Raises like `Copier.copy`."""
        assert self.stage.table is not None
        self.copy([self.stage.table])

    def _place(self, connection: Connection, name: str, moment: whole_copy.SharedSnapshot, end_s: float) -> None:
        form, router = moment.forms.get(name), self.stage.router
        if form is None:
            raise SourceUnreachable(f"{name} is no longer published", table=name)
        rows = router.take(form.relation)
        assert rows is not None, "it is the outbox"
        identity = rows.form.id
        done = self._routed(connection, form, identity) if self.stage.missed else frozenset()
        # A position of its own, before everything that commits at the boundary: no commit record starts at an odd LSN.
        stamp = snapshot_stamp(self.position.end_lsn - 1, moment.at_us, self.epoch)
        buffers: dict[str, TopicBuffer] = {}
        for found in whole_copy.lines(connection, form, self._order(form)):
            part = found
            if done:
                count = len(form.relation.columns)
                part = [line for line in found if copy_text.texts(line, count)[identity] not in done]
            number, size = self._rows[name]
            size += rows.copied_keyless(part, stamp, number + 1)
            buffers.update((buffer.topic, buffer) for buffer in router.gather())
            self.publisher.write(list(buffers.values()), [])
            self._rows[name] = (number + len(part), size)
            self._go_on(name, end_s)

    def _order(self, form: Form) -> list[str]:
        """Return the columns to order by: oldest first, as far as the table has them."""
        assert self.config.outbox is not None
        there = [column.name for column in form.relation.columns]
        wanted = [column_of(there, self.config.outbox.columns, field) for field in ("created_at", "id")]
        return [column for column in wanted if column is not None]

    def _routed(self, connection: Connection, form: Form, identity: int) -> frozenset[bytes]:
        """Return the ids of rows that are in the table and in the log. The table bounds the memory, not the log."""
        relation = form.relation
        query = sql.SQL("select {}::text from {}").format(
            sql.Identifier(relation.columns[identity].name),
            table_reader.place(relation.namespace, relation.name, partitioned=form.partitioned),
        )
        there = {str(row[0]).encode() for row in connection.execute(query)}
        topics = self.stage.topics
        found: set[bytes] = set()
        with LogReader(self.config.kafka, client_id="tailrace-outbox", ahead_bytes=_AHEAD_BYTES) as log_reader:
            ends = log_reader.end_offsets(topics)
            begin = {at: low for at, (low, high) in ends.items() if low < high}
            until = {at: ends[at][1] for at in begin}
            for batch in log_reader.read(begin, until) if begin else ():
                found.update(_ids(batch) & there)
        log.get().info("outbox_searched", rows=len(there), routed=len(found))
        return frozenset(found)

    def _commit(self, tables: Iterable[SourceTable], moment: whole_copy.SharedSnapshot) -> None:
        for table in tables:
            rows, _ = self._rows[table.table]
            self.publisher.keep(
                OutboxRecord(
                    table=table.table,
                    relation=table.oid,
                    seen=moment.text,
                    seen_to_lsn=moment.inserted,
                    event_count=rows,
                )
            )
        self.stage.write(self.position)
        self.publisher.commit(self.position, self.verified())
        self.stage.written()


def route_existing(stage: OutboxStage, copier: Copier) -> bool:
    """Route the rows of the table, with the connections of `copier`. Returns False if there is nothing to route."""
    if not stage.missing:
        return False
    OutboxCopier(
        config=copier.config,
        clock=copier.clock,
        stop=copier.stop,
        sql=copier.sql,
        publisher=copier.publisher,
        planner=copier.planner,
        status=copier.status,
        verified=copier.verified,
        position=copier.position,
        epoch=copier.epoch,
        stage=stage,
    ).run()
    return True


def _ids(batch: list[LogRecord]) -> set[bytes]:
    return {value for record in batch for name, value in record.headers or () if name == "id"}
