"""Tells which transactions were published when an existing outbox was copied, so that they are not repeated. Pure.

Capture reads the existing rows in one snapshot S and publishes them before it reads the stream. When the stream brings
a transaction that S sees, its rows must not be published again. The rows of any other transaction must be published,
whatever the LSN of its commit. `snapshot.keyless_rule` has the same rule for tables without a key.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc.lsn import Lsn
from cdc.model.change_records import Stamp
from cdc.model.visibility import PgSnapshot


@dataclass(frozen=True, slots=True)
class CopiedOutbox:
    """The snapshot of the copy, and the end of the WAL right after it: the snapshot sees only commits below `l_hi`."""

    snapshot: PgSnapshot
    l_hi: Lsn

    def has(self, stamp: Stamp) -> bool:
        """Whether the copy includes the rows of a transaction. Transaction ids wrap around, so `l_hi` counts, too."""
        return stamp.xid is not None and stamp.commit_lsn < self.l_hi and self.snapshot.sees(stamp.xid)
