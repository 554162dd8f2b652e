"""Copies tables without a key once, before the stream is read: a step of a start, behind its first cut.

The copy is one Kafka transaction: all rows, and the record that the table is complete. Records without a key cannot be
replaced, so a copy cannot be resumed in another snapshot: its rows would look like those of the next attempt. If the
start dies before the commit, nothing of the copy is visible, and the next start begins again, on any machine.

Meanwhile the stream waits in the WAL, so no event of the table is in the log before its copy. When the stream flows,
`snapshot.keyless_rule` leaves out what the copy has, by transaction id and not by LSN.

Two waits make the copy exact. Before its snapshot, it waits for all transactions that were open when slot and
publication existed. A commit below the slot's position that is not visible yet would otherwise be in neither. Before
its commit, it waits until PostgreSQL has flushed what the snapshot saw: a crash of the server could take it back.

The producer of such a start allows long transactions. After the copy, the start is made again with an ordinary one. A
table whose topic already has events can no longer be copied exactly, and is not copied.
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
from cdc.model.topic_names import data_topic, parse_partition
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

_POLL_S: Final = 0.1  # between checks of open transactions and locks
_ANSWER_S: Final = 30.0  # a server that does not answer for longer counts as unreachable
_COMMIT_S: Final = 60  # of the Kafka transaction's time, for what comes after the last row

Untouched = Callable[[str, bool], bool]
"""Returns whether nothing was ever published to a topic.

The flag: count only since its copy was begun, without failed copies.
"""


class KeylessTables:
    """Which tables without a key must be copied, and which are complete.

    Attributes:
        missing: must be copied before anything of them may be published.
        refused: not complete, and their topics already have events.
    """

    def __init__(
        self,
        config: Config,
        tables: Sequence[SourceTable],
        records: Mapping[str, SnapshotRecord],
        untouched: Untouched,
    ) -> None:
        """`records` are the recorded snapshots."""
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
        """Return the state in the cut index of those that are not complete."""
        begun = {name for name, record in self._records.items() if record.state != "complete"}
        return dict.fromkeys(begun | {table.table for table in self.missing}, "snapshotting")

    def noted(self, notes: SnapshotNotes, position: StreamPosition) -> SnapshotNotes:
        """Return `notes`, with the record that these tables are not complete."""
        begun = {
            table.table: SnapshotRecord(
                table=table.table, relation=table.oid, state="running", began_lsn=position.end_lsn
            )
            for table in self.missing
        }
        return replace(notes, records={**notes.records, **begun})

    def copies(self) -> dict[str, KeylessCopy]:
        """Return what the copy contains, of those that are complete."""
        return {
            name: KeylessCopy(PgSnapshot.parse(record.seen), Lsn(record.seen_to_lsn))
            for name, record in self._records.items()
            if record.state == "complete" and record.seen
        }

    def copied_by(self, copier: Copier) -> bool:
        """Copy the missing tables. Returns False if there are none; logs those captured without their old rows."""
        if self.missing:
            copier.copy(self.missing)
            return True
        for table in self.refused:
            log.get().warning(
                "keyless_not_copied",
                table=table.table,
                reason="its topic already has events, so a copy would publish some rows twice",
                hint="under another `name` capture starts from scratch",
            )
        return False


def untouched(reader: LogReader, restored: Restored) -> Untouched:
    """Decide by the counts of the cut index where they begin with the log, else by the topic's end."""

    def ask(topic: str, begun: bool) -> bool:  # noqa: FBT001 - see `Untouched`
        counts = [count for at, (_, count, _) in restored.accounts.items() if parse_partition(at)[0] == topic]
        if begun and counts and not restored.since_lsn:
            return not any(counts)
        return all(high == 0 for _, high in reader.end_offsets([topic]).values())

    return ask


def transaction_s(
    config: Config, tables: Sequence[SourceTable], records: Mapping[str, SnapshotRecord], *, outbox: bool = False
) -> int:
    """Return how long a Kafka transaction of this start must be allowed to take; 0 if there is nothing to copy.

    `outbox`: the rows of an outbox must be routed.
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
        """Copy the tables. Returns when they are complete in the log.

        Raises SlotBlocked if other transactions block it for too long, SourceRefused if it takes longer than
        `snapshot.copy_max_s`, SourceUnreachable, and the errors of publishing.
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
        """Wait for open transactions: they may have written rows before slot and publication."""
        ids = table_reader.open_transaction_ids(self.sql)
        while any(not table_reader.now(self.sql).snapshot.sees(xid & 0xFFFFFFFF) for xid in ids):
            self._pause(until_s, "transactions that began before it")

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
                    raise SourceUnreachable("the copy of tables without a key was interrupted") from None
                self._pause(until_s, "locks on it")

    def _place(self, connection: Connection, name: str, moment: whole_copy.SharedSnapshot, end_s: float) -> None:
        form = moment.forms.get(name)
        if form is None:
            raise SourceUnreachable(f"{name} is no longer published", table=name)
        planned = self.planner.plan(form.relation, self.position.end_lsn)
        if planned is None:
            return
        # A position of its own, before everything that commits at the boundary: no commit record starts at an odd LSN.
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
            raise SourceUnreachable(f"stopped while {name} was being copied", table=name)
        if self.clock.monotonic_s() > end_s:
            seconds = self.config.snapshot.copy_max_s
            raise SourceRefused(
                f"the tables without a key could not be copied within {seconds} s; nothing of the copy is in the log",
                hint="raise snapshot.copy_max_s and the broker's transaction.max.timeout.ms; or give large tables a "
                f"key; or capture only their changes, with [snapshot] tables = {{{name!r} = 'never'}}",
                command=f"[snapshot] copy_max_s = {4 * seconds}",
                table=name,
            )

    def _await_flushed(self, inserted: Lsn) -> None:
        """Wait until PostgreSQL has flushed what the snapshot saw: a crash must not take back published rows."""
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
            raise SourceUnreachable("stopped before tables without a key were copied")
        if self.clock.monotonic_s() > until_s:
            found = blockers(self.sql)
            named = "; ".join(blocker.what for blocker in found) or "these have ended by now"
            raise SlotBlocked(
                f"the copy of tables without a key waits for {what}: {named}",
                hint="capture waits until the copy is done. End them, or raise source.slot_create_timeout_s",
                command=found[0].remedy if found else "",
                blockers=[blocker.pid or blocker.gid for blocker in found],
            )
        self.clock.wait(self.stop, _POLL_S)

    def _report(self) -> list[dict[str, Any]]:
        return [_shown(name, rows, size) for name, (rows, size) in self._rows.items()]


def _shown(name: str, rows: int, size: int) -> dict[str, Any]:
    """Return progress in the form of `snapshot.snapshot_progress.document`."""
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
