"""A topic reader with a timeout, for reads beside a running capture that must not block."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from cdc.kafka.log_reader import LogReader
from cdc.model.log_record import LogRecord
from cdc.progress.restore import Partition


class BoundedReader:
    """Implements `cdc.progress.restore.TopicReader`; every call ends `timeout_s` after its last progress."""

    def __init__(self, reader: LogReader, timeout_s: float) -> None:
        self._reader = reader
        self._timeout_s = timeout_s

    def last_records(self, topic: str, *, keys: Collection[bytes] | None = None) -> dict[bytes, tuple[int, bytes]]:
        """See `LogReader.last_records`."""
        return self._reader.last_records(topic, keys=keys, timeout_s=self._timeout_s)

    def end_offsets(self, topics: Iterable[str]) -> dict[Partition, tuple[int, int]]:
        """See `LogReader.end_offsets`."""
        return self._reader.end_offsets(topics, timeout_s=self._timeout_s)

    def read(
        self, assignments: Mapping[Partition, int], until: Mapping[Partition, int] | None = None
    ) -> Iterator[list[LogRecord]]:
        """See `LogReader.read`."""
        return self._reader.read(assignments, until, timeout_s=self._timeout_s)
