"""Which partition a key lives in: murmur2 as Kafka's Java client has it, so that everybody's consumers agree. Pure.

A key never moves: the partition count of a topic is recorded when it is first used and checked at every start.
"""

from __future__ import annotations

from typing import Final

from murmurhash2 import murmurhash2

SEED: Final = 0x9747B28C  # org.apache.kafka.common.utils.Utils.murmur2


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition of a record with this key."""
    return (murmurhash2(key, SEED) & 0x7FFFFFFF) % partition_count
