"""Tables without a key are copied once, before the stream is read: a step of a start, behind its first cut.

The copy is one Kafka transaction: the rows, and the record that the table is complete. Whatever dies before its commit,
nothing of it is ever visible, and the next start copies anew. Meanwhile the stream waits in the WAL, so no event of the
table is in the log before its copy; when it flows, `snapshot.keyless_rule` leaves out what the copy has.

A table whose topic has something already can not be copied exactly any more, and is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cdc.capture.table_planner import TablePlanner
from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.encode.envelope import snapshot_stamp
from cdc.errors import SlotBlocked, SourceRefused, SourceUnreachable
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.snapshot_record import SnapshotNotes, SnapshotRecord
from cdc.model.topic_names import data_topic
from cdc.model.visibility import PgSnapshot
from cdc.progress.restore import Restored
from cdc.publish.publisher import KafkaPublisher
from cdc.replication.blockers import blockers
from cdc.replication.connect import Connection, connect
from cdc.replication.table_shape import SourceTable
from cdc.telemetry import log
from cdc.telemetry.capture_status import Status
from snapshot import table_reader, whole_copy
from snapshot.keyless_rule import KeylessCopy

_LOOK_S: Final = 0.1  # between looks at who is open, or in the way
_ANSWER_S: Final = 30.0  # a server that is silent for longer is gone
_COMMIT_S: Final = 60  # of the Kafka transaction's time, for what comes after the last row

Untouched = Callable[[str, bool], bool]
"""Whether nothing was ever published to a topic; the flag: since its copy was begun, which failed ones do not count."""


class KeylessTables:
    """Which tables without a key are to be copied, and which were.

    Attributes:
        missing: to be copied before anything of them may be published.
        refused: not complete, and their topics have events.
    """

    def __init__(
        self,
        config: Config,
        tables: Sequence[SourceTable],
        records: Mapping[str, SnapshotRecord],
        untouched: Untouched,
    ) -> None:
        """`records` are what the log has of snapshots."""
        self._records = {
            table.table: record
            for table in tables
            if not table.key and (record := records.get(table.table)) is not None and record.relation == table.oid
        }
        self.missing: list[SourceTable] = []
        self.refused: list[SourceTable] = []
        for table in tables:
            record = self._records.get(table.table)
            wanted = not table.key and config.snapshot.wants(table.table)
            if not wanted or (record is not None and record.state == "complete"):
                continue
            topic = data_topic(config.name, table.namespace, table.name)
            (self.missing if untouched(topic, record is not None) else self.refused).append(table)

    def states(self) -> dict[str, str]:
        """What the cut index says of those that are not complete."""
        begun = {name for name, record in self._records.items() if record.state != "complete"}
        return dict.fromkeys(begun | {table.table for table in self.missing}, "snapshotting")

    def noted(self, notes: SnapshotNotes, position: StreamPosition) -> SnapshotNotes:
        """`notes`, and that these are not complete."""
        begun = {
            table.table: SnapshotRecord(
                table=table.table, relation=table.oid, state="running", began_lsn=position.end_lsn
            )
            for table in self.missing
        }
        return replace(notes, records={**notes.records, **begun})

    def copies(self) -> dict[str, KeylessCopy]:
        """Of those that are complete, what is in the copy."""
        return {
            name: KeylessCopy(PgSnapshot.parse(record.seen), Lsn(record.seen_to_lsn))
            for name, record in self._records.items()
            if record.state == "complete" and record.seen
        }

    def copied_by(self, copier: Copier) -> bool:
        """Have copied what is missing. False: nothing is; those that are captured without their rows are told."""
        if self.missing:
            copier.copy(self.missing)
            return True
        for table in self.refused:
            log.get().warning(
                "keyless_not_copied",
                table=table.table,
                reason="its topic has events already, so a copy would have some of its rows twice",
                hint="under another `name` capture starts anew",
            )
        return False


def untouched(reader: LogReader, restored: Restored) -> Untouched:
    """By what the cut index counted where it counted from the beginning, else by the topic's end."""

    def ask(topic: str, begun: bool) -> bool:  # noqa: FBT001 - see `Untouched`
        counts = [count for at, (_, count, _) in restored.accounts.items() if at.rpartition("-")[0] == topic]
        if begun and counts and not restored.since_lsn:
            return not any(counts)
        return all(high == 0 for _, high in reader.end_offsets([topic]).values())

    return ask


def transaction_s(
    config: Config, tables: Sequence[SourceTable], records: Mapping[str, SnapshotRecord], *, outbox: bool = False
) -> int:
    """How long a Kafka transaction of this start may have to last; 0 when there is nothing to copy.

    `outbox`: the rows of one are to be routed.
    """
    known = {name for name, record in records.items() if record.state == "complete"}
    waiting = any(not table.key and table.table not in known and config.snapshot.wants(table.table) for table in tables)
    return config.snapshot.copy_max_s + _COMMIT_S if waiting or outbox else 0


