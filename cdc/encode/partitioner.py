"""Computes the partition of a key with murmur2, as Kafka's Java client does, so that all clients agree. Pure.

A key never moves: the partition count of a topic is recorded at its first use and checked at every start.
"""

from __future__ import annotations

from typing import Final

from murmurhash2 import murmurhash2

SEED: Final = 0x9747B28C  # org.apache.kafka.common.utils.Utils.murmur2


def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition of a record with this key."""
    return (murmurhash2(key, SEED) & 0x7FFFFFFF) % partition_count
