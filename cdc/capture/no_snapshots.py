"""Capture without snapshots."""

from __future__ import annotations

from typing import Final

from cdc.contracts import Joined
from cdc.lsn import Lsn
from cdc.model.change_records import TopicBuffer
from cdc.model.snapshot_record import NO_NOTES, SnapshotNotes

IDLE_WAIT_S: Final = 0.5  # how late a stop or an age cap may be noticed on a silent stream


class NoSnapshots:
    """See `cdc.contracts.Snapshots`: nothing ever joins."""

    wait_s = IDLE_WAIT_S
    notes_pending = False

    def watch(self, table: str, buffer: TopicBuffer) -> None:
        """Nothing."""

    def begun(self, xid: int, *, whole: bool) -> None:
        """Nothing."""

    def truncated(self, table: str) -> None:
        """Nothing."""

    def gather(self) -> None:
        """Nothing."""

    def ended(self) -> None:
        """Nothing."""

    def due(self, boundary: Lsn) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def waits(self, boundary: Lsn) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def join(self, boundary: Lsn, at_us: int) -> Joined:  # noqa: ARG002
        """Nothing."""
        return Joined(0, 0, ())

    def notes(self) -> SnapshotNotes:
        """None."""
        return NO_NOTES

    def noted(self, notes: SnapshotNotes) -> None:
        """Nothing."""