@dataclass(frozen=True, slots=True)
class Copier:
    """Copies tables, all in one snapshot and one Kafka transaction."""

    config: Config
    clock: Clock
    stop: threading.Event
    sql: Connection
    publisher: KafkaPublisher
    planner: TablePlanner
    status: Status
    verified: Callable[[], Lsn]
    position: StreamPosition
    epoch: int
    _rows: dict[str, tuple[int, int]] = field(default_factory=dict)

    def copy(self, tables: Sequence[SourceTable]) -> None:
        """Returns when they are complete in the log.

        Raises SlotBlocked when others are in the way for too long, SourceRefused when it takes longer than
        `snapshot.copy_max_s`, SourceUnreachable, and what publishing raises.
        """
        self._rows.update((table.table, (0, 0)) for table in tables)
        unreport = self.status.report_snapshots(self._report)
        try:
            until_s = self.clock.monotonic_s() + self.config.source.slot_create_timeout_s
            self._await_open(until_s)
            with connect(self.config.source.dsn, application_name="cdc snapshot") as connection:
                moment = self._read(connection, tables, until_s)
            self._await_flushed(moment.inserted)
            self._commit(tables, moment)
        finally:
            unreport()
        log.get().info("keyless_copied", tables=len(tables), rows=sum(rows for rows, _ in self._rows.values()))

    def _await_open(self, until_s: float) -> None:
        """Whoever is open may have written what the stream does not have: before the slot, before publication."""
        ids = table_reader.open_transaction_ids(self.sql)
        while any(not table_reader.now(self.sql).snapshot.sees(xid & 0xFFFFFFFF) for xid in ids):
            self._pause(until_s, "transactions that were open before it")

    def _read(self, connection: Connection, tables: Sequence[SourceTable], until_s: float) -> whole_copy.SharedSnapshot:
        started, publication = table_reader.now(self.sql).started, self.config.publication
        while True:
            seconds = self.config.snapshot.copy_max_s
            try:
                with whole_copy.shared_snapshot(
                    connection, publication, tables, started, seconds + _ANSWER_S
                ) as moment:
                    log.get().info("keyless_copying", tables=len(tables))
                    end_s = self.clock.monotonic_s() + seconds
                    for table in tables:
                        self._place(connection, table.table, moment, end_s)
                    return moment
            except table_reader.ReadLater:
                if self.publisher.is_open:
                    raise SourceUnreachable("a copy was interrupted") from None
                self._pause(until_s, "locks on it")

    def _place(self, connection: Connection, name: str, moment: whole_copy.SharedSnapshot, end_s: float) -> None:
        form = moment.forms.get(name)
        if form is None:
            raise SourceUnreachable(f"{name} is not published any more", table=name)
        planned = self.planner.plan(form.relation, self.position.end_lsn)
        if planned is None:
            return
        # A place of its own, in front of whatever commits at the boundary; no commit record starts at an odd LSN.
        stamp = snapshot_stamp(self.position.end_lsn - 1, moment.at_us, self.epoch)
        partitions, schemas = planned.buffer.partitions, list(planned.schemas)
        for turn, part in enumerate(whole_copy.lines(connection, form)):
            rows, size = self._rows[name]
            size += planned.transcoder.copied_keyless(part, stamp, rows + 1)
            home = next(index for index, records in enumerate(partitions) if records)
            target = turn % len(partitions)
            partitions[home], partitions[target] = partitions[target], partitions[home]
            self.publisher.write([planned.buffer], schemas)
            schemas = []
            self._rows[name] = (rows + len(part), size)
            self.status.snapshot_joined(len(part))
            self._go_on(name, end_s)

    def _go_on(self, name: str, end_s: float) -> None:
        if self.stop.is_set():
            raise SourceUnreachable(f"was stopped while {name} was being copied", table=name)
        if self.clock.monotonic_s() > end_s:
            seconds = self.config.snapshot.copy_max_s
            raise SourceRefused(
                f"the tables without a key could not be copied within {seconds} s; nothing of the copy is in the log",
                hint="raise snapshot.copy_max_s, and the broker's transaction.max.timeout.ms with it; or give large "
                f"ones a key; or capture their changes alone, with [snapshot] tables = {{{name!r} = 'never'}}",
                command=f"[snapshot] copy_max_s = {4 * seconds}",
                table=name,
            )

    def _await_flushed(self, inserted: Lsn) -> None:
        """What the snapshot shows must not be lost by a crash of the server once it is in the log."""
        until_s = self.clock.monotonic_s() + _ANSWER_S
        while table_reader.flushed(self.sql) < inserted:
            self._pause(until_s, "PostgreSQL to flush its WAL")

    def _commit(self, tables: Sequence[SourceTable], moment: whole_copy.SharedSnapshot) -> None:
        records = {}
        for table in tables:
            rows, size = self._rows[table.table]
            records[table.table] = SnapshotRecord(
                table=table.table,
                relation=table.oid,
                state="complete",
                began_lsn=self.position.end_lsn,
                ended_lsn=moment.inserted,
                row_count=rows,
                byte_count=size,
                seen=moment.text,
                seen_to_lsn=moment.inserted,
            )
        self.publisher.commit(self.position, self.verified(), SnapshotNotes(records=records))

    def _pause(self, until_s: float, what: str) -> None:
        if self.stop.is_set():
            raise SourceUnreachable("was stopped before tables without a key were copied")
        if self.clock.monotonic_s() > until_s:
            found = blockers(self.sql)
            named = "; ".join(blocker.what for blocker in found) or "they have ended by now"
            raise SlotBlocked(
                f"the copy of tables without a key waits for {what}: {named}",
                hint="capture waits with it. End them, or give more time with source.slot_create_timeout_s",
                command=found[0].remedy if found else "",
                blockers=[blocker.pid or blocker.gid for blocker in found],
            )
        self.clock.wait(self.stop, _LOOK_S)

    def _report(self) -> list[dict[str, Any]]:
        return [_shown(name, rows, size) for name, (rows, size) in self._rows.items()]


def _shown(name: str, rows: int, size: int) -> dict[str, Any]:
    """As `snapshot.snapshot_progress.document`."""
    return {
        "table": name,
        "state": "reading",
        "number": 1,
        "again": False,
        "rows": rows,
        "bytes": size,
        "blocks_done": None,
        "blocks": None,
        "keys_left": 0,
        "rows_per_second": None,
        "eta_seconds": None,
        "chunks_reading": 0,
        "chunks_waiting": 0,
        "waits_for": [],
    }
