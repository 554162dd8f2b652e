"""Waits for the end of transactions that the cut index already shows.

The markers of a transaction reach its partitions one by one, and a broker may be killed in between. Until the remaining
markers are written, those partitions end before the offset in the cut index.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from cdc.clock import Clock
from sinks.warehouse.lake.cut_position import Partition

MARKERS_S: Final = 30.0
"""Longer than a broker takes to finish open transactions after its start."""

_AGAIN_S: Final = 0.2


class Ends(Protocol):
    """What this module needs of `cdc.kafka.log_reader.LogReader`."""

    def end_offsets(self, topics: Iterable[str]) -> Mapping[Partition, tuple[int, int]]:
        """Return first offset and end of every partition."""


def awaited_ends(reader: Ends, needed: Mapping[Partition, int], clock: Clock) -> Mapping[Partition, tuple[int, int]]:
    """Return first offset and end of partitions, once each end is at least `needed`, but after MARKERS_S at most."""
    never, deadline_s = threading.Event(), clock.monotonic_s() + MARKERS_S
    while True:
        ends = reader.end_offsets({topic for topic, _ in needed})
        behind = any(ends.get(at, (0, 0))[1] < end for at, end in needed.items())
        if not behind or clock.monotonic_s() >= deadline_s:
            return ends
        clock.wait(never, _AGAIN_S)
