"""The thread that prunes the outbox while capture runs. If it fails, capture continues."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import InvariantError, SourceRefused, TailraceError
from cdc.lsn import Lsn
from cdc.replication.connect import Connection, connect, sever
from cdc.replication.table_shape import SourceTable
from cdc.telemetry import log
from outbox.pruner import Pruner

_JOIN_S: Final = 10.0


class PruneObserver(Protocol):
    """Receives the results of pruning; for metrics, logs and status."""

    def pruned(self, rows: int, partitions: int) -> None:
        """`rows` rows were deleted and `partitions` partitions were dropped."""

    def prune_failed(self, cause: TailraceError | None) -> None:
        """Pruning failed; None: it works again."""


class PruneThread:
    """Prunes every `[outbox] prune_interval_s`, and continues at once while there is more."""

    def __init__(
        self, config: Config, table: SourceTable, durable: Callable[[], Lsn], clock: Clock, observer: PruneObserver
    ) -> None:
        """`durable` returns the LSN below which every commit is known to be in Kafka."""
        assert config.outbox is not None
        self._config = config
        self._interval_s = config.outbox.prune_interval_s
        self._clock = clock
        self._observer = observer
        self._stop = threading.Event()
        self._connection: Connection | None = None
        self._pruner = Pruner(config.outbox, table.oid, durable, clock, self._stop, partitioned=table.partitioned)
        self._thread = threading.Thread(target=self._run, name="outbox-pruner", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, also in the middle of a statement; uncommitted deletes are rolled back."""
        self._stop.set()
        if self._connection is not None:
            sever(self._connection)
        self._thread.join(_JOIN_S)
        self._hang_up()

    def _run(self) -> None:
        while not self._stop.is_set():
            more = False
            try:
                if self._connection is None:
                    self._connection = connect(self._config.source.dsn, application_name="cdc outbox pruner")
                pruned = self._pruner.turn(self._connection)
                more = pruned.more
                if pruned.rows or pruned.partitions:
                    self._observer.pruned(pruned.rows, pruned.partitions)
                self._observer.prune_failed(None)
            except TailraceError as error:
                if not self._stop.is_set():
                    self._observer.prune_failed(error)
                if not isinstance(error, SourceRefused):
                    self._hang_up()
            except Exception as error:  # noqa: BLE001 - the thread goes on; the observer reports it
                self._observer.prune_failed(InvariantError(f"pruning the outbox failed: {log.origin(error)}"))
                self._hang_up()
            if not more and self._clock.wait(self._stop, self._interval_s):
                return

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
