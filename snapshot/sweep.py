"""What of a table only the log speaks of: the state of one sweep. Pure.

After a gap nobody knows which rows were deleted in it. So when every row is read anew, keys whose last record is from
before the new epoch are looked for in the table once more, and those that it does not have are deleted from the log.

The way of a sweep: idle -> following, when the table is read: from now on every key that is streamed is noted ->
bounded, when it is known up to which offsets the log has what was streamed before that -> offered keys, some at a time,
by who reads the topic (`snapshot.sweep_reader`) -> done. A key that was streamed since is the stream's: it is no
candidate.

The same goes for keys that somebody had read again and the table does not have: of these, whatever epoch their records
are of, those that the topic has alive are candidates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias

Bounds: TypeAlias = Mapping[tuple[str, int], int]
"""(topic, partition) -> offset."""

_NOTED_MAX: Final = 500_000  # keys, about 100 bytes each; who reads the topic takes them away many times a second


class Sweep:
    """One per table and replication session. Not thread-safe.

    Attributes:
        marks: for each partition of the topic the offset where the epoch begins; empty: every record counts as older.
        among: keys that may be candidates; None for all.
        until: up to where the topic is to be read; None: not known yet.
        turn: counts the beginnings, so that what belongs to an earlier one is not taken for this one's.
        keys: candidates that are to be looked for in the table.
        busy: a chunk of them is open.
        left: candidates that are not offered yet.
        offered: whether the topic was read, and so it is known how many there are.
        lost: what was streamed is not known any more: the topic must be read again.
        done: no candidate is left.
    """

    def __init__(
        self, marks: tuple[int, ...], *, among: frozenset[bytes] | None = None, noted_max: int = _NOTED_MAX
    ) -> None:
        self.marks = marks
        self.among = among
        self.until: Bounds | None = None
        self.turn = 0
        self.keys: set[bytes] = set()
        self.busy = False
        self.left = 0
        self.offered = False
        self.lost = False
        self.done = False
        self._noted: set[bytes] = set()
        self._noted_max = noted_max
        self._keys_max: int | None = None

    @property
    def following(self) -> bool:
        """Whether what is streamed must be told."""
        return self.turn > 0 and not self.done

    @property
    def unbounded(self) -> bool:
        """Whether a commit that has everything streamed so far is waited for."""
        return self.following and self.until is None

    def begin(self) -> None:
        """Follow the stream from here, from the beginning."""
        self.turn += 1
        self.until, self.lost, self.left, self.offered = None, False, 0, False
        self.keys.clear()
        self._noted.clear()

    def bound(self, turn: int, until: Bounds) -> None:
        """What was streamed by the beginning of `turn` lies before these offsets."""
        if turn == self.turn and self.until is None:
            self.until = until

    def streamed(self, keys: Collection[bytes]) -> None:
        """A transaction wrote these: whatever became of them, the log says it."""
        self.keys.difference_update(keys)
        self._noted.update(keys)
        if len(self._noted) > self._noted_max:
            self.lose()

    def lose(self) -> None:
        """Keys were streamed that nobody knows, or too many: none that was offered may be deleted."""
        self.lost = True
        self.keys.clear()
        self._noted.clear()

    def take_noted(self) -> set[bytes]:
        """Keys that were streamed since this was last asked."""
        noted, self._noted = self._noted, set()
        return noted

    def offer(self, keys: Iterable[bytes], left: int) -> None:
        """Candidates of the topic, without what `take_noted` has told; so many are left behind them."""
        if not self.lost:
            self.keys.update(set(keys) - self._noted)
        self.left, self.offered = left, True

    def absent(self, keys: Collection[bytes], present: Collection[bytes]) -> list[bytes]:
        """Which of `keys`, that were looked for, are to be deleted when the table has those `present`. In order."""
        return sorted(self.keys.intersection(keys).difference(present))

    def take(self) -> tuple[bytes, ...]:
        """Candidates for a chunk; none while one is open. Then `judged` or `give_back` follows."""
        if self.busy or not self.keys:
            return ()
        self.busy = True
        return tuple(sorted(self.keys)[: self._keys_max])

    def give_back(self, keys_max: int | None = None) -> None:
        """The chunk came to nothing; with `keys_max` because it was too large: so many at a time from now on."""
        self.busy = False
        if keys_max is not None:
            self._keys_max = max(1, keys_max)

    def judged(self, keys: Collection[bytes]) -> None:
        """These are seen to."""
        self.busy = False
        self.keys.difference_update(keys)
