"""Snapshots that are requested, paused, stopped and repeated, against a model of the server, with crashes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.lsn import Lsn
from snapshot.merger import Merger
from snapshot.table_state import RowSelection as Rows
from snapshot.window import Window
from tests.property import snapshot_mutants as mutants
from tests.property.obligations import SNAPSHOT_ENDS, demand
from tests.property.snapshot_gap import Swept
from tests.property.snapshot_history import TABLE

_EXAMPLES = 3000 if settings().derandomize else 60_000
_NUMBERS = 200


class Ordered(Swept):
    """A history with requests in between, and crashes at any moment after one.

    The log is always right, so a requested key must never be deleted from it: see `History._remove`.
    """

    def steer(self, number: int) -> None:
        merger, kind = self.merger, number % 4
        now = {one.table: one for one in merger.progress()}[TABLE]
        if now.state in {"complete", "stopped"}:
            keys = tuple(str(key).encode() for key in range(number // 4 % 3))
            merger.requests.order(TABLE, 1, Lsn(self._position), Rows(keys=keys if now.state == "complete" else ()))
            self.seen["again" if now.state == "complete" else "anew"] += 1
            self.seen["keyed"] += bool(keys)
        elif kind == 0:
            merger.requests.stop(TABLE)
            self.seen["stopped"] += 1
        elif kind == 1:
            merger.requests.pause(TABLE, paused=not now.paused)
            self.seen["paused"] += 1
        elif kind == 2:
            self._go_on()

    def _go_on(self) -> None:
        """Run some steps of everything except the writers."""
        for _ in range(12):
            self._stream()
            self._coordinate()
            self._open()
            self._read(0)
            self._join(100)
            self._beside()
            self.server.abort(self.server.begin())

    def finish(self) -> None:
        """Resume or repeat the snapshot first."""
        now = {one.table: one for one in self.merger.progress()}[TABLE]
        if now.state == "stopped":
            self.merger.requests.order(TABLE, 1, Lsn(self._position), Rows())
        elif now.paused:
            self.merger.requests.pause(TABLE, paused=False)
        super().finish()
        demand(SNAPSHOT_ENDS, self.merger.states[TABLE] == "complete", self.merger.states[TABLE])


def test_log_folds_to_the_table_whatever_is_ordered_meanwhile() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=_EXAMPLES)
    @given(
        steps=st.binary(min_size=2 * _NUMBERS, max_size=2 * _NUMBERS),
        keys_max=st.sampled_from([2, 1000]),
        reselect=st.booleans(),
    )
    def histories(steps: bytes, keys_max: int, *, reselect: bool) -> None:
        numbers = [high << 8 | low for high, low in zip(steps[::2], steps[1::2], strict=True)]
        history = Ordered(
            700,
            lambda: Merger(Window(keys_max=keys_max), chunk_bytes=mutants.CHUNK_BYTES),
            numbers[:20],
            reselect=reselect,
        )
        for at in range(20, _NUMBERS, 12):
            history.run(numbers[at : at + 12])
            history.steer(numbers[at] >> 3)
        history.finish()
        seen.update(name for name, count in history.seen.items() if count)

    histories()
    rare = {what: seen[what] for what in ("again", "anew", "keyed", "stopped", "paused", "dropped") if seen[what] < 50}
    assert not rare, "each must have happened in 50 histories at least"
