"""Compares every table with the rows that an independent read_committed reader gets from its topic.

    lsn = ...                                   # pg_current_wal_insert_lsn(), after the last writer has committed
    report = fold_and_compare(config, lsn)
    assert report.ok

Nothing may write to the captured tables from `lsn` on until the function returns: rows are compared with the log at one
cut, so a later change is a difference. Therefore columns in `source.reselected` are compared like all others, with the
value in the last record of the key: a value that was read after the cut equals that of the cut. Memory does not grow
with the tables.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from cdc.clock import Clock, SystemClock
from cdc.config.settings import Config
from cdc.errors import UsageError
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from cdc.model.topic_names import data_topic
from cdc.replication.table_shape import SourceTable
from cdc.verify.row_json import Row, canonical, row_of
from cdc.verify.source_tables import SourceRows, open_source
from cdc.verify.topic_rows import TopicFold
from cdc.verify.verified_cut import CutIndex, wait_for_cut
from cdc.verify.verify_report import Differences, TableReport, VerifyReport

_WAIT_S: Final = 60.0
_NO_LAG: Final = "0"


class VerifyProgress(Protocol):
    """Receives the progress of a verification. Must not raise."""

    def verifying(self, table: str, doing: str, done: int, total: int) -> None:
        """Report that `done` of `total` records (`doing` is ``fold``) or rows (``compare``) of a table are done.

        The total of rows is the number of live rows in the log.
        """


class NoProgress:
    """Ignores the progress."""

    def verifying(self, table: str, doing: str, done: int, total: int) -> None:
        """See `VerifyProgress`."""


def fold_and_compare(
    config: Config,
    lsn: Lsn,
    *,
    totals: Mapping[str, str] | None = None,
    progress: VerifyProgress | None = None,
    clock: Clock | None = None,
    wait_s: float = _WAIT_S,
) -> VerifyReport:
    """Wait until the log reaches `lsn`, then compare every captured table with its topic.

    Args:
        config: of the capture; read only.
        lsn: a WAL position after everything that was committed.
        totals: table -> an integer column to sum up in the log and in the table, as an additional check.
        progress: receives the progress.
        clock: for waiting.
        wait_s: how long to wait for the log.

    Raises:
        CutNotReached: the log does not reach `lsn` in time.
        UsageError: the topics have another format than ``json``.
        TailraceError: a server cannot be read.
    """
    if config.encode.format != "json":
        raise UsageError(
            f'cannot compare topics with encode.format = "{config.encode.format}": this check also verifies envelopes '
            "and reads the format json only",
            hint="compare the rows of topics in any format with the tables",
            command="cdc verify --topics",
        )
    clock, progress = clock or SystemClock(), progress or NoProgress()
    with LogReader(config.kafka, client_id="tailrace-verify") as reader:
        index = wait_for_cut(reader, config.name, lsn, clock, timeout_s=wait_s)
        with open_source(config) as source:
            topics = {table.table: data_topic(config.name, table.namespace, table.name) for table in source.tables}
            old = _perhaps_compacted(config, index, list(topics.values()), clock)
            reports = [
                _Comparison(source, table, topics[table.table], (totals or {}).get(table.table), progress).run(
                    reader, index, may_be_compacted=topics[table.table] in old
                )
                for table in source.tables
            ]
    return VerifyReport(
        end_lsn=index.end_lsn,
        cut_count=index.count,
        partition_count=sum(len(index.topic(topic)) for topic in topics.values()),
        tables=tuple(sorted(reports, key=lambda report: report.table)),
    )


def _perhaps_compacted(config: Config, index: CutIndex, topics: Sequence[str], clock: Clock) -> set[str]:
    """Return the topics that Kafka may have compacted: the log is older than their `min.compaction.lag.ms`."""
    age_ms = clock.wall_s() * 1000 - (index.began_ms or 0)
    facts = TopicAdmin(config.kafka, client_id="tailrace-verify").describe(topics)
    return {
        topic
        for topic, found in facts.items()
        if found is not None
        and "compact" in found.configs.get("cleanup.policy", "compact")
        and age_ms >= int(found.configs.get("min.compaction.lag.ms", _NO_LAG))
    }


class _Comparison:
    """Compares one table with its topic."""

    def __init__(
        self, source: SourceRows, table: SourceTable, topic: str, total_column: str | None, progress: VerifyProgress
    ) -> None:
        self._source = source
        self._table = table
        self._topic = topic
        self._column = total_column
        self._progress = progress
        self._found = Differences()
        self._sums = [0, 0]

    def run(self, reader: LogReader, index: CutIndex, *, may_be_compacted: bool) -> TableReport:
        table, keyed = self._table, bool(self._table.key)
        accounts = index.topic(self._topic)
        problem = table.problem or ("" if self._source.published(table) else "it is not in the publication")
        if not accounts:
            problem = problem or "the log has no topic for it at this cut"
        if problem:
            return TableReport(table=table.table, topic=self._topic, keyed=keyed, problem=problem)
        with contextlib.closing(TopicFold(self._topic, keyed=keyed)) as fold:
            expected = sum(account.count for account in accounts.values())
            for count in fold.read(reader, index, may_be_compacted=may_be_compacted):
                self._progress.verifying(table.table, "fold", count, expected)
            live_count = sum(fold.store.sizes())
            if keyed:
                self._compare_by_key(fold, live_count)
            elif fold.countable == "exact":
                self._compare_bags(fold, live_count)
            else:
                problem = "it has no key, and retention removed its first records"
        return TableReport(
            table=table.table,
            topic=self._topic,
            keyed=keyed,
            record_count=fold.record_count,
            tombstone_count=fold.tombstone_count,
            live_count=live_count,
            countable=fold.countable,
            faults=fold.faults,
            differences=self._found,
            totals={self._column: (self._sums[0], self._sums[1])} if self._column else {},
            problem=problem,
        )

    def _compare_by_key(self, fold: TopicFold, live_count: int) -> None:
        """Look up every row of the table in the store and remove it there; remaining rows are extra."""
        found = self._found
        for rows in self._source.rows(self._table):
            by_key = {canonical({column: row[column] for column in self._table.key}): row for row in rows}
            live = fold.store.get(list(by_key))
            for key, row in by_key.items():
                self._sum(1, row)
                if key not in live:
                    found.missing += 1
                    found.show("missing", key.decode())
                    continue
                text, omitted = live[key]
                there = row_of(text)
                self._sum(0, there)
                found.partial += bool(omitted)
                if there != {name: value for name, value in row.items() if name not in omitted}:
                    found.different += 1
                    found.show("different", key.decode())
            fold.store.drop(list(live))
            found.compared += len(rows)
            self._progress.verifying(self._table.table, "compare", found.compared, live_count)
        for key, text in fold.store.rest():
            found.extra += 1
            found.show("extra", key.decode())
            self._sum(0, row_of(text))

    def _compare_bags(self, fold: TopicFold, live_count: int) -> None:
        """Subtract the rows of the table from the counts of the log; both agree when every count is 0."""
        found = self._found
        if self._column is not None:
            for text, count in fold.store.counted():
                self._sum(0, row_of(text), count)
        for rows in self._source.rows(self._table):
            counts: dict[bytes, int] = {}
            for row in rows:
                self._sum(1, row)
                text = canonical(row)
                counts[text] = counts.get(text, 0) - 1
            fold.store.count(counts)
            found.compared += len(rows)
            self._progress.verifying(self._table.table, "compare", found.compared, live_count)
        for _, count in fold.store.counted():
            if count > 0:
                found.extra += count
            else:
                found.missing -= count

    def _sum(self, side: int, row: Row, times: int = 1) -> None:
        if self._column is not None:
            value = row.get(self._column)
            self._sums[side] += value * times if isinstance(value, int) else 0
