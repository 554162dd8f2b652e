"""The record in ``<name>.__progress`` about an outbox: its table, and which existing rows were published."""

from __future__ import annotations

import msgspec

OUTBOX_VERSION = 1


class OutboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that were in the table when capture first saw it have been handled.

    Attributes:
        table: ``schema.table``.
        relation: pg_class.oid; a recreated table is a different one, and its rows are handled again.
        seen: the pg_snapshot in which they were read; empty if they were left out (`[outbox] existing`).
        seen_to_lsn: the snapshot does not see what commits from this LSN on.
        event_count: number of these rows.
        missed: after a repair, the table may contain events of the unknown range that are not in the log. The next
            start looks for them.
    """

    version: int = OUTBOX_VERSION
    table: str
    relation: int
    seen: str = ""
    seen_to_lsn: int = 0
    event_count: int = 0
    missed: bool = False
