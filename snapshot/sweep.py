"""The state of a sweep, which finds keys that are in a topic but no longer in the table. Pure.

After a gap it is unknown which rows were deleted in it. When every row has been read again, the sweep looks up the keys
whose last record is older than the new epoch, and deletes those that the table does not have from the log. It does the
same for keys that were read on request and that the table does not have, if they are alive in the topic. Only the topic
decides that: the stream may have deleted such a key meanwhile, and a second delete would be wrong.

States of a sweep:

- idle: the table is still being read.
- following: every streamed key is recorded.
- bounded: the offsets up to which the topic must be read are known. They are those of a commit after the sweep began to
  follow. In the other order, a key deleted in between would be deleted twice, and an inserted key lost.
- offered: `snapshot.sweep_reader` offers candidate keys in pages. The sweep skips keys that were streamed meanwhile.
- done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias

Bounds: TypeAlias = Mapping[tuple[str, int], int]
"""Offsets by (topic, partition)."""

_NOTED_MAX: Final = 500_000  # keys, about 100 bytes each; the sweep thread takes them many times per second


class Sweep:
    """The sweep of one table in one replication session. Not thread-safe.

    Attributes:
        marks: for each partition of the topic, the offset where the epoch begins; empty: every record is older.
        among: restricts the candidates to these keys; None for all.
        until: offsets up to which the topic must be read; None if not known yet.
        turn: number of the current attempt, to tell results of an earlier attempt apart.
        keys: candidates that must be looked up in the table.
        busy: whether a chunk of candidates is open.
        left: number of candidates that are not offered yet.
        offered: whether the topic was read, so that the number of candidates is known.
        lost: streamed keys were lost, so the topic must be read again.
        done: whether no candidate is left.
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
        """Whether streamed keys must be reported to it."""
        return self.turn > 0 and not self.done

    @property
    def unbounded(self) -> bool:
        """Whether it waits for a commit that includes everything streamed so far."""
        return self.following and self.until is None

    def begin(self) -> None:
        """Start from the beginning, and follow the stream from here."""
        self.turn += 1
        self.until, self.lost, self.left, self.offered = None, False, 0, False
        self.keys.clear()
        self._noted.clear()

    def bound(self, turn: int, until: Bounds) -> None:
        """Set the offsets below which everything lies that was streamed before `turn` began."""
        if turn == self.turn and self.until is None:
            self.until = until

    def streamed(self, keys: Collection[bytes]) -> None:
        """Exclude keys that a transaction wrote: the log has their newest state."""
        self.keys.difference_update(keys)
        self._noted.update(keys)
        if len(self._noted) > self._noted_max:
            self.lose()

    def lose(self) -> None:
        """Give up the current attempt: unknown or too many keys were streamed, so no offered key may be deleted."""
        self.lost = True
        self.keys.clear()
        self._noted.clear()

    def take_noted(self) -> set[bytes]:
        """Return and forget the keys that were streamed since the last call."""
        noted, self._noted = self._noted, set()
        return noted

    def offer(self, keys: Iterable[bytes], left: int) -> None:
        """Add candidates, except keys that were streamed meanwhile; `left` candidates follow later."""
        if not self.lost:
            self.keys.update(set(keys) - self._noted)
        self.left, self.offered = left, True

    def absent(self, keys: Collection[bytes], present: Collection[bytes]) -> list[bytes]:
        """Return, sorted, which of the looked-up `keys` must be deleted, if the table has those in `present`."""
        return sorted(self.keys.intersection(keys).difference(present))

    def take(self) -> tuple[bytes, ...]:
        """Return candidates for a chunk; none while one is open. Call `judged` or `give_back` afterwards."""
        if self.busy or not self.keys:
            return ()
        self.busy = True
        return tuple(sorted(self.keys)[: self._keys_max])

    def give_back(self, keys_max: int | None = None) -> None:
        """Return the candidates of a failed chunk; `keys_max` limits later chunks if it was too large."""
        self.busy = False
        if keys_max is not None:
            self._keys_max = max(1, keys_max)

    def judged(self, keys: Collection[bytes]) -> None:
        """Remove candidates that are decided."""
        self.busy = False
        self.keys.difference_update(keys)
