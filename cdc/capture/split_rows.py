"""Passes the rows of one relation to several encoders: that of its topic, and those of stages. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.contracts import Transcoding
from cdc.model.change_records import Stamp, Truncation


def together(encoders: Sequence[Transcoding]) -> Transcoding:
    """Combine several encoders into one. A TRUNCATE is passed to the first only."""
    return encoders[0] if len(encoders) == 1 else _Together(encoders)


class _Together:
    def __init__(self, encoders: Sequence[Transcoding]) -> None:
        self._encoders = encoders

    def insert(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        for encoder in self._encoders:
            encoder.insert(frame, stamp, ordinal)

    def update(self, frame: bytes, stamp: Stamp, ordinal: int) -> int:
        # Stages first: one that refuses the row must do so before it is in the buffer of its table.
        return sum(encoder.update(frame, stamp, ordinal) for encoder in reversed(self._encoders))

    def delete(self, frame: bytes, stamp: Stamp, ordinal: int) -> None:
        for encoder in self._encoders:
            encoder.delete(frame, stamp, ordinal)

    def remove(self, partition: int, keys: Sequence[bytes], truncation: Truncation) -> int:
        return self._encoders[0].remove(partition, keys, truncation)
