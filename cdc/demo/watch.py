"""What the picture shows, measured from outside: by the cut index in Kafka, by PostgreSQL, and by /status.

Records and rates come from `__cuts`, which goes on while capture is being killed; the lag is what PostgreSQL has
written and the log does not have yet.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from cdc.config.settings import Config
from cdc.cutindex.index_reader import decoded
from cdc.demo.capture import Capture
from cdc.errors import TailraceError
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from cdc.model.progress_record import Cut
from cdc.model.topic_names import cuts_topic, parse_partition

_SAMPLE_S: Final = 0.25
_RATE_S: Final = 3.0  # rates are of the last so many seconds
_HISTORY: Final = 60  # rates kept for the curve
_COMMITS: Final = 40  # commit times the median is of
_CLOSE_BYTES: Final = 256 << 10  # nearer than this to the end of the WAL is caught up


@dataclass(frozen=True, slots=True)
class Facts:
    """One moment.

    Attributes:
        state: of the daemon; empty while nobody answers.
        lag_seconds: age of the oldest WAL that is not in the log yet, 0 for none.
        commit_ms: median of the last Kafka transactions; None before the first.
        records: topic -> records published, tombstones included.
        curve: rows a second, a value a second, oldest first.
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
        """Of all topics."""
        return sum(self.records.values())

    @property
    def caught_up(self) -> bool:
        """Whether the log has practically everything."""
        return self.state in {"RUNNING", "CATCHING_UP"} and self.lag_bytes < _CLOSE_BYTES


class Watch:
    """A thread that keeps `facts` and `end_lsn`, how far the log is, fresh; read them from any thread. Close it."""

    def __init__(self, config: Config, capture: Capture) -> None:
        self.facts = Facts()
        self._config = config
        self._capture = capture
        self._stopping = threading.Event()
        self._counts: dict[str, int] = {}
        self.end_lsn = Lsn(0)
        self._written: deque[tuple[float, Lsn]] = deque()
        self._samples: deque[tuple[float, int, int]] = deque()
        self._commits: deque[float] = deque(maxlen=_COMMITS)
        self._curve: deque[float] = deque(maxlen=_HISTORY)
        self._bytes = [0, 0]
        self._curve_at_s = 0.0
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        """Follow the cut index, which hands out something at least five times a second, and sample beside it."""
        topic = cuts_topic(self._config.name)
        sampled_s = 0.0
        while not self._stopping.is_set():
            try:
                with (
                    psycopg.connect(self._config.source.dsn.reveal(), autocommit=True) as session,
                    LogReader(self._config.kafka, client_id="demo-watch", follows=True) as reader,
                ):
                    self._counts.clear()
                    for batch in reader.read({(topic, 0): 0}):
                        for one in decoded(batch):
                            self._take(one.cut)
                        now_s = time.monotonic()
                        if now_s - sampled_s >= _SAMPLE_S:
                            sampled_s = now_s
                            self._sample(session, now_s)
                        if self._stopping.is_set():
                            return
            except (TailraceError, psycopg.Error):
                self._stopping.wait(_SAMPLE_S)  # the picture waits; what is wrong is found where it matters

    def _take(self, cut: Cut) -> None:
        for partition, (_, count, _) in cut.changed.items():
            self._counts[partition] = count
        if cut.next_ordinal == 0:
            self.end_lsn = Lsn(cut.end_lsn)

    def _sample(self, session: psycopg.Connection, now_s: float) -> None:
        row = session.execute("select pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        status = self._capture.status()
        self._note_written(now_s, Lsn.parse(row[0]))
        records = self._records()
        count = sum(records.values())
        self._samples.append((now_s, count, self._total_bytes(status)))
        while now_s - self._samples[0][0] > _RATE_S:
            self._samples.popleft()
        rows_rate, bytes_rate = self._rates()
        if now_s - self._curve_at_s >= 1.0:
            self._curve_at_s = now_s
            self._curve.append(rows_rate)
        if status.get("batches"):
            self._commits.append(float(status["last_commit_seconds"]) * 1000)
        waiting = self._written[0] if self._written else None
        self.facts = Facts(
            state=str(status.get("state", "")),
            rows_per_second=rows_rate,
            bytes_per_second=bytes_rate,
            lag_bytes=self._written[-1][1] - self.end_lsn if self._written else 0,
            lag_seconds=now_s - waiting[0] if waiting is not None else 0.0,
            commit_ms=sorted(self._commits)[len(self._commits) // 2] if self._commits else None,
            records=records,
            curve=tuple(self._curve),
        )

    def _note_written(self, now_s: float, lsn: Lsn) -> None:
        """Keep what was written and is not in the log yet, with the time we first saw it."""
        if not self._written or lsn > self._written[-1][1]:
            self._written.append((now_s, lsn))
        while self._written and self._written[0][1] <= self.end_lsn:
            self._written.popleft()

    def _records(self) -> dict[str, int]:
        """Topic -> records, of data topics."""
        control = f"{self._config.name}.__"
        found: dict[str, int] = {}
        for partition, count in self._counts.items():
            topic, _ = parse_partition(partition)
            if not topic.startswith(control):
                found[topic] = found.get(topic, 0) + count
        return found

    def _total_bytes(self, status: dict[str, Any]) -> int:
        """Bytes captured by this daemon and those before it: each counts from 0."""
        now = int(status.get("bytes", 0))
        before, last = self._bytes
        if now < last:
            before, last = before + last, 0
        if now:
            self._bytes = [before, now]
        return before + max(now, last)

    def _rates(self) -> tuple[float, float]:
        first, last = self._samples[0], self._samples[-1]
        span_s = last[0] - first[0]
        if span_s <= 0:
            return 0.0, 0.0
        return max(0.0, (last[1] - first[1]) / span_s), max(0.0, (last[2] - first[2]) / span_s)
