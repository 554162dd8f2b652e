"""Measures what the live picture shows, from the cut index in Kafka, PostgreSQL and /status.

Records and rates come from the cut index, which stays readable while capture is killed. The lag is the WAL that
PostgreSQL has written and Kafka does not have yet.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import psycopg

from cdc.config.settings import Config
from cdc.errors import TailraceError
from cdc.kafka.log_reader import LogReader
from cdc.local.command_process import WORKING, CaptureProcess
from cdc.lsn import Lsn
from cdc.model.progress_record import Cut
from cdc.model.topic_names import cuts_topic
from cdc.progress.record_format import decode
from cdc.replication.connect import connect

_SAMPLE_S: Final = 0.25
_RATE_S: Final = 3.0  # a rate is the mean of this time
_CURVE: Final = 60  # rates in the curve, one per second
_CLOSE_BYTES: Final = 256 << 10  # a lag below this counts as caught up


@dataclass(frozen=True, slots=True)
class Facts:
    """The measurements at one time.

    Attributes:
        state: state of capture; empty without an answer.
        lag_seconds: age of the oldest WAL that is not in Kafka yet.
        commit_ms: duration of the last Kafka transaction.
        records: topic -> published records, including tombstones.
        curve: rows per second, one value per second, oldest first.
    """

    state: str = ""
    rows_per_second: float = 0.0
    bytes_per_second: float = 0.0
    lag_bytes: int = 0
    lag_seconds: float = 0.0
    commit_ms: float | None = None
    records: dict[str, int] = field(default_factory=dict)
    curve: tuple[float, ...] = ()

    @property
    def record_count(self) -> int:
        """Records of all topics."""
        return sum(self.records.values())

    @property
    def caught_up(self) -> bool:
        """Whether capture works and its lag is small."""
        return self.state in WORKING and self.lag_bytes < _CLOSE_BYTES


class LiveFacts:
    """A thread that updates `facts` and `end_lsn`, the position of Kafka. Read them from any thread, and `close` it."""

    def __init__(self, config: Config, capture: CaptureProcess) -> None:
        self.facts = Facts()
        self.end_lsn = Lsn(0)
        self._config = config
        self._capture = capture
        self._stopping = threading.Event()
        self._counts: dict[str, int] = {}
        self._written: deque[tuple[float, Lsn]] = deque()
        self._samples: deque[tuple[float, int]] = deque()
        self._curve: deque[float] = deque(maxlen=_CURVE)
        self._curve_at_s = 0.0
        self._thread = threading.Thread(target=self._run, name="live-facts", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except (TailraceError, psycopg.Error):
                self._stopping.wait(_SAMPLE_S)  # only the picture waits; the proof reports errors

    def _follow(self) -> None:
        """Follow the cut index, which yields a batch at least five times per second, and take samples."""
        topic, sampled_s = cuts_topic(self._config.name), 0.0
        with (
            connect(self._config.source.dsn, application_name="demo") as session,
            LogReader(self._config.kafka, client_id="demo-facts", follows=True) as reader,
        ):
            for batch in reader.read({(topic, 0): 0}):
                for value in (record[5] for record in batch):
                    if value is not None:
                        self._count(decode(value, Cut, topic))
                now_s = time.monotonic()
                if now_s - sampled_s >= _SAMPLE_S:
                    sampled_s = now_s
                    self._sample(session, now_s)
                if self._stopping.is_set():
                    return

    def _count(self, cut: Cut) -> None:
        for partition, (_, count, _) in cut.changed.items():
            self._counts[partition] = count
        if cut.next_ordinal == 0:
            self.end_lsn = Lsn(cut.end_lsn)

    def _sample(self, session: psycopg.Connection, now_s: float) -> None:
        row = session.execute("select pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        self._written.append((now_s, Lsn.parse(row[0])))
        while len(self._written) > 1 and self._written[0][1] <= self.end_lsn:
            self._written.popleft()
        first_s, lag_bytes = self._written[0][0], max(0, self._written[-1][1] - self.end_lsn)
        records = self._records()
        self._samples.append((now_s, sum(records.values())))
        while now_s - self._samples[0][0] > _RATE_S:
            self._samples.popleft()
        span_s, count = now_s - self._samples[0][0], self._samples[-1][1] - self._samples[0][1]
        rate = max(0.0, count / span_s) if span_s else 0.0
        if now_s - self._curve_at_s >= 1.0:
            self._curve_at_s = now_s
            self._curve.append(rate)
        status = self._capture.status()
        commit_s = status.get("last_commit_seconds")
        self.facts = Facts(
            state=str(status.get("state", "")),
            rows_per_second=rate,
            bytes_per_second=float(status.get("bytes_per_second") or 0),
            lag_bytes=lag_bytes,
            lag_seconds=now_s - first_s if lag_bytes else 0.0,
            commit_ms=None if commit_s is None else commit_s * 1000,
            records=records,
            curve=tuple(self._curve),
        )

    def _records(self) -> dict[str, int]:
        """Return topic -> records, without the pipeline's own topics."""
        found: dict[str, int] = {}
        for partition, count in self._counts.items():
            topic = partition.rpartition("-")[0]
            if not topic.startswith(f"{self._config.name}.__"):
                found[topic] = found.get(topic, 0) + count
        return found
