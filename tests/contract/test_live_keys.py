"""The live keys of a compacted topic, read back from a real broker up to capture's last record."""

from __future__ import annotations

import resource
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from cdc.errors import SpoolFailed
from cdc.kafka.log_reader import LogReader
from cdc.publish.ledger import Ledger
from cdc.publish.live_keys import SpooledKeys, StaleKeys
from tests.contract.kafka_clients import Broker, create_topic, producing, publish, settings_of
from tests.fixtures.capture.murmur2 import java_partition

if TYPE_CHECKING:
    from pathlib import Path

    from cdc.model.change_records import Record

_DEAD: Final[list[Record]] = [(b"gone", b"v", None), (b"gone", None, None)]


def test_keys_without_a_tombstone_are_live_in_order_and_per_partition(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=3)
    with producing(kafka, topic_prefix) as producer:
        ends = [
            publish(producer, topic, 0, [*_DEAD, (b"b", b"v", None), (b"\xff", b"v", None), (b"a", b"v", None)]),
            publish(producer, topic, 1, [(b"back", b"v", None), (b"back", None, None), (b"back", b"v", None)]),
        ]
        publish(producer, topic, 0, [(b"somebody else's", b"v", None)])
    ledger = Ledger()
    for index, end in enumerate([*ends, -1]):
        ledger.open((topic, index), end_offset=end + 1, before=None)

    with SpooledKeys(partial(LogReader, settings_of(kafka)), ledger).of(topic) as found:
        assert list(found) == [(0, [b"a", b"b", b"\xff"]), (1, [b"back"])]


def test_stale_keys_are_live_ones_whose_last_record_is_from_before(kafka: Broker, topic_prefix: str) -> None:
    """Nor is one of them streamed meanwhile; what lies behind the end counts for nothing."""
    topic = create_topic(kafka, topic_prefix, partitions=2)
    old: list[Record] = [(b"%d" % number, b"v", None) for number in range(8)]
    home = {number: java_partition(b"%d" % number, 2) for number in range(8)}
    with producing(kafka, topic_prefix) as producer:
        marks, ends = [], {}
        for index in range(2):
            records = [record for record in old if home[int(record[0] or b"")] == index]
            marks.append(publish(producer, topic, index, [*_DEAD, *records]) + 1)
            new: list[Record] = [(b"new", b"v", None)]
            new += [(b"0", b"w", None)] if home[0] == index else []
            new += [(b"1", None, None)] if home[1] == index else []
            ends[topic, index] = publish(producer, topic, index, new) + 1
            publish(producer, topic, index, [(b"%d" % number, None, None) for number in range(8)])
    stale = StaleKeys(partial(LogReader, settings_of(kafka)), at_once=1)

    with stale.of(topic, marks, ends, lambda: {b"2", b"3"}) as pages:
        found = [(keys, left) for keys, left in pages]

    wanted = sorted((home[number], b"%d" % number) for number in range(4, 8))
    assert found == [([key], len(wanted) - 1 - at) for at, (_, key) in enumerate(wanted)]


def test_keys_that_are_asked_for_are_found_alive_whenever_they_were_written(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=2)
    ends = {}
    with producing(kafka, topic_prefix) as producer:
        for index in range(2):
            mine = [b"%d" % number for number in range(8) if java_partition(b"%d" % number, 2) == index]
            records: list[Record] = [(key, b"v", None) for key in mine]
            records += [(b"5", None, None)] if b"5" in mine else []
            ends[topic, index] = publish(producer, topic, index, records) + 1
    stale = StaleKeys(partial(LogReader, settings_of(kafka)), at_once=10)
    among = frozenset({b"3", b"4", b"5", b"6", b"never"})

    with stale.of(topic, (), ends, lambda: {b"6"}, among) as pages:
        found = sorted(key for keys, _ in pages for key in keys)

    assert found == [b"3", b"4"]


def test_stale_keys_are_given_up_when_what_was_streamed_is_not_known(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as producer:
        end = publish(producer, topic, 0, [(b"%d" % number, b"v", None) for number in range(8)]) + 1
    answers: list[set[bytes] | None] = [set(), set(), None]
    stale = StaleKeys(partial(LogReader, settings_of(kafka)), at_once=2)

    with stale.of(topic, [end], {(topic, 0): end}, lambda: answers.pop(0)) as pages:
        found = [keys for keys, _ in pages]

    assert answers == []
    assert len(found) <= 1


def test_temporary_folder_that_is_full_is_named_and_waited_for(
    kafka: Broker, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on the size of files stands in for a full disk: SQLite writes when its cache of 16 MiB is full."""
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path))
    topic = create_topic(kafka, topic_prefix)
    records: list[Record] = [(b"%08d" % number * 120, b"v", None) for number in range(30_000)]
    with producing(kafka, topic_prefix) as producer:
        end = publish(producer, topic, 0, records)
    ledger = Ledger()
    ledger.open((topic, 0), end_offset=end + 1, before=None)
    keys = SpooledKeys(partial(LogReader, settings_of(kafka)), ledger)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(SpoolFailed, match=topic), keys.of(topic):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with keys.of(topic) as found:
        assert sum(len(chunk) for _, chunk in found) == len(records)
    assert list(tmp_path.iterdir()) == []
