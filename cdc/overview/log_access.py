"""One Kafka reader for all requests of the page, opened when it is needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cdc.errors import BrokerUnreachable, TailraceError
from cdc.kafka.log_reader import LogReader

if TYPE_CHECKING:
    from cdc.clock import Clock
    from cdc.config.settings import Config

ANSWER_S: Final = 5.0
_TURN_S: Final = 15.0  # a request that waits longer for its turn is refused
_AGAIN_S: Final = 5.0
"""After Kafka did not answer, further requests get that error for this long: each would hold a thread for seconds."""


class LogAccess:
    """Lends its reader to one request at a time. Thread-safe."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._failed: tuple[float, BrokerUnreachable] | None = None
        self._lock = threading.Lock()
        self._reader: LogReader | None = None
        self._closed = False

    @contextmanager
    def reader(self) -> Iterator[LogReader]:
        """Lend the reader. Raises BrokerUnreachable when other requests hold it for too long.

        After an error the reader is replaced: it may still have an assignment or an old position.
        """
        if not self._lock.acquire(timeout=_TURN_S):
            raise BrokerUnreachable("other requests wait for Kafka; try again later")
        try:
            if self._closed:
                raise BrokerUnreachable("the process is stopping")
            if self._failed is not None and self._clock.monotonic_s() - self._failed[0] < _AGAIN_S:
                raise self._failed[1]
            self._failed = None
            if self._reader is None:
                self._reader = LogReader(self._config.kafka, client_id="tailrace-page", answer_s=ANSWER_S)
            try:
                yield self._reader
            except TailraceError as error:
                self._end()
                if isinstance(error, BrokerUnreachable):
                    self._failed = self._clock.monotonic_s(), error
                raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the connections."""
        with self._lock:
            self._closed = True
            self._end()

    def _end(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None
