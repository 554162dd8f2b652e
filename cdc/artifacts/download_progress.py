"""Who is told how far a download is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told what is going on while servers are made ready. Called from several threads at once."""

    def step(self, text: str) -> None:
        """Something that takes a moment begins; one line for people."""

    def begin(self, what: str, total_bytes: int) -> None:
        """A download of `total_bytes` begins under the name `what`."""

    def advance(self, what: str, count_bytes: int) -> None:
        """`count_bytes` more of it are here; negative when a broken download starts over."""

    def end(self, what: str) -> None:
        """The download named `what` is over, well or not."""


class NoProgress:
    """Progress for nobody."""

    def step(self, text: str) -> None:
        """See `Progress`."""

    def begin(self, what: str, total_bytes: int) -> None:
        """See `Progress`."""

    def advance(self, what: str, count_bytes: int) -> None:
        """See `Progress`."""

    def end(self, what: str) -> None:
        """See `Progress`."""
