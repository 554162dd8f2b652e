"""Lets the caller of a read hold partitions back, and see how far each one was read."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ReadPace:
    """Shared by one read and its caller, in one thread. Partitions are (topic, partition).

    Attributes:
        held: partitions from which nothing is fetched for now; the caller sets them between two batches.
        reached: the offset up to which each partition was read; the reader updates it with each batch. Compaction,
            markers and aborted records leave no record, so this is not the offset after the last one.
    """

    held: set[tuple[str, int]] = field(default_factory=set)
    reached: dict[tuple[str, int], int] = field(default_factory=dict)
