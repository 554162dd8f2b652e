"""Requested keys that are only in the log are deleted, and no others, under concurrent writes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.lsn import Lsn
from snapshot.chunk import Chunk, ChunkSpec, Rows
from snapshot.log_writer import LogWriter
from snapshot.merger import Merger
from snapshot.open_chunks import OpenChunks
from snapshot.table_state import RowSelection
from snapshot.window import Verdict, Window
from tests.property import snapshot_mutants as mutants
from tests.property.obligations import (
    LOG_IS_TABLE,
    ONLY_GONE_DELETED,
    SNAPSHOT_ENDS,
    Violation,
    assert_found,
    demand,
)
from tests.property.snapshot_gap import StreamIgnored, Swept
from tests.property.snapshot_history import TABLE, fold
from tests.property.snapshot_server import KEYS

_EXAMPLES = 1500 if settings().derandomize else 40_000
_HISTORIES = 4000  # of a mutant, at most
_NUMBERS = 160
_PLANT = (-9, -9)


class Planted(Swept):
    """Writes keys into the log that the table does not have, and requests a read of them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._planted: set[int] = set()
        super().__init__(*arguments, **named)

    def steer(self, number: int) -> None:
        """Plant a key, or request a read of the planted keys."""
        now = {one.table: one for one in self.merger.progress()}[TABLE]
        key = number // 4 % (KEYS + 2)  # the last ones the table never has
        if number % 4 == 0 and self._said.get(key) is None:
            self._say((key, _PLANT))
            self._planted.add(key)
        elif number % 4 == 1:
            self._go_on()
        elif now.state == "complete" and self._planted:
            self._order()

    def finish(self) -> None:
        """Request a read of every planted key; then the log must fold to the table."""
        self._settle()
        self._order()
        super().finish()
        demand(SNAPSHOT_ENDS, self.kept.records[TABLE].absent == (), "keys are left to be deleted")

    def _settle(self) -> None:
        for _ in range(400):
            if not self.merger.active:
                return
            for transaction in list(self.server.open.values()):
                self.server.commit(transaction)
            self._go_on()
        raise Violation(SNAPSHOT_ENDS, "it is still active")

    def _order(self) -> None:
        self.merger.requests.order(
            TABLE, 1, Lsn(self._position), RowSelection(keys=tuple(b"%d" % key for key in self._planted))
        )
        self.seen["ordered"] += 1

    def _go_on(self) -> None:
        for _ in range(12):
            self._stream()
            self._coordinate()
            self._open()
            self._read(0)
            self._join(100)
            self._beside()
            self.server.flushed = self.server.insert
            while self.server.hidden:
                self.server.show(0)
            self.server.abort(self.server.begin())

    def _put(self, spec: ChunkSpec, rows: Rows, verdict: Verdict) -> tuple[int, int]:
        for key, _ in rows:  # what was planted of a key before its row was read is written over
            if self._said.get(key) == _PLANT:
                del self._said[key]
        return super()._put(spec, rows, verdict)

    def _remove(self, spec: ChunkSpec, absent: Sequence[bytes]) -> int:
        events = [*self._events, *self._buffer]
        for key in map(int, absent):
            demand(ONLY_GONE_DELETED, key in self._planted, f"key {key} was not asked for")
            demand(ONLY_GONE_DELETED, fold(events).get(key) == _PLANT, f"key {key} is not as it was planted")
            self._say((key, None))
            self.seen["deleted"] += 1
        return len(absent)


class _AbsentIgnored(OpenChunks):
    def _record_absent(self, chunk: Chunk, verdict: Verdict, log: LogWriter) -> None:
        pass


class NotMissed(Merger):
    """Ignores requested keys that the table does not have."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.chunks.__class__ = _AbsentIgnored


def _history(numbers: list[int], *, merger: type[Merger] = Merger, page: int = 2) -> Counter[str]:
    history = Planted(
        700, lambda: merger(Window(keys_max=1000), chunk_bytes=mutants.CHUNK_BYTES), numbers[:20], page=page
    )
    for at in range(20, len(numbers), 8):
        history.run(numbers[at : at + 8])
        history.steer(numbers[at] >> 3)
    history.finish()
    return history.seen


def seeded(seed: int, merger: type[Merger] = Merger) -> None:
    """Run the history that a seed stands for."""
    chance = random.Random(seed)
    numbers = [chance.randrange(1 << 16) for _ in range(_NUMBERS)]
    _history(numbers, merger=merger, page=1 + seed % 3)


def test_key_that_only_the_log_has_is_deleted_once_and_no_other_is() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=_EXAMPLES)
    @given(steps=st.binary(min_size=2 * _NUMBERS, max_size=2 * _NUMBERS), page=st.sampled_from([1, 1000]))
    def histories(steps: bytes, page: int) -> None:
        numbers = [high << 8 | low for high, low in zip(steps[::2], steps[1::2], strict=True)]
        seen.update(name for name, count in _history(numbers, page=page).items() if count)

    histories()
    wanted = ["deleted", "swept", "offered", "streamed", "lost session"]
    rare = {what: seen[what] for what in wanted if seen[what] < 50}
    assert not rare, "each must have happened in 50 histories at least"


@pytest.mark.parametrize(
    ("merger", "obligation"),
    [(StreamIgnored, ONLY_GONE_DELETED), (NotMissed, LOG_IS_TABLE)],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_deleting_without_one_of_its_clauses_is_found_wrong(merger: type[Merger], obligation: str) -> None:
    def history(seed: int) -> None:
        seeded(seed, merger)

    assert_found(obligation, history, _HISTORIES)
