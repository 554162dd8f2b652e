"""Folding records of a key in batches equals applying them one by one, wherever batches are divided.

The reference is `cdc.verify.verify_rule`, which `cdc verify` compares stores with; no code of the fold is in it. Faults
of the fold are planted, and `cdc verify` must find each of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import sinks.runner.key_fold
import tests.fixtures.sinks.memory_target
import tests.fixtures.sinks.sink_logs
from cdc.model.log_record import LogRecord
from cdc.verify.log_events import json_event
from cdc.verify.sink_check import check_topic
from cdc.verify.verify_rule import State, after
from sinks.contract import Change
from tests.fixtures.sinks.memory_target import MemoryTarget
from tests.fixtures.sinks.sink_logs import TABLE, TOPIC
from tests.fixtures.sinks.verify_world import World

KEY = b'{"id":1}'
COLUMNS = ("a", "b", "c")
RECORDS_MAX = 7


class KeyLog:
    """The records of one key. Values are numbers that grow, so each is known by the record it came from."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []

    def put(self, op: str, **how: str) -> None:
        """A row; `how` says of a column that it is reselected, unchanged, omitted or not there; else it has its own."""
        listed = {name: [column for column, one in how.items() if one == name] for name in set(how.values())}
        number = len(self.records)
        row: dict[str, Any] = {"id": 1}
        row |= {column: number for column in COLUMNS if how.get(column, "own") in {"own", "reselected"}}
        source: dict[str, Any] = {"epoch": 1, "commit_lsn": number, "schema_id": "5c4e4a1d", "txId": number}
        source |= {name: listed[name] for name in ("reselected", "unchanged", "omitted") if name in listed}
        self._add({"after": row, "source": source, "op": op, "ts_ms": 0})

    def delete(self) -> None:
        """The event and its tombstone."""
        self._add({"after": None, "source": {"epoch": 1, "commit_lsn": 1, "txId": 1}, "op": "d", "ts_ms": 0})
        self._add(None)

    def _add(self, event: dict[str, Any] | None) -> None:
        value = None if event is None else json.dumps(event, separators=(",", ":")).encode()
        self.records.append(LogRecord(TOPIC, 0, len(self.records), 0, KEY, value, None))


@st.composite
def key_logs(draw: st.DrawFn) -> KeyLog:
    """What capture can write of a key: rows begin, are updated, read again, deleted, and begin again."""
    log, live = KeyLog(), False
    kinds = st.sampled_from(["own", "own", "reselected", "unchanged", "omitted", "missing"])
    while len(log.records) < draw(st.integers(1, RECORDS_MAX)):
        if live and draw(st.integers(0, 3)) == 0:
            log.delete()
            live = False
            continue
        # An insert that lacks values came from another key. After a live row: compaction has removed the delete.
        op = draw(st.sampled_from(["u", "u", "u", "r", "c"] if live else ["c", "c", "r"]))
        log.put(op, **({column: draw(kinds) for column in COLUMNS} if op != "r" else {}))
        live = True
    return log


def one_by_one(records: Sequence[LogRecord]) -> list[State]:
    """The expected state behind each record."""
    states: list[State] = []
    for record in records:
        states.append(after(json_event(record), states[-1] if states else None))
    return states


def splits(records: Sequence[LogRecord]) -> Iterator[list[Sequence[LogRecord]]]:
    """Every way to cut them into batches."""
    for mask in range(1 << max(len(records) - 1, 0)):
        cuts = [0, *(at for at in range(1, len(records)) if mask >> (at - 1) & 1), len(records)]
        yield [records[begin:end] for begin, end in pairwise(cuts)]


def row_of(row: bytes | None) -> Any:
    return None if row is None else json.loads(row)


@settings(max_examples=150)
@given(log=key_logs())
def test_batches_fold_to_what_record_by_record_gives_wherever_they_are_cut(log: KeyLog) -> None:
    wanted = one_by_one(log.records)
    for batches in splits(log.records):
        target, done = MemoryTarget(), 0
        for batch in batches:
            target.apply([sinks.runner.key_fold.change_of(batch)])
            done += len(batch)
            held = target.read_keys(TOPIC, [KEY])[0]
            found = None if held is None else held.content
            assert found == row_of(wanted[done - 1].row), f"behind record {done - 1} of {[len(b) for b in batches]}"


@settings(max_examples=100)
@given(log=key_logs(), begin=st.integers(0, RECORDS_MAX))
def test_a_store_that_reads_records_again_ends_in_the_same_row(log: KeyLog, begin: int) -> None:
    """A worker goes on from a committed offset, and cuts its batches in other places than the one before."""
    for batches in splits(log.records):
        target = MemoryTarget()
        target.apply([sinks.runner.key_fold.change_of(log.records)])
        done = 0
        for batch in batches:
            done += len(batch)
            if done > begin:
                target.apply([sinks.runner.key_fold.change_of(batch)])
        held = target.read_keys(TOPIC, [KEY])[0]
        assert held is not None
        assert held.content == row_of(one_by_one(log.records)[-1].row)


@settings(max_examples=100)
@given(log=key_logs(), gone=st.integers(0, RECORDS_MAX))
def test_what_compaction_removed_is_unsure_and_all_else_is_what_it_was(log: KeyLog, gone: int) -> None:
    whole, rest = one_by_one(log.records), log.records[gone:]
    for wanted, found in zip(whole[gone:], one_by_one(rest), strict=True):
        assert (found.row is None) == (wanted.row is None)
        if found.row is not None:
            left, right = row_of(found.row), row_of(wanted.row)
            assert {c: v for c, v in left.items() if c not in found.unsure} == {
                c: v for c, v in right.items() if c not in found.unsure
            }


