"""`cdc.verify.partition_check` accepts a correct partition and names every fault."""

from __future__ import annotations

import json

from cdc.cutindex.index_reader import PartitionCount
from cdc.model.change_records import Record
from cdc.verify.partition_check import PartitionCheck
from tests.fixtures.capture.murmur2 import java_partition
from tests.fixtures.capture.rolling_hash import rolled


def event(op: str, commit_lsn: int, ordinal: int, *, epoch: int = 1) -> bytes:
    source = {"epoch": epoch, "commit_lsn": commit_lsn, "ordinal": ordinal, "table": "t"}
    after = None if op == "d" else {"id": 1}
    return json.dumps({"before": None, "after": after, "source": source, "op": op, "ts_ms": 1}).encode()


def judged(records: list[Record], *, keyed: bool = True, index: int = 0, partitions: int = 1) -> PartitionCheck:
    check = PartitionCheck(index, partitions, keyed=keyed)
    check.count_in(records)
    for key, value, _ in records:
        check.judge(key, value)
    return check


def faults(records: list[Record], *, keyed: bool = True) -> dict[str, int]:
    check = judged(records, keyed=keyed)
    check.finish()
    return check.faults.named()


A, B = b'{"id":1}', b'{"id":2}'


def test_a_sound_partition_has_no_faults() -> None:
    records: list[Record] = [
        (A, event("c", 10, 1), None),
        (B, event("c", 10, 2), None),
        (A, event("d", 20, 1), None),  # a changed key: delete, tombstone and create at one position
        (A, None, None),
        (B, event("c", 20, 1), None),
        (B, event("u", 5, 1, epoch=2), None),
    ]

    check = judged(records)

    assert check.settle(account_of(records), since_start=True, may_be_compacted=False) == "exact"
    assert check.faults.named() == {}
    assert (check.count, check.tombstone_count) == (6, 1)


def test_an_event_id_that_comes_twice_is_repeated() -> None:
    assert faults([(A, event("c", 10, 1), None), (A, event("c", 10, 1), None)]) == {"repeated": 1}


def test_a_repeated_event_of_a_table_without_key_is_repeated() -> None:
    assert faults([(None, event("c", 10, 1), None), (None, event("c", 10, 1), None)], keyed=False) == {"repeated": 1}
    assert faults([(None, event("c", 10, 1), None), (None, event("c", 10, 2), None)], keyed=False) == {}


def test_an_event_behind_a_later_one_is_disordered() -> None:
    later_epoch: list[Record] = [(A, event("c", 10, 1, epoch=2), None), (A, event("u", 99, 1, epoch=1), None)]

    assert faults([(A, event("c", 10, 2), None), (B, event("c", 10, 1), None)]) == {"disordered": 1}
    assert faults(later_epoch) == {"disordered": 1}


def test_deletes_and_tombstones_come_in_pairs() -> None:
    delete: Record = (A, event("d", 10, 1), None)

    assert faults([delete]) == {"unpaired": 1}
    assert faults([(A, None, None)]) == {"unpaired": 1}
    assert faults([delete, (B, None, None)]) == {"unpaired": 1}
    assert faults([delete, (B, event("c", 11, 1), None), (A, None, None)]) == {"unpaired": 2}


def test_a_record_in_another_partition_than_its_keys_is_misplaced() -> None:
    home = java_partition(A, 4)

    assert judged([(A, event("c", 1, 1), None)], index=home, partitions=4).faults.named() == {}
    assert judged([(A, event("c", 1, 1), None)], index=(home + 1) % 4, partitions=4).faults.named() == {"misplaced": 1}


def test_what_is_no_event_of_ours_is_foreign() -> None:
    no_row = event("c", 1, 1).replace(b'{"id": 1}', b"null")

    for value in (b"", b"{", b"7", b"{}", no_row, event("x", 1, 1), b"\xff"):
        assert faults([(A, value, None)]) == {"foreign": 1}, value
    assert faults([(None, event("c", 1, 1), None)]) == {"foreign": 1}
    assert faults([(A, event("c", 1, 1), None)], keyed=False) == {"foreign": 1}
    assert faults([(None, None, None)], keyed=False) == {"foreign": 1}


def test_a_record_too_few_or_too_many_is_miscounted() -> None:
    records: list[Record] = [(A, event("c", 10, 1), None), (B, event("c", 10, 2), None)]

    for found in (records[:1], [*records, (A, event("u", 11, 1), None)]):
        check = judged(found)
        check.settle(account_of(records), since_start=True, may_be_compacted=False)
        assert check.faults.named() == {"miscounted": 1}


def test_another_byte_in_a_record_is_altered() -> None:
    records: list[Record] = [(A, event("c", 10, 1), None)]
    check = judged([(A, event("c", 10, 1) + b" ", None)])

    check.settle(account_of(records), since_start=True, may_be_compacted=False)

    assert check.faults.named() == {"altered": 1}


def test_what_compaction_may_have_removed_is_no_fault() -> None:
    deleted: list[Record] = [(A, event("c", 1, 1), None), (A, event("d", 2, 1), None), (A, None, None)]
    check = judged(deleted[2:])  # compaction keeps the last record of a key, which is the tombstone

    assert check.settle(account_of(deleted), since_start=True, may_be_compacted=True) == "compacted"
    assert check.faults.named() == {}


def test_an_old_log_that_is_still_whole_is_counted_exactly() -> None:
    records: list[Record] = [(A, event("c", 1, 1), None)]

    assert judged(records).settle(account_of(records), since_start=True, may_be_compacted=True) == "exact"


def test_more_records_than_counted_are_a_fault_whatever_compaction_does() -> None:
    check = judged([(A, event("c", 1, 1), None), (A, event("u", 2, 1), None)])

    check.settle(account_of([(A, event("c", 1, 1), None)]), since_start=True, may_be_compacted=True)

    assert check.faults.named() == {"miscounted": 1}


def test_counts_that_began_later_than_the_log_are_not_held_against_it() -> None:
    check = judged([(A, event("c", 1, 1), None)])

    assert check.settle(PartitionCount(1, 0, 0), since_start=False, may_be_compacted=False) == "unknown"
    assert check.faults.named() == {}


def account_of(records: list[Record]) -> PartitionCount:
    rolling = 0
    for key, value, _ in records:
        rolling = rolled(rolling, key, value)
    return PartitionCount(len(records), len(records), rolling)
