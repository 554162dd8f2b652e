"""What the log keeps of an outbox: which table it was, and what of its rows was routed before the stream."""

from __future__ import annotations

import msgspec

OUTBOX_VERSION = 1


class OutboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that were in the table when capture first saw it are dealt with.

    Attributes:
        table: ``schema.table``.
        relation: pg_class.oid; a table that was made again is another one, and its rows are looked at anew.
        seen: the pg_snapshot in which they were read; empty: they were left out (`[outbox] existing`).
        seen_to_lsn: nothing that commits from there on was seen.
        event_count: how many rows that were.
        missed: after a repair: events of a range that nobody knows may be in the table and not in the log. They are
            looked for at the next start.
    """

    version: int = OUTBOX_VERSION
    table: str
    relation: int
    seen: str = ""
    seen_to_lsn: int = 0
    event_count: int = 0
    missed: bool = False
