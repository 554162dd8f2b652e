"""Writes heartbeats: records that report the position of capture, also when nothing is captured.

A heartbeat is written with a commit of the pipeline, so it never claims more than the log holds. It also measures the
end-to-end lag: how long the effect of the operator's statement on the source (`cdc.replication.heartbeat_thread`) takes
to reach the log.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.contracts import HeartbeatObserver
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition, TopicBuffer

_PENDING_MAX: Final = 100  # statements on the source whose effect was not seen yet; older ones are dropped
_encode: Final = msgspec.json.encode


class Heartbeats:
    """A `cdc.contracts.SideWriter` of the pipeline. `sent` may be called from any thread."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        epoch: int,
        interval_s: float,
        buffer: TopicBuffer,
        observer: HeartbeatObserver,
    ) -> None:
        """`buffer` is the one of ``<name>.heartbeat``."""
        self.buffer = buffer
        self._key = _encode({"serverName": name})
        self._clock = clock
        self._epoch = epoch
        self._interval_s = interval_s
        self._paced: Callable[[float], None] = lambda _: None
        self._observer = observer
        self._next_s = clock.monotonic_s()
        self._lock = threading.Lock()
        self._pending: deque[tuple[Lsn, float]] = deque(maxlen=_PENDING_MAX)
        self._reaching: deque[Lsn] = deque()

    def paces(self, other: Callable[[float], None]) -> None:
        """Call `other` with each new interval, too."""
        self._paced = other

    def adopt(self, config: Config) -> None:
        """Take over a new interval; it counts from now on."""
        interval_s = config.capture.heartbeat_interval_s
        if interval_s and interval_s != self._interval_s:
            self._interval_s = interval_s
            self._next_s = min(self._next_s, self._clock.monotonic_s() + interval_s)
            self._paced(interval_s)

    def due(self) -> bool:
        """See `cdc.contracts.SideWriter.due`."""
        return self._clock.monotonic_s() >= self._next_s

    def write(self, position: StreamPosition) -> bool:
        """See `cdc.contracts.SideWriter.write`."""
        self._reaching.append(position.end_lsn)
        if not self.due():
            return False
        self._next_s = self._clock.monotonic_s() + self._interval_s
        value = {
            "ts_ms": int(self._clock.wall_s() * 1000),
            "epoch": self._epoch,
            "end_lsn": int(position.end_lsn),
            "commit_lsn": int(position.commit_lsn),
            "next_ordinal": position.next_ordinal,
        }
        self.buffer.partitions[0].append((self._key, _encode(value), None))
        return True

    def written(self) -> None:
        """See `cdc.contracts.SideWriter.written`."""
        now_s, reached = self._clock.monotonic_s(), self._reaching.popleft() if self._reaching else Lsn(0)
        with self._lock:
            while self._pending and self._pending[0][0] <= reached:
                self._observer.heartbeat_returned(now_s - self._pending.popleft()[1])

    def sent(self, lsn: Lsn, began_s: float) -> None:
        """A statement on the source began at `began_s`, and its effect lies below `lsn`."""
        with self._lock:
            self._pending.append((lsn, began_s))
