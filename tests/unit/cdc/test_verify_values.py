"""Values of `cdc.verify`: rows in normal form, the cut index, reports."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cdc.cutindex.index_reader import PartitionCount
from cdc.lsn import Lsn
from cdc.model.progress_record import Cut
from cdc.verify.row_json import canonical, row_of
from cdc.verify.verified_cut import CutIndex
from cdc.verify.verify_report import EXAMPLES_MAX, Differences, LogFaults, TableReport, VerifyReport


@pytest.mark.parametrize(
    ("log", "server"),
    [
        ('{"v":1e+20}', '{"v": 100000000000000000000}'),
        ('{"v":1.50}', '{"v": 1.5}'),
        ('{"v":-0}', '{"v": 0}'),
        ('{"a":1,"b":[1,{"y":2.0,"x":null}]}', '{"b": [1, {"x": null, "y": 2}], "a": 1}'),
        ('{"v":"\\u00fc"}', '{"v": "ü"}'),
    ],
)
def test_equal_values_have_one_normal_form(log: str, server: str) -> None:
    assert row_of(log) == row_of(server)
    assert canonical(row_of(log)) == canonical(row_of(server))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"v":9007199254740993}', '{"v":9007199254740992}'),
        ('{"v":0.1}', '{"v":0.10000000000000001}'),
        ('{"v":1}', '{"v":"1"}'),
        ('{"v":null}', "{}"),
        ('{"v":[1]}', '{"v":[[1]]}'),
    ],
)
def test_different_values_stay_different(one: str, other: str) -> None:
    assert row_of(one) != row_of(other)
    assert canonical(row_of(one)) != canonical(row_of(other))


def test_numbers_are_read_exactly() -> None:
    assert row_of('{"v": 5e-324}')["v"] == Decimal("5e-324")
    assert canonical({"v": Decimal("0.1")}) == b'{"v":0.1}'


def cut(end_lsn: int, *, next_ordinal: int = 0, full: bool = False, **changed: tuple[int, int]) -> Cut:
    accounts = {f"shop.public.{name}-0": (offset, count, f"{offset:x}") for name, (offset, count) in changed.items()}
    return Cut(epoch=1, end_lsn=end_lsn, next_ordinal=next_ordinal, full=full, changed=accounts)


def test_a_cut_index_ends_at_the_last_complete_source_transaction() -> None:
    index = CutIndex()

    for one in (
        cut(10, full=True, a=(0, 0), b=(0, 0)),
        cut(20, a=(5, 5)),
        cut(20, next_ordinal=4, b=(3, 3)),
        cut(20, next_ordinal=8, a=(9, 8)),
    ):
        index.take(one)

    assert (index.end_lsn, index.count) == (20, 4)
    assert index.topic("shop.public.a") == {0: PartitionCount(5, 5, 5)}
    assert index.topic("shop.public.b") == {0: PartitionCount(0, 0, 0)}

    index.take(cut(30, a=(12, 10)))

    assert index.end_lsn == 30
    assert index.topic("shop.public.a") == {0: PartitionCount(12, 10, 12)}
    assert index.topic("shop.public.b") == {0: PartitionCount(3, 3, 3)}


def test_a_cut_index_without_its_beginning_starts_at_a_full_map() -> None:
    index = CutIndex()

    index.take(cut(10, a=(5, 5)))
    assert not index.accounts
    index.take(Cut(epoch=1, end_lsn=20, full=True, since_lsn=7, changed={"shop.public.a-0": (6, 2, "f")}))

    assert (index.end_lsn, index.since_lsn) == (Lsn(20), Lsn(7))
    assert index.topic("shop.public.a") == {0: PartitionCount(6, 2, 15)}


def test_a_report_is_ok_only_when_everything_was_compared_and_agrees() -> None:
    clean = TableReport(table="t", topic="x.t", keyed=True)
    unread = TableReport(table="u", topic="x.u", keyed=True, problem="it is not in the publication")
    faulty = TableReport(table="v", topic="x.v", keyed=True, faults=LogFaults(repeated=1))
    differing = TableReport(table="w", topic="x.w", keyed=True, differences=Differences(missing=1))

    assert report(clean).ok
    assert not report().ok
    for one in (unread, faulty, differing):
        assert not report(clean, one).ok
    assert report(clean, faulty, faulty).faults.named() == {"repeated": 2}


def test_only_a_few_keys_are_remembered() -> None:
    differences = Differences()

    for number in range(100):
        differences.show("missing", f'{{"id":{number}}}')

    assert len(differences.examples["missing"]) == EXAMPLES_MAX


def report(*tables: TableReport) -> VerifyReport:
    return VerifyReport(end_lsn=Lsn(1), cut_count=1, partition_count=1, tables=tables)