def test_a_long_run_of_updates_that_lack_values_folds_in_one_batch() -> None:
    log = KeyLog()
    log.put("c")
    for _ in range(5_000):
        log.put("u", a="reselected", b="unchanged")

    assert row_of(sinks.runner.key_fold.change_of(log.records).row) == {"id": 1, "a": 5_000, "b": 0, "c": 5_000}


def moved_over_a_deleted_row() -> KeyLog:
    """Delete the row of a key, and give the key to another row whose large value is not sent."""
    log = KeyLog()
    log.put("c")
    log.delete()
    log.put("c", a="reselected", b="unchanged")
    log.put("u", a="unchanged", c="reselected")
    return log


def updated_in_pieces() -> KeyLog:
    log = KeyLog()
    log.put("c")
    log.put("u", a="reselected", b="unchanged")
    log.put("u", a="unchanged", b="omitted")
    log.put("u", a="unchanged", b="reselected", c="unchanged")
    return log


def deleted_at_last() -> KeyLog:
    log = KeyLog()
    log.put("c")
    log.put("u", a="unchanged")
    log.delete()
    return log


def begun_again_where_compaction_removed_the_delete() -> KeyLog:
    log = KeyLog()
    log.put("c")
    log.put("c", a="reselected", b="unchanged")
    return log


LOGS = (
    moved_over_a_deleted_row,
    begun_again_where_compaction_removed_the_delete,
    updated_in_pieces,
    deleted_at_last,
)


def faults_found(log: KeyLog) -> bool:
    """Whether `cdc verify` finds a difference in a store that was filled through the fold, for some batches."""
    for batches in splits(log.records):
        world = World(log.records, iter(()))
        for batch in batches:
            world.move(len(batch), len(batch), commit=True)
        found = check_topic(world.sides(), TABLE)
        if found.differing:
            return True
        assert found.ok
    return False


Mutate = Callable[[pytest.MonkeyPatch], None]


def _kept_over_a_delete(patch: pytest.MonkeyPatch) -> None:
    """The fault that this rule was written for: an earlier life of the key gives values to a later one."""
    real = sinks.runner.key_fold._completed

    def completed(row: bytes, unchanged: tuple[str, ...], before: Sequence[LogRecord] | None) -> Any:
        done, kept, lacks = real(row, unchanged, before)
        return done, kept or unchanged, lacks

    patch.setattr(sinks.runner.key_fold, "_completed", completed)


def _begun_rows_borrow(patch: pytest.MonkeyPatch) -> None:
    """An insert is taken for an update."""
    real = sinks.runner.key_fold._event

    def event(record: LogRecord) -> Any:
        found = real(record)
        return found if found is None or found.op == "d" else msgspec.structs.replace(found, op="u")

    patch.setattr(sinks.runner.key_fold, "_event", event)


def _nothing_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sinks.runner.key_fold, "_completed", lambda row, *_: (row, (), ()))


def _earlier_records_unread(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sinks.runner.key_fold, "_completed", lambda row, unchanged, _: (row, unchanged, ()))


def _first_record_counts(patch: pytest.MonkeyPatch) -> None:
    real = sinks.runner.key_fold.change_of

    def change_of(records: Sequence[LogRecord]) -> Change:
        return real(records[:1])._replace(offset=records[-1][2])

    patch.setattr(tests.fixtures.sinks.sink_logs, "change_of", change_of)


def _deletes_are_lost(patch: pytest.MonkeyPatch) -> None:
    real = sinks.runner.key_fold.change_of

    def change_of(records: Sequence[LogRecord]) -> Change:
        kept = [record for record in records if record[5] is not None and b'"op":"d"' not in record[5]]
        return real(kept or records)

    patch.setattr(tests.fixtures.sinks.sink_logs, "change_of", change_of)


def _merge_takes_the_new_value(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tests.fixtures.sinks.memory_target, "merged", lambda row, *_: row)


def _merge_takes_the_whole_old_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tests.fixtures.sinks.memory_target, "merged", lambda row, _, before: msgspec.json.encode(
        msgspec.json.decode(row) | msgspec.json.decode(before)
    ))  # fmt: skip


MUTANTS: Sequence[Mutate] = (
    _kept_over_a_delete,
    _begun_rows_borrow,
    _nothing_is_kept,
    _earlier_records_unread,
    _first_record_counts,
    _deletes_are_lost,
    _merge_takes_the_new_value,
    _merge_takes_the_whole_old_row,
)


@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda one: one.__name__.strip("_"))
def test_verify_finds_a_fault_of_the_fold(monkeypatch: pytest.MonkeyPatch, mutate: Mutate) -> None:
    """The check shares no code with the fold, so a fault of the fold cannot hide in both."""
    assert not any(faults_found(log()) for log in LOGS), "without a fault nothing is found"

    mutate(monkeypatch)

    assert any(faults_found(log()) for log in LOGS)


@pytest.mark.parametrize("mutate", [_kept_over_a_delete, _begun_rows_borrow, _nothing_is_kept])
def test_the_property_finds_a_fault_of_the_fold(monkeypatch: pytest.MonkeyPatch, mutate: Mutate) -> None:
    mutate(monkeypatch)
    real: Any = test_batches_fold_to_what_record_by_record_gives_wherever_they_are_cut
    quick = settings(max_examples=300, phases=[Phase.generate])(given(log=key_logs())(real.hypothesis.inner_test))

    with pytest.raises((AssertionError, ExceptionGroup)):
        quick()
