"""Becomes the only writer of the log, for capture and repair: steps 3 and 4 of `cdc.startup.protocol`."""

from __future__ import annotations

import secrets
import threading
from typing import Final

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import ProgressDamaged
from cdc.kafka.client_options import patience_s
from cdc.kafka.producer import TransactionalProducer
from cdc.progress.restore import Restored, TopicReader, restore
from cdc.publish.publisher import RING_MAX, KafkaPublisher
from cdc.publish.topic_rules import message_bytes_max

_SENTINEL_READS: Final = 100  # the marker of the sentinel's transaction is written a moment after its commit
_SENTINEL_WAIT_S: Final = 0.05


def publisher_of(config: Config, clock: Clock, epoch: int, *, transaction_s: int = 0) -> KafkaPublisher:
    """Return a publisher that has not fenced others yet; its transactions may take at least `transaction_s`."""
    size = message_bytes_max(config.capture.row_bytes_max)
    producers = [
        TransactionalProducer(config.kafka, one, message_bytes_max=size, transaction_s=transaction_s, clock=clock)
        for one in _identities(config)
    ]
    return KafkaPublisher(config.name, producers, clock, epoch=epoch, patience_s=patience_s(config.kafka))


def _identities(config: Config) -> list[str]:
    """Return the transactional ids; the first is the only one of versions without a ring."""
    first = config.transactional_id
    return [first, *(f"{first}.{index}" for index in range(1, RING_MAX))]


def read_behind_sentinel(
    config: Config, reader: TopicReader, publisher: KafkaPublisher, clock: Clock, *, whole: bool = True
) -> Restored:
    """Return the recorded state, which only the fencing `publisher` can change any more.

    The sentinel proves that the progress topic was read to its end. It says nothing about the cut index, so the read is
    repeated until the newest cut matches progress. `whole` is false if the cut index was deleted and cannot match.

    Raises ProducerFenced if another process took over meanwhile, ProgressDamaged if the broker returns old records.
    """
    nonce = secrets.token_hex(16).encode()
    publisher.write_sentinel(nonce)
    never = threading.Event()
    for _ in range(_SENTINEL_READS):
        restored = restore(reader, config.name)
        if restored.sentinel == nonce and (restored.settled or not whole):
            return restored
        clock.wait(never, _SENTINEL_WAIT_S)
    publisher.write_sentinel(nonce)  # refused if another start took over meanwhile: then the error is ProducerFenced
    raise ProgressDamaged(
        "cannot read back the sentinel that was just committed, or the cut index does not match progress",
        hint="the broker returns old records, or another program writes to the progress topic or the cut index",
    )
