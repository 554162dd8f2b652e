"""One driver at a time: a Kafka transactional id that every cut is committed under.

Each cut's offsets are committed to the consumer group ``<name>.sink.<sink>`` in a transaction of the id of the same
name, right before the manifest. A driver that another one has replaced is refused there, so it publishes nothing; and
every lag monitor sees how far the lake is. What the lake holds is said by its manifest alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cdc.clock import Clock
from cdc.config.settings import Kafka
from cdc.kafka.producer import TransactionalProducer

_INIT_TIMEOUT_S: Final = 30.0
_TIMEOUT_S: Final = 50.0
_MESSAGE_BYTES: Final = 1 << 20  # no records are sent


class Fence:
    """See the top of the file. `take` it once, `hold` it before every manifest."""

    def __init__(self, kafka: Kafka, name: str, clock: Clock) -> None:
        self.name = name
        self._producer = TransactionalProducer(kafka, name, message_bytes_max=_MESSAGE_BYTES, clock=clock)

    def take(self) -> None:
        """Replace whoever had it. Raises BrokerUnreachable or BrokerRefused."""
        self._producer.init(_INIT_TIMEOUT_S)

    def hold(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Make sure that we still have it. Raises ProducerFenced when another driver took it."""
        self._producer.begin()
        self._producer.send_offsets(offsets, self.name, _TIMEOUT_S)
        self._producer.commit(_TIMEOUT_S)

    def close(self) -> None:
        """Let go of the client; the fence stays where it is."""
        self._producer.close()
