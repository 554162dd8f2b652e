"""Follows the reports that workers of sinks write to Kafka, for a process that does not supervise these sinks."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import TailraceError, TopicMismatch
from cdc.kafka.log_reader import LogReader
from cdc.model.sink_report import OLD_S, SinkReport, decode, is_report
from cdc.model.topic_names import sink_state_topic

_READ_S: Final = 5.0


class ReportFollower:
    """Reads what is new in the state topics. One thread. Methods raise BrokerUnreachable and BrokerRefused."""

    def __init__(self, config: Config, sinks: list[str], clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._topics = {sink: sink_state_topic(config.name, sink) for sink in sinks}
        self._reports: dict[str, dict[bytes, SinkReport]] = {sink: {} for sink in sinks}
        self._next: dict[str, int] = {}
        self._reader: LogReader | None = None

    def read(self) -> dict[str, list[SinkReport]]:
        """Return the newest report of every worker that is alive or died within `OLD_S`, by sink."""
        if self._reader is None:
            self._reader = LogReader(self._config.kafka, client_id="tailrace-objectives")
        for sink in self._topics:
            with suppress(TopicMismatch):  # no worker of it has started yet
                self._read(sink, self._reader)
        oldest_ms = (self._clock.wall_s() - OLD_S) * 1000
        return {
            sink: [one for one in reports.values() if one.at_ms >= oldest_ms and not one.ended]
            for sink, reports in self._reports.items()
        }

    def close(self) -> None:
        """End the connections. May be called twice."""
        if self._reader is not None:
            with suppress(TailraceError):
                self._reader.close()
            self._reader = None

    def _read(self, sink: str, reader: LogReader) -> None:
        topic, reports = self._topics[sink], self._reports[sink]
        place = (topic, 0)
        low, high = reader.end_offsets([topic], timeout_s=_READ_S)[place]
        start = max(low, self._next.get(sink, low))
        if start >= high:
            return
        for batch in reader.read({place: start}, {place: high}, timeout_s=_READ_S):
            for record in batch:
                if record.key is not None and is_report(record.key):
                    found = decode(record.value) if record.value else None
                    if found is None:
                        reports.pop(record.key, None)
                    else:
                        reports[record.key] = found
        self._next[sink] = high
