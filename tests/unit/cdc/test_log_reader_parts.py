"""`LogReader` requests the offsets of many partitions in parts, each with its own time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cdc.config.settings import Kafka
from cdc.kafka import log_reader
from cdc.kafka.log_reader import LogReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest
    from confluent_kafka import TopicPartition

_PARTITIONS: Final = 10_000


class Broker:
    """A consumer that answers with the partition number, and keeps the size and time limit of each request."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, float]] = []

    def offsets_for_times(self, wanted: Sequence[TopicPartition], timeout: float) -> Sequence[TopicPartition]:
        self.requests.append((len(wanted), timeout))
        for one in wanted:
            one.offset = one.partition
        return wanted


def test_offsets_of_many_partitions_are_requested_in_parts_with_the_whole_time_limit_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker()
    monkeypatch.setattr(log_reader, "create", lambda *_: broker)
    reader = LogReader(Kafka(bootstrap="k:9092"), client_id="test")

    found = reader.offsets_for_time([("t", number) for number in range(_PARTITIONS)], 5, timeout_s=7.0)

    assert found == {("t", number): number for number in range(_PARTITIONS)}
    assert sum(count for count, _ in broker.requests) == _PARTITIONS
    assert all(count <= 4000 and 6.0 < timeout <= 7.0 for count, timeout in broker.requests), broker.requests
