"""What a key is to be, from its records."""

from __future__ import annotations

import pytest

from cdc.errors import TopicMismatch
from cdc.model.log_record import LogRecord
from sinks.runner.key_fold import by_key, change_of
from tests.fixtures.sinks.sink_logs import TOPIC, LogBook


def test_newest_record_counts_with_its_place_and_event() -> None:
    book = LogBook()
    book.put(1, {"id": 1, "v": 1})
    book.put(1, {"id": 1, "v": 2})

    change = change_of(book.records)

    assert change[:6] == (TOPIC, 0, 1, b'{"id":1}', b'{"id":1,"v":2}', ())
    assert (change.schema_id, change.epoch, change.commit_lsn, change.ts_ms) == ("5c4e4a1d", 1, 1016, 1016)


def test_delete_is_gone_by_event_by_tombstone_and_by_both() -> None:
    book = LogBook()
    book.put(1, {"id": 1})
    book.delete(1)
    _, event, tombstone = book.records

    found = [change_of(records) for records in ([event], [tombstone], [event, tombstone])]

    assert [change.row for change in found] == [None] * 3
    assert [change.offset for change in found] == [1, 2, 2]
    assert [change.commit_lsn for change in found] == [1016, 0, 1016]


def test_value_that_was_not_sent_comes_from_the_record_before() -> None:
    book = LogBook()
    book.put(1, {"id": 1, "v": 1, "big": "own"})
    book.put(1, {"id": 1, "v": 2, "big": "own"}, unchanged=["big"])
    book.put(1, {"id": 1, "v": 3, "big": "own"}, unchanged=["big"])

    assert change_of(book.records)[4:6] == (b'{"id":1,"v":3,"big":"own"}', ())
    assert change_of(book.records[1:]).kept == ("big",), "only the store can have it"


def test_value_that_was_read_again_is_never_replaced_by_an_older_one() -> None:
    """The record that changed it may have been removed by compaction: the store would keep the value from before."""
    book = LogBook()
    book.put(1, {"id": 1, "v": 1, "big": "before"})
    book.put(1, {"id": 1, "v": 2, "big": "now"}, reselected=["big"])

    for records in (book.records, book.records[1:]):
        assert change_of(records)[4:6] == (b'{"id":1,"v":2,"big":"now"}', ())


@pytest.mark.parametrize("begin", [0, 1, 3])
def test_row_that_begins_takes_nothing_from_the_row_that_had_the_key(begin: int) -> None:
    """Delete and insert are records of one batch, of two, or compaction has removed the delete."""
    book = LogBook()
    book.put(1, {"id": 1, "v": 1, "big": "before"})
    book.delete(1)
    book.put(1, {"id": 1, "v": 2, "big": "of the other key"}, unchanged=["big"])

    change = change_of(book.records[begin:])

    assert (change.row, change.kept, change.lacks) == (b'{"id":1,"v":2}', (), ("big",))


def test_row_behind_a_delete_owes_nothing_to_what_was_before() -> None:
    book = LogBook()
    book.put(1, {"id": 1, "big": "before"})
    book.delete(1)
    book.put(1, {"id": 1, "big": "after"})

    assert change_of(book.records)[4:6] == (b'{"id":1,"big":"after"}', ())


def test_keys_are_distinguished_by_topic_and_partition_and_keep_their_order() -> None:
    books = [LogBook(topic, partition) for topic in ("a.b.c", "a.b.d") for partition in (0, 1)]
    for value in (1, 2):
        for book in books:
            book.put(1, {"id": 1, "v": value})

    found = by_key(record for n in range(2) for book in books for record in book.records[n : n + 1])

    assert list(found) == [(book.topic, book.partition, b'{"id":1}') for book in books]
    assert [[record[2] for record in records] for records in found.values()] == [[0, 1]] * 4


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"{}", "it has no key"),
        (b"{}", b"no json", "JSON is malformed"),
        (b"{}", b'{"op":"c"}', "missing required field"),
        (b"{}", b'{"after":null,"op":"u","ts_ms":1,"source":{"epoch":1,"commit_lsn":1}}', "op 'u' without a row"),
    ],
)
def test_record_of_another_program_is_named(key: bytes | None, value: bytes, reason: str) -> None:
    record = LogRecord(TOPIC, 3, 17, 0, key, value, None)

    with pytest.raises(TopicMismatch, match=f"record 17 of {TOPIC}-3 .*{reason}"):
        [change_of(records) for records in by_key([record]).values()]
