"""Creates the DDL watch from recorded facts, the current catalog, and what operators accept meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

from cdc.capture.ddl_watch import DdlLog, DdlWatch
from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.contracts import DdlObserver
from cdc.kafka.log_reader import LogReader
from cdc.model.table_facts import AcceptedFindings
from cdc.progress.bounded_reader import BoundedReader
from cdc.progress.recorded_catalog import Acceptances, recorded_catalog
from cdc.replication.catalog_facts import CatalogReader
from cdc.replication.connect import Connection

_ANSWER_S: Final = 2.0  # for an answer of the broker, in the thread of the catalog watch
_AHEAD_BYTES: Final = 2 << 20  # like other readers beside a running capture


class _Accepted:
    """Follows acceptances in the progress topic, with a consumer that is created when it is first needed."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._reader: LogReader | None = None
        self._acceptances: Acceptances | None = None

    def __call__(self) -> Mapping[str, AcceptedFindings]:
        if self._acceptances is None:
            self._reader = LogReader(self._config.kafka, client_id="tailrace-accepted", ahead_bytes=_AHEAD_BYTES)
            self._acceptances = Acceptances(BoundedReader(self._reader, _ANSWER_S), self._config.name)
        return self._acceptances.new()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def ddl_watch(
    config: Config,
    sql: Connection,
    reader: LogReader,
    log: DdlLog,
    clock: Clock,
    *,
    epoch: int,
    observer: DdlObserver,
    closing: ExitStack,
) -> DdlWatch:
    """Return the watch after its first check, which finds what happened while capture was down.

    `closing` closes what it opens later.
    """
    accepted = _Accepted(config)
    closing.callback(accepted.close)
    recorded = recorded_catalog(reader, config.name)
    watch = DdlWatch(
        config.ddl,
        recorded,
        log,
        clock,
        epoch=epoch,
        observer=observer,
        accepted=accepted,
        wanted=config.snapshot.wants,
    )
    watch.check(catalog_of(config, sql))
    return watch


def catalog_of(config: Config, sql: Connection) -> CatalogReader:
    """Return the catalog as a connection sees it."""
    return CatalogReader(sql, config.publication, config.source.tables)
