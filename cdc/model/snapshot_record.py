"""The record in ``<name>.__progress`` about the snapshot of a table, and the snapshot changes of a batch.

The key of a record is ``<name>/snapshot/<schema>.<table>``. It is written in the same Kafka transaction as the rows
that it covers: after a crash the log has exactly the rows that the record marks as done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import msgspec

from cdc.model.signal_record import SignalsRecord

SNAPSHOT_VERSION = 1

Hold: TypeAlias = Literal["", "paused", "stopped"]

Blocks: TypeAlias = tuple[int, int | None]
"""Heap blocks from the first number up to the second, exclusive; None: to the end, including appended blocks."""


class LeafRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A table with rows: the captured table itself, or one of its partitions.

    Attributes:
        filenode: pg_relation_filenode; a different one means that the table was rewritten.
        done: blocks whose rows are in the log, in order.
    """

    filenode: int
    done: tuple[Blocks, ...] = ()


class IncompleteKey(msgspec.Struct, frozen=True):
    """A row whose record lacks values, because its transaction stayed invisible.

    Attributes:
        key: the key of the record in the log.
        columns: the server's text of each key column, by name.
    """

    key: bytes
    columns: dict[str, str]


class SnapshotRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a table's snapshot.

    Attributes:
        relation: pg_class.oid; a table that was dropped and recreated is a different one.
        state: complete or running.
        number: 1 for the first snapshot of the table, and so on.
        began_lsn, ended_lsn: position of the log at begin and end; 0: not yet. `ended_lsn` tells which DDL the snapshot
            covers, so a snapshot of only some rows does not change it.
        row_count: rows that the snapshot has written so far.
        leaves: by pg_class.oid as text; kept until the snapshot is complete.
        form: identifies the columns that were read; after DDL, finished blocks are read again.
        repair: keys whose records lack values (TOAST), and requested keys, as they are in the log.
        byte_count: size of these rows.
        asked: a signal started the snapshot.
        again: the table was complete before, and its topic stays complete meanwhile.
        begun: the transactions that were open at the begin are not known yet; after a restart they are read first.
        hold: the snapshot is paused, or it was stopped before the table was ever complete.
        where: condition on the rows, as in `snapshot.condition`; empty for all rows.
        keyed: only rows with the keys in `repair` and `owed` are read.
        owed: rows whose records are in the log without all values, because these could not be read in time.
        sweep: while old keys must still be looked up in the table: for each partition of the topic the offset where the
            epoch began. Old keys are those whose last record is before that offset.
        sweep_from_lsn: the sweep must cover every record of the topic before this LSN of the stream; `sweep` is not
            known yet, because the log has not reached it. 0: no sweep is pending.
        swept_lsn: the snapshot covers, or will cover, keys that another table left in the topic up to this LSN.
        absent: requested keys that the table did not have, and that may still be in its topic.
        seen: for a table without a key, the pg_snapshot of its copy; what this snapshot sees is in the copy.
        seen_to_lsn: the copy contains nothing that commits from this LSN on.
    """

    version: int = SNAPSHOT_VERSION
    table: str
    relation: int
    state: Literal["running", "complete"]
    number: int = 1
    began_lsn: int = 0
    ended_lsn: int = 0
    row_count: int = 0
    leaves: dict[str, LeafRecord] = {}
    form: str = ""
    repair: tuple[str, ...] = ()
    byte_count: int = 0
    asked: bool = False
    again: bool = False
    begun: bool = False
    hold: Hold = ""
    where: str = ""
    keyed: bool = False
    owed: tuple[IncompleteKey, ...] = ()
    sweep: tuple[int, ...] = ()
    sweep_from_lsn: int = 0
    swept_lsn: int = 0
    absent: tuple[str, ...] = ()
    seen: str = ""
    seen_to_lsn: int = 0

    @property
    def cut_state(self) -> str:
        """The state of the table in the cut index. While a complete table is read again, it stays complete.

        Exception: a table with `owed` rows is ``snapshotting``, because its topic lacks their values.
        """
        return "complete" if self.state == "complete" or (self.again and not self.owed) else "snapshotting"


@dataclass(frozen=True, slots=True)
class SnapshotNotes:
    """Snapshot state that is written to the log with the rows of a batch.

    Attributes:
        pending: ids of transactions that no snapshot has seen yet, for the progress record.
        records: changed records, by table.
        signals: how far signals were handled, when that changed.
        sweeps: by table, the round of a sweep that waits for a commit of everything streamed so far.
    """

    pending: tuple[int, ...] = ()
    records: Mapping[str, SnapshotRecord] = field(default_factory=dict)
    signals: SignalsRecord | None = None
    sweeps: Mapping[str, int] = field(default_factory=dict)


NO_NOTES: Final = SnapshotNotes()
