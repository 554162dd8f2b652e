"""What is recorded of the snapshot of a table, and what a batch says of snapshots.

A record lies in ``<name>.__progress`` under ``<name>/snapshot/<schema>.<table>``, written in the Kafka transaction that
has the rows it speaks of: after a crash what it calls done is in the log, and nothing else is.
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
"""Heap blocks from the first number up to, not with, the second; None: to the end, also of what is appended."""


class LeafRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A table that holds rows: the captured one itself, or a partition of it.

    Attributes:
        filenode: pg_relation_filenode; another one means that rows lie elsewhere now.
        done: blocks whose rows are in the log, in order.
    """

    filenode: int
    done: tuple[Blocks, ...] = ()


class IncompleteKey(msgspec.Struct, frozen=True):
    """A row whose record lacks values, because its transaction was not visible for long.

    Attributes:
        key: as the log has it.
        columns: the server's text of each key column, by its name.
    """

    key: bytes
    columns: dict[str, str]


class SnapshotRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How far the snapshot of a table is.

    Attributes:
        relation: pg_class.oid; a table that was dropped and made again is another one.
        state: complete, or what is still to be done.
        number: 1 for the first snapshot of the table, and so on.
        began_lsn, ended_lsn: the log's position then; 0: not yet.
        row_count: rows in the log because of it, so far.
        leaves: by pg_class.oid as text; kept until it is complete.
        form: tells in which columns what is done was read: after DDL it is not done any more.
        repair: keys that the log has without all their values (TOAST), or that were asked for, as the log has them.
        byte_count: of those rows.
        asked: a signal began it.
        again: the table was complete before, and its log is that all the while.
        begun: who was open when it began is not known yet: after a restart that comes first.
        hold: it was paused; or stopped, and the table never was complete.
        where: the rows that are wanted, as `snapshot.condition` has it; empty for all.
        keyed: only rows of the keys in `repair` and `owed` are wanted.
        owed: rows whose records went into the log without all their values, because nobody could read these in time.
        sweep: for each partition of the topic the offset where the epoch began, while keys whose last record is from
            before are still to be looked for in the table.
        sweep_from_lsn: the sweep is to cover every record of the topic that is from before this LSN of the stream, and
            `sweep` is not known yet, because the log has not reached it; 0: nothing is awaited.
        swept_lsn: the snapshot covers, or will cover, keys that another table left in the topic up to this LSN.
        absent: keys that were asked for and that the table did not have, while they may still be in its topic.
        seen: of a table without a key, the pg_snapshot of its one copy: what of the stream that sees is in the copy.
        seen_to_lsn: nothing that commits from there on is.
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
    def told(self) -> str:
        """What the cut index calls the table. One that is read again is complete, unless its topic is not."""
        return "complete" if self.state == "complete" or (self.again and not self.owed) else "snapshotting"


@dataclass(frozen=True, slots=True)
class SnapshotNotes:
    """What goes into the log beside the rows of a batch.

    Attributes:
        pending: ids of transactions that no snapshot has seen yet, for the progress record.
        records: by table, those that changed.
        signals: how far signals were acted on, when that changed.
        sweeps: by table, which turn of a sweep waits for a commit of everything that was streamed by now.
    """

    pending: tuple[int, ...] = ()
    records: Mapping[str, SnapshotRecord] = field(default_factory=dict)
    signals: SignalsRecord | None = None
    sweeps: Mapping[str, int] = field(default_factory=dict)


NO_NOTES: Final = SnapshotNotes()
