"""The displayed progress of snapshots, their throttle, and the condition that finds rows by key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.model.relation import Column, Relation, ReplicaIdentity
from snapshot.key_filter import key_condition
from snapshot.snapshot_progress import Rates, TableProgress, WaitReasons, document, done_count
from snapshot.throttle import Throttle

READING = TableProgress("public.t", "planned", False, 1, False, 0, 0, 0, 100, 0, 0, 0, frozenset())
TYPES = {"i": 20, "s": 25, "u": 2950, "d": 1082}


def _relation() -> Relation:
    columns = tuple(Column(name, oid, -1, True) for name, oid in TYPES.items())
    return Relation(1, "public", "t", ReplicaIdentity.DEFAULT, columns)


def test_rates_and_what_is_left_follow_from_the_last_ten_seconds() -> None:
    rates = Rates()
    for second in range(21):
        now = replace(READING, row_count=100 * second, blocks_done=2 * second)
        rates.sample(float(second), [now])

    found = document(now, rates.of(20.0, now), WaitReasons())

    assert (found["rows_per_second"], found["eta_seconds"]) == (100.0, 30.0)


def test_another_snapshot_of_the_table_does_not_inherit_a_rate() -> None:
    rates = Rates()
    rates.sample(0.0, [replace(READING, row_count=1000)])

    assert rates.of(5.0, replace(READING, number=2, row_count=5)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("one", "reasons", "why"),
    [
        (replace(READING, state="begun"), WaitReasons(), ["the list of open transactions"]),
        (
            replace(READING, state="suspected", waits_for=frozenset({7, 8})),
            WaitReasons(blockers={7: "pid 4711 (psql)"}),
            ["pid 4711 (psql)", "1 transactions to become visible"],
        ),
        (READING, WaitReasons(behind=True, throttled=True), ["the stream, which", "snapshot.rows_per_s_max"]),
        (replace(READING, chunks_waiting=3), WaitReasons(), ["the stream to pass the position at which 3 chunks"]),
        (replace(READING, sweeping=True), WaitReasons(), ["a search of its topic for keys"]),
        (replace(READING, sweeping=True, searched=True), WaitReasons(), []),
        (replace(READING, paused=True, chunks_waiting=3), WaitReasons(behind=True), []),
        (replace(READING, state="stopped"), WaitReasons(behind=True), []),
    ],
)
def test_what_is_waited_for_is_named(one: TableProgress, reasons: WaitReasons, why: list[str]) -> None:
    found = document(one, (0.0, 0.0), reasons)["waits_for"]

    assert len(found) == len(why)
    assert all(text.startswith(begins) for text, begins in zip(found, why, strict=True))


def test_blocks_appended_since_the_plan_do_not_count() -> None:
    assert done_count([(0, 10), (20, None)], 50) == 40
    assert done_count([(0, None)], 0) == 0
    assert done_count([(60, None)], 50) == 0


def test_throttle_lets_the_next_chunk_wait_for_what_one_had() -> None:
    throttle = Throttle(100)

    throttle.read(250, 10.0)
    throttle.read(50, 10.5)

    assert [throttle.open(now_s) for now_s in (10.0, 12.9, 13.0)] == [False, False, True]
    assert Throttle(0).open(0.0)


def test_throttle_saves_up_nothing_while_nothing_is_read() -> None:
    throttle = Throttle(100)

    throttle.read(100, 0.0)
    throttle.read(100, 1000.0)

    assert not throttle.open(1000.5)


@pytest.mark.parametrize(
    ("keys", "sql"),
    [
        ([b'{"i":7}', b'{"i":-8}', b'{"i":7}'], "true and \"i\" in ('-8', '7')"),
        ([b'{"i":"7","s":"it\'s"}'], "true and \"i\" in ('7') and \"s\" in ('it''s')"),
        ([b'{"i":7}', b'{"i":"x"}'], "true"),
        ([b'{"i":9223372036854775808}'], "true"),
        ([b'{"i":true}'], "true"),
        ([b'{"d":"2026-01-01","s":5}'], "true"),
        ([b'{"u":"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"}'], "true"),
        ([b'{"u":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}'],
         "true and \"u\" in ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')"),
    ],
)  # fmt: skip
def test_index_is_asked_only_for_keys_that_have_one_text(keys: list[bytes], sql: str) -> None:
    assert key_condition(_relation(), keys).as_string(None) == sql


def test_index_is_asked_for_keys_of_other_bytes_by_their_columns() -> None:
    condition = key_condition(_relation(), [b"\0\0\0\0\5\x0e"], [{"i": "7", "s": "x"}])

    assert condition.as_string(None) == "true and \"i\" in ('7') and \"s\" in ('x')"
