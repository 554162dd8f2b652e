"""What of an outbox was routed before the stream: rows that were in it when capture first saw it. Pure.

They are read in one snapshot S, and are in the log before the stream is read. A transaction that S sees must not be
routed once more when the stream brings it, any other must be, wherever its commit record lies (`snapshot.keyless_rule`
has the same rule for tables without a key).
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc.lsn import Lsn
from cdc.model.change_records import Stamp
from cdc.model.visibility import PgSnapshot


@dataclass(frozen=True, slots=True)
class CopiedOutbox:
    """The snapshot, and the end of the WAL right after it: all that it sees commits below `l_hi`."""

    snapshot: PgSnapshot
    l_hi: Lsn

    def has(self, stamp: Stamp) -> bool:
        """Whether the rows of a transaction were in it. Ids of transactions come again one day; `l_hi` does not."""
        return stamp.xid is not None and stamp.commit_lsn < self.l_hi and self.snapshot.sees(stamp.xid)
