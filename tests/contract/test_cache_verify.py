"""`cdc verify` on Valkey: rows and versions that somebody else wrote are found and mended, in every mode."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from cdc.verify.findings import TableFindings
from cdc.verify.judge import Kind
from cdc.verify.latest import Sample
from cdc.verify.sinkcheck import Sides, check_topic
from sinks.cache.naming import mark
from sinks.cache.start import target as target_of
from sinks.cache.target import CacheTarget
from sinks.contract import Held
from tests.fixtures import targets
from tests.fixtures.caches import cache_settings, client_of
from tests.fixtures.caches import config as configured
from tests.fixtures.manual_clock import ManualClock
from tests.fixtures.sinklogs import TABLE, LogBook, changes
from tests.fixtures.verifyworld import World

if TYPE_CHECKING:
    from cdc.local.valkey import Valkey

NUMBERS = itertools.count()


def opened(server: Valkey, mode: str) -> CacheTarget:
    found = target_of(configured("shop"), f"v{next(NUMBERS)}", cache_settings(server, mode=mode))
    found.open([TABLE])
    return found


@pytest.mark.parametrize("how", ["row", "version"])
def test_what_the_topic_proves_wrong_is_mended(valkey: Valkey, how: str) -> None:
    target, client = opened(valkey, "value"), client_of(valkey)

    def damage(one: Held) -> None:
        client.set(one.name, '{"id":0,"v":"edited"}')
        if how == "version":
            client.setrange(mark(one.name), 0, str(one.version + 900).zfill(19))

    targets.what_the_topic_proves_wrong_is_mended(target, TABLE, damage)
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
        key: one.name for key, one in zip(book.rows, target.look(TABLE.topic, list(book.rows)), strict=True) if one
    }
    edited, deleted, stale, late = list(names)[:4]
    before = {one.key: one for one in target.held(TABLE.topic)}
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
        return check_topic(
            Sides(
                reader=world,
                target=target,
                committed=world.committed,
                blocked=lambda _: frozenset(),
                content=target.content,
                clock=ManualClock(),
                sample=Sample(),
                repair=repair,
            ),
            TABLE,
        )

    found = check(repair=False)
    assert found.counts == {Kind.MISSING: 1, Kind.EXTRA: 1, Kind.STALE: 1, Kind.DIFFERENT: 2}, found
    found = check(repair=True)
    assert (found.repaired, found.unrepaired, found.ok) == (5, 0, True), found
    assert {one.key: one for one in target.held(TABLE.topic) if one.content is not None} == before
    assert check(repair=False).differing == 0
    target.close()
