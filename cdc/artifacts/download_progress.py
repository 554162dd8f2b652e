"""The protocol for reporting the progress of downloads."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives progress reports while servers are prepared. Several threads call it concurrently."""

    def step(self, text: str) -> None:
        """Report that a longer step begins; `text` is one line."""

    def begin(self, what: str, total_bytes: int) -> None:
        """Report that the download `what` of `total_bytes` begins."""

    def advance(self, what: str, count_bytes: int) -> None:
        """Report that `count_bytes` more have arrived; negative if a failed download starts over."""

    def end(self, what: str) -> None:
        """Report that the download `what` has ended, successfully or not."""


class NoProgress:
    """Ignores all reports."""

    def step(self, text: str) -> None:
        """See `Progress`."""

    def begin(self, what: str, total_bytes: int) -> None:
        """See `Progress`."""

    def advance(self, what: str, count_bytes: int) -> None:
        """See `Progress`."""

    def end(self, what: str) -> None:
        """See `Progress`."""
