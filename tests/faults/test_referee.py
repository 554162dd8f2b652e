"""Negative controls: the referee fails on every kind of wrong log, and on daemons that are broken on purpose.

A test that cannot fail shows nothing (docs/internals/faults.md, "Mutants").
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tests.fixtures.capture.referee import history_faults
from tests.fixtures.capture.topic_log import LogRecord, TopicLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.servers.daemon import CaptureSite

KEYS: Final = {"public.t": ["id"]}


def dropped(log: TopicLog, records: list[LogRecord]) -> None:
    """One event is not there."""
    records.remove(events(records)[4])


def doubled(log: TopicLog, records: list[LogRecord]) -> None:
    """One event is there twice."""
    records.append(records[-1])


def reordered(log: TopicLog, records: list[LogRecord]) -> None:
    """Two events of one key have changed places."""
    of_one = [record for record in events(records) if record.key == b'{"id":1}']
    first, second = records.index(of_one[0]), records.index(of_one[1])
    records[first], records[second] = records[second], records[first]


def without_tombstone(log: TopicLog, records: list[LogRecord]) -> None:
    """A delete that compaction will never carry out."""
    records.remove(next(record for record in records if record.value is None))


def stale(log: TopicLog, records: list[LogRecord]) -> None:
    """An update that shows the row as it was before."""
    at = next(index for index, record in enumerate(records) if record.op == "u")
    records[at] = altered(records[at], b'"v":"new', b'"v":"old')


def own_for_reselected(log: TopicLog, records: list[LogRecord]) -> None:
    """A value that was read later and passes for the row's own."""
    at = next(index for index, record in enumerate(records) if b'"reselected"' in (record.value or b""))
    records[at] = altered(records[at], b',"reselected":["body"]', b"")


def moved(log: TopicLog, records: list[LogRecord]) -> None:
    """A key in two partitions."""
    other = next(
        partition for partition in log.records if ".__" not in partition[0] and log.records[partition] is not records
    )
    log.records[other].append(replace(records.pop(), partition=other[1]))


def ordinal_shifted(log: TopicLog, records: list[LogRecord]) -> None:
    """An event under the position of another one."""
    at = next(index for index, record in enumerate(records) if record.op == "u")
    records[at] = altered(records[at], b'"ordinal":1', b'"ordinal":7')


def test_every_kind_of_wrong_log_is_seen(capture: CaptureSite) -> None:
    wrongs: list[Callable[[TopicLog, list[LogRecord]], None]] = [
        dropped,
        doubled,
        reordered,
        without_tombstone,
        stale,
        own_for_reselected,
        moved,
        ordinal_shifted,
    ]
    capture.sql(
        "create table t (id int primary key, v text, body text)", "alter table t alter column body set storage external"
    )
    oracle = capture.oracle()
    daemon = capture.running()
    capture.sql(
        "insert into t select g, 'old', repeat('0123456789', 300) from generate_series(1, 20) g",
        *[f"update t set v = 'new {number}' where id = {number}" for number in range(1, 10)],
        "update t set v = 'newer' where id = 1",
        "delete from t where id > 5",
    )
    log, changes = capture.settled(daemon), oracle.changes()

    assert history_faults(changes, log, KEYS) == []
    for wrong in wrongs:
        spoilt = copy.deepcopy(log)
        wrong(spoilt, partition_of_key_one(spoilt))
        assert history_faults(changes, spoilt, KEYS), f"a log that is {wrong.__name__} was found sound"


def test_daemon_that_acknowledges_early_loses_rows_and_is_seen(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)")
    oracle = capture.oracle()
    early = capture.running({"capture": {"catalog_check_s": 0.1}}, mutant="acknowledge_early")
    capture.sql("insert into t select g, 'lost' from generate_series(1, 100) g")
    assert early.exit_code() < 0

    # The slot has moved past what the log has: said by name, where a daemon that trusts the slot would go on.
    stop = capture.daemon().stopped_with()

    assert stop["state"] == "GAP"
    assert history_faults(oracle.changes(), capture.log(), KEYS) != []


def altered(record: LogRecord, old: bytes, new: bytes) -> LogRecord:
    """The record with other bytes, and not by accident the same ones."""
    assert record.value is not None
    assert old in record.value
    return replace(record, value=record.value.replace(old, new))


def partition_of_key_one(log: TopicLog) -> list[LogRecord]:
    """The records beside which key 1 lies."""
    return next(records for records in log.records.values() if any(record.key == b'{"id":1}' for record in records))


def events(records: list[LogRecord]) -> list[LogRecord]:
    """Everything but tombstones."""
    return [record for record in records if record.value is not None]
