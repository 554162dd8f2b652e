"""The sentinel of a start: if it cannot be read back, the start stops in a named state (fault C10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from cdc.config.load import parse
from cdc.errors import ProgressDamaged
from cdc.progress.record_format import sentinel_key
from cdc.startup.writer_claim import read_behind_sentinel
from tests.fixtures.servers.manual_clock import ManualClock
from tests.unit.cdc.test_restore import Log

if TYPE_CHECKING:
    from cdc.kafka.log_reader import LogReader
    from cdc.publish.publisher import KafkaPublisher

CONFIG = parse('name = "shop"\n[source]\ndsn = "host=h"\n[kafka]\nbootstrap = "h:9092"\n', {})


class Planter:
    """Writes its sentinel to a log; optionally in a transaction that never commits, or with another one behind it."""

    def __init__(self, log: Log, *, committed: bool = True, other: bytes = b"") -> None:
        self._log = log
        self._committed = committed
        self._other = other

    def write_sentinel(self, nonce: bytes) -> None:
        """Write a sentinel as the publisher does."""
        self._log.put(sentinel_key("shop"), nonce, committed=self._committed)
        if self._other:
            self._log.put(sentinel_key("shop"), self._other)


def behind(planter: Planter, log: Log) -> object:
    """Run the step with these two instead of Kafka."""
    reader, publisher = cast("LogReader", log.log), cast("KafkaPublisher", planter)
    return read_behind_sentinel(CONFIG, reader, publisher, ManualClock())


def test_sentinel_that_is_seen_is_gone_behind() -> None:
    log = Log()

    assert behind(Planter(log), log)


@pytest.mark.parametrize(
    "planter", [lambda log: Planter(log, committed=False), lambda log: Planter(log, other=b"somebody else's")]
)
def test_sentinel_that_is_never_seen_is_a_named_stop(planter: object) -> None:
    log = Log()
    assert callable(planter)

    with pytest.raises(ProgressDamaged, match="sentinel") as stop:
        behind(planter(log), log)
    assert stop.value.hint
