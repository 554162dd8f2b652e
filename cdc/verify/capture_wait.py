"""Waits for Kafka with a deadline and reports longer waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from cdc.config.settings import Config, Kafka
from cdc.errors import TopicMismatch
from cdc.inspect.snapshot_state import never_ran
from cdc.kafka.cluster_facts import TopicPartition
from cdc.kafka.log_reader import LogReader
from cdc.model.log_record import LogRecord
from cdc.model.read_pace import ReadPace
from cdc.model.topic_names import cuts_topic

WAIT_S: Final = 60.0
"""Default time for which `cdc verify` waits for Kafka to answer, and for capture to catch up."""
NOTICE_S: Final = 3.0
"""A wait that takes longer is reported."""

Notify: TypeAlias = Callable[[str], None]
"""Takes a line for the operator; called from any thread."""


def silent(_: str) -> None:
    """Report nothing."""


@contextmanager
def noticed(say: Notify, text: str) -> Iterator[None]:
    """Report `text` when the block takes longer than NOTICE_S."""
    timer = threading.Timer(NOTICE_S, say, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class PatientReader(LogReader):
    """A reader that gives up after `wait_s` without an answer from Kafka, and reports that it waits."""

    def __init__(self, kafka: Kafka, *, wait_s: float, say: Notify) -> None:
        """Makes no connection yet."""
        super().__init__(kafka, client_id="tailrace-verify", answer_s=wait_s)
        self._say = say
        self._waiting = f"waiting for Kafka at {kafka.bootstrap}; gives up after {wait_s:g} s"

    def partitions(self, topics: Iterable[str], *, timeout_s: float | None = None) -> list[TopicPartition]:
        """See `LogReader.partitions`."""
        with noticed(self._say, self._waiting):
            return super().partitions(topics, timeout_s=timeout_s)

    def end_offsets(
        self, topics: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[int, int]]:
        """See `LogReader.end_offsets`."""
        with noticed(self._say, self._waiting):
            return super().end_offsets(topics, timeout_s=timeout_s)

    def last_records(
        self, topic: str, *, partition: int = 0, keys: Collection[bytes] | None = None, timeout_s: float | None = None
    ) -> dict[bytes, tuple[int, bytes]]:
        """See `LogReader.last_records`."""
        with noticed(self._say, self._waiting):
            return super().last_records(topic, partition=partition, keys=keys, timeout_s=timeout_s)

    def read(
        self,
        assignments: Mapping[TopicPartition, int],
        until: Mapping[TopicPartition, int] | None = None,
        *,
        timeout_s: float | None = None,
        pace: ReadPace | None = None,
    ) -> Generator[list[LogRecord], None, None]:
        """See `LogReader.read`."""
        batches = super().read(assignments, until, timeout_s=timeout_s, pace=pace)
        while True:
            with noticed(self._say, self._waiting):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def await_kafka(config: Config, *, wait_s: float, say: Notify) -> None:
    """Wait until Kafka answers. Raises BrokerUnreachable after `wait_s`, TopicMismatch when capture never ran."""
    with PatientReader(config.kafka, wait_s=wait_s, say=say) as reader:
        try:
            reader.end_offsets([cuts_topic(config.name)])
        except TopicMismatch as error:
            raise never_ran(config, error) from error
