"""The `Snapshots` implementation for capture without snapshots."""

from __future__ import annotations

from typing import Final

from cdc.contracts import Joined
from cdc.lsn import Lsn
from cdc.model.change_records import TopicBuffer
from cdc.model.snapshot_record import NO_NOTES, SnapshotNotes

IDLE_WAIT_S: Final = 0.5  # how late a stop or the batch's age limit may be noticed on a silent stream


class NoSnapshots:
    """Implements `cdc.contracts.Snapshots`: no rows ever join."""

    wait_s = IDLE_WAIT_S
    notes_pending = False

    def watch(self, table: str, buffer: TopicBuffer) -> None:
        """Do nothing."""

    def begun(self, xid: int, *, whole: bool) -> None:
        """Do nothing."""

    def truncated(self, table: str) -> None:
        """Do nothing."""

    def gather(self) -> None:
        """Do nothing."""

    def ended(self) -> None:
        """Do nothing."""

    def due(self, boundary: Lsn) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def waits(self, boundary: Lsn) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def join(self, boundary: Lsn, at_us: int) -> Joined:  # noqa: ARG002
        """Return no rows."""
        return Joined(0, 0, ())

    def notes(self) -> SnapshotNotes:
        """Return no notes."""
        return NO_NOTES

    def noted(self, notes: SnapshotNotes) -> None:
        """Do nothing."""
