"""`cdc verify` on Valkey finds and repairs rows and versions that another program wrote, in every mode."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from cdc.verify.findings import TableFindings
from cdc.verify.key_states import Sample
from cdc.verify.key_verdict import DifferenceKind
from cdc.verify.sink_check import SinkComparison, check_topic
from sinks.cache.row_names import mark
from sinks.cache.start import target as target_of
from sinks.cache.target import CacheTarget
from sinks.contract import StoredKey
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.servers.valkey import cache_settings, client_of
from tests.fixtures.servers.valkey import config as configured
from tests.fixtures.sinks import target_contract
from tests.fixtures.sinks.sink_logs import TABLE, LogBook, changes
from tests.fixtures.sinks.verify_world import World

if TYPE_CHECKING:
    from cdc.local.valkey_server import Valkey

NUMBERS = itertools.count()
ZERO = dict.fromkeys(DifferenceKind, 0)


def opened(server: Valkey, mode: str, **how: Any) -> CacheTarget:
    found = target_of(configured("shop"), f"v{next(NUMBERS)}", cache_settings(server, mode=mode, **how))
    found.open([TABLE])
    return found


def checked(world: World, target: CacheTarget, *, repair: bool = False, now_s: float = 5.0) -> TableFindings:
    """Compare; the records of a `LogBook` are of the first second or two of 1970."""
    return check_topic(
        SinkComparison(
            reader=world,
            target=target,
            committed=world.committed,
            blocked=lambda _: frozenset(),
            content=target.content,
            clock=ManualClock(now_s - ManualClock(0).wall_s()),
            sample=Sample(),
            repair=repair,
        ),
        TABLE,
    )


def ten_rows(server: Valkey, mode: str, **how: Any) -> tuple[CacheTarget, World, list[str]]:
    """A target, a log of ten keys that it has applied, and the names of these keys in the store."""
    target = opened(server, mode, **how)
    book = LogBook(TABLE.topic)
    for key in range(10):
        book.put(key, {"id": key, "v": "first"})
        book.put(key, {"id": key, "v": "second"})
    target.apply(changes(book.records))
    world = World(book.records, iter(()))
    world.finish()
    return target, world, [str(target._tables[TABLE.topic].names.value(key)) for key in book.rows]


@pytest.mark.parametrize("how", ["row", "version"])
def test_wrong_keys_of_the_topic_are_repaired(valkey: Valkey, how: str) -> None:
    target, client = opened(valkey, "value"), client_of(valkey)

    def damage(one: StoredKey) -> None:
        client.set(one.name, '{"id":0,"v":"edited"}')
        if how == "version":
            client.setrange(mark(one.name), 0, str(one.version + 900).zfill(19))

    target_contract.what_the_topic_proves_wrong_is_mended(target, TABLE, damage)
    target.close()


@pytest.mark.parametrize("mode", ["value", "hash"])
def test_planted_rows_are_found_and_repaired_and_nothing_else_is_touched(valkey: Valkey, mode: str) -> None:
    book = LogBook(TABLE.topic)
    for key in range(300):
        book.put(key, {"id": key, "v": f"first {key}"})
        book.put(key, {"id": key, "v": f"second {key}"})
    target, client = opened(valkey, mode), client_of(valkey)
    target.apply(changes(book.records))
    names = {
        key: one.name for key, one in zip(book.rows, target.read_keys(TABLE.topic, list(book.rows)), strict=True) if one
    }
    edited, deleted, stale, late = list(names)[:4]
    before = {one.key: one for one in target.stored_keys(TABLE.topic)}
    if mode == "hash":
        client.hset(names[edited], "v", "edited")
    else:
        client.set(names[edited], '{"id":0,"v":"edited"}')
    client.delete(names[deleted])
    client.delete(names[stale], mark(names[stale]))
    target.apply(changes([record for record in book.records if record[4] == stale][:1]))
    client.setrange(mark(names[late]), 0, "9".zfill(19).replace("0", "1"))
    extra = LogBook(TABLE.topic)
    extra.put("planted", {"id": "planted", "v": "x"})
    target.apply(changes(extra.records))
    world = World(book.records, iter(()))
    world.finish()

    def check(*, repair: bool) -> TableFindings:
        return checked(world, target, repair=repair)

    found = check(repair=False)
    assert found.counts == {
        DifferenceKind.MISSING: 1,
        DifferenceKind.EXTRA: 1,
        DifferenceKind.STALE: 1,
        DifferenceKind.DIFFERENT: 2,
    }, found
    found = check(repair=True)
    assert (found.repaired, found.unrepaired, found.ok) == (5, 0, True), found
    assert {one.key: one for one in target.stored_keys(TABLE.topic) if one.content is not None} == before
    assert check(repair=False).differing == 0
    target.close()


@pytest.mark.parametrize("mode", ["value", "hash"])
def test_row_that_has_expired_is_not_missing_and_one_that_should_be_there_is(valkey: Valkey, mode: str) -> None:
    target, world, names = ten_rows(valkey, mode, ttl_s=3600, tombstone_s=7200)
    client = client_of(valkey)
    client.delete(names[0], names[1])
    client.delete(names[2], mark(names[2]))

    found = checked(world, target)
    assert (found.expired, found.counts[DifferenceKind.MISSING], found.differing, found.ok) == (2, 1, 1, False), found
    later = checked(world, target, now_s=7300)
    assert (later.expired, later.differing, later.ok) == (3, 0, True), later
    found = checked(world, target, repair=True)
    assert (found.expired, found.repaired, found.ok) == (2, 1, True), found
    assert [client.exists(name) for name in names[:4]] == [0, 0, 1, 1]
    target.close()


def test_row_of_a_store_that_evicts_is_right_without_its_mark_and_wrong_only_by_its_content(valkey: Valkey) -> None:
    target, world, names = ten_rows(valkey, "value", evictable=True)
    client = client_of(valkey)
    client.delete(names[0], mark(names[0]))
    client.delete(names[1])
    client.delete(mark(names[2]), mark(names[3]))
    client.set(names[3], '{"id":3,"v":"first"}')
    client.set(names[0].rpartition(":")[0] + ":planted", '{"id":"planted"}')

    found = checked(world, target)
    assert (found.expired, found.counts) == (2, {**ZERO, DifferenceKind.STALE: 1, DifferenceKind.EXTRA: 1}), found
    found = checked(world, target, repair=True)
    assert (found.expired, found.repaired, found.ok) == (2, 2, True), found
    assert client.get(names[3]) == b'{"id":3,"v":"second"}'
    target.close()


def test_key_that_the_application_fills_may_be_missing_and_must_not_be_older_than_its_last_change(
    valkey: Valkey,
) -> None:
    target, world, names = ten_rows(valkey, "invalidate", tombstone_s=7200)
    client = client_of(valkey)
    for name in names[:4]:
        client.set(name, "a page")
    whole = checked(world, target)
    assert (whole.compared, whole.differing, whole.ok) == (10, 0, True), whole
    client.setrange(mark(names[0]), 0, "0" * 19)  # taken away for the change before
    client.delete(mark(names[1]))
    client.delete(mark(names[9]))  # and nobody has filled it

    found = checked(world, target)
    assert (found.counts, found.undecided) == ({**ZERO, DifferenceKind.STALE: 2}, 0), found
    long_after = checked(world, target, now_s=7300)
    assert (long_after.counts, long_after.undecided, long_after.ok) == ({**ZERO, DifferenceKind.STALE: 1}, 1, False), (
        long_after
    )
    assert list(long_after.examples) == ["undecided", "stale"]

    found = checked(world, target, repair=True, now_s=7300)
    assert (found.repaired, found.unrepaired, found.ok) == (2, 0, True), found
    assert [client.exists(name) for name in names[:4]] == [0, 0, 1, 1]
    target.close()


def test_page_of_a_row_that_was_deleted_is_found_when_the_delete_never_arrived(valkey: Valkey) -> None:
    target = opened(valkey, "invalidate", tombstone_s=7200)
    book, client = LogBook(TABLE.topic), client_of(valkey)
    for key in range(3):
        book.put(key, {"id": key})
    names = [str(target._tables[TABLE.topic].names.value(key)) for key in book.rows]
    target.apply(changes(book.records))
    deleted = len(book.records)
    for key in range(3):
        book.delete(key)
    target.apply(changes(book.records[deleted:-2]))  # that of the third is never applied
    for name in names:
        client.set(name, "a page")
    client.setrange(mark(names[0]), 0, "0" * 19)
    world = World(book.records, iter(()))
    world.finish()

    found = checked(world, target)
    assert found.counts == {**ZERO, DifferenceKind.EXTRA: 2}, found
    found = checked(world, target, repair=True)
    assert (found.repaired, found.ok) == (2, True), found
    assert [client.exists(name) for name in names] == [0, 1, 0], "filled behind the delete"
    target.close()
