"""Becoming the one writer of the log, as who captures and who repairs does: steps 3 and 4 of `cdc.startup.protocol`."""

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
from cdc.publish.publisher import KafkaPublisher
from cdc.publish.topic_rules import message_bytes_max

_SENTINEL_READS: Final = 100  # the marker of the sentinel's transaction is written a moment after its commit
_SENTINEL_WAIT_S: Final = 0.05


def publisher_of(config: Config, clock: Clock, epoch: int, *, transaction_s: int = 0) -> KafkaPublisher:
    """A publisher that has not fenced anybody yet. `transaction_s` is how long a transaction may last at least."""
    size = message_bytes_max(config.capture.row_bytes_max)
    producer = TransactionalProducer(
        config.kafka, config.transactional_id, message_bytes_max=size, transaction_s=transaction_s, clock=clock
    )
    return KafkaPublisher(config.name, producer, clock, epoch=epoch, patience_s=patience_s(config.kafka))


def read_behind_sentinel(
    config: Config, reader: TopicReader, publisher: KafkaPublisher, clock: Clock, *, whole: bool = True
) -> Restored:
    """The restart state as it is when nobody but `publisher`, which has fenced, can change it any more.

    `whole`: the cut index must reach as far as progress, as it does unless its topic was deleted.
    Raises ProducerFenced when somebody took over meanwhile, ProgressDamaged when the broker shows old records.
    """
    nonce = secrets.token_hex(16).encode()
    publisher.write_sentinel(nonce)
    never = threading.Event()
    for _ in range(_SENTINEL_READS):
        restored = restore(reader, config.name)
        if restored.sentinel == nonce and (restored.settled or not whole):
            return restored
        clock.wait(never, _SENTINEL_WAIT_S)
    publisher.write_sentinel(
        nonce
    )  # refused when another start has planted its own meanwhile: the stop is named FENCED then
    raise ProgressDamaged(
        "the sentinel that was just committed cannot be read back, or the cut index does not reach as far as progress",
        hint="the broker shows old records, or somebody else writes to the progress topic or the cut index",
    )
