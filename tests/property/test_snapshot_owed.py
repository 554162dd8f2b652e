"""Rows whose values could not be read in time, against a model of the server: the topic ends complete."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.lsn import Lsn
from cdc.model.snapshot_record import IncompleteKey
from snapshot.merger import Merger
from snapshot.snapshot_requests import SnapshotRequests
from snapshot.window import Window
from tests.property import snapshot_mutants as mutants
from tests.property.obligations import NEWEST_IS_ROW, NO_STALE_ROW, assert_found, demand
from tests.property.snapshot_history import TABLE, Event
from tests.property.snapshot_server import Op
from tests.property.test_snapshot_orders import Ordered

_EXAMPLES = 1000 if settings().derandomize else 60_000
_NUMBERS = 200
_HISTORIES = 6000  # of a mutant, at most


class Owing(Ordered):
    """As `Ordered`; an unchanged value is in the stream if its transaction is visible, else its row is read later."""

    def _sent(self, op: Op) -> bool:
        hidden = any(op is one for transaction in self.server.hidden for one in transaction.ops)
        return op.whole or op.row is None or not hidden or self.merger.states[TABLE] == "stopped"

    def _stream(self) -> None:
        before = len(self._buffer)
        super()._stream()
        lacking = [key for key, values in self._buffer[before:] if values is not None and values[1] is None]
        if lacking:
            keys = [IncompleteKey(str(key).encode(), {"id": str(key)}) for key in dict.fromkeys(lacking)]
            assert self.merger.requests.read_incomplete({(TABLE, 1): keys}, Lsn(self._position))
            self.seen["owed"] += 1
            self.seen["owed by a table that was complete"] += "begun" in self.merger.states.values()

    def finish(self) -> None:
        """A compacted topic keeps only the newest record of each key, which must be the row."""
        super().finish()
        rows = {key: (row.small, row.large) for key, row in self.server.rows().items()}
        newest = _newest(self.kept.events)
        demand(NEWEST_IS_ROW, newest == rows, f"{newest}, expected {rows}")


def _newest(events: Sequence[Event]) -> dict[int, object]:
    rows: dict[int, object] = {}
    for key, values in events:
        if key is None:
            rows.clear()
        elif values is None:
            rows.pop(key, None)
        else:
            rows[key] = values
    return rows


class _NothingRead(SnapshotRequests):
    def read_incomplete(self, rows: Mapping[tuple[str, int], Collection[IncompleteKey]], at: Lsn) -> bool:
        return True


class NothingOwed(Merger):
    """Never reads incomplete rows again."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.requests.__class__ = _NothingRead


class _ForgottenByStop(SnapshotRequests):
    def stop(self, name: str) -> None:
        self._tables[name].incomplete = {}
        super().stop(name)


class StopForgets(Merger):
    """Stopping a snapshot also forgets the incomplete rows."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.requests.__class__ = _ForgottenByStop


def _run(numbers: Sequence[int], window: type[Window], merger: type[Merger]) -> Counter[str]:
    history = Owing(700, lambda: merger(window(), chunk_bytes=mutants.CHUNK_BYTES), list(numbers[:20]), reselect=True)
    if numbers[20] % 2:
        history.finish()  # of the first snapshot
    for at in range(20, len(numbers), 12):
        history.run(list(numbers[at : at + 12]))
        history.steer(numbers[at] >> 3)
    history.finish()
    return Counter(name for name, count in history.seen.items() if count)


def seeded(seed: int, window: type[Window] = Window, merger: type[Merger] = Merger) -> None:
    """Run the history that a seed stands for."""
    chance = random.Random(seed)
    _run([chance.randrange(1 << 16) for _ in range(_NUMBERS)], window, merger)


def _numbers(steps: bytes) -> list[int]:
    return [high << 8 | low for high, low in zip(steps[::2], steps[1::2], strict=True)]


def test_topic_with_incomplete_rows_ends_equal_to_the_table() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=_EXAMPLES)
    @given(steps=st.binary(min_size=2 * _NUMBERS, max_size=2 * _NUMBERS))
    def histories(steps: bytes) -> None:
        seen.update(_run(_numbers(steps), Window, Merger))

    histories()
    rare = {what: seen[what] for what in ("owed", "owed by a table that was complete", "stopped") if seen[what] < 20}
    assert not rare, "each must have happened in 20 histories at least"


@pytest.mark.parametrize(
    ("window", "merger"),
    [(Window, NothingOwed), (Window, StopForgets), (mutants.NothingSuspected, Merger)],
    ids=lambda one: one.__name__,
)
def test_owed_rows_without_a_clause_of_their_rule_are_found_wrong(window: type[Window], merger: type[Merger]) -> None:
    def history(seed: int) -> None:
        seeded(seed, window, merger)

    assert_found(NO_STALE_ROW if window is not Window else NEWEST_IS_ROW, history, _HISTORIES)
