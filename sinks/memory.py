"""A store in memory: the control group of the tests, and the shortest reading of what a `Target` is."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from sinks.contract import Change, Content, Held, Outcome, Place, Topic, Verdict
from sinks.fold import merged

if TYPE_CHECKING:
    from cdc.model.progress import SchemaRecord

_content: Final = msgspec.json.Decoder(dict[str, object]).decode


class MemoryTarget:
    """See `Target`. A key that is gone leaves its version behind, for ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[tuple[str, bytes], Change] = {}
        self.topics: Sequence[Topic] = ()
        self.schemas: list[SchemaRecord] = []

    def open(self, topics: Sequence[Topic]) -> None:
        """See `Target`."""
        self.topics = topics

    def prepare(self, schema: SchemaRecord) -> None:
        """See `Target`."""
        self.schemas.append(schema)

    def apply(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        """See `Target`."""
        with self._lock:
            return [self._apply(change) for change in changes]

    def keep(self, positions: Mapping[Place, int]) -> None:
        """See `Target`."""

    def positions(self) -> Mapping[Place, int] | None:
        """See `Target`."""
        return None

    def refresh(self, topics: Iterable[str]) -> None:
        """See `Target`."""

    def content(self, change: Change) -> Content | None:
        """See `Target`."""
        return None if change.row is None else _content(change.row)

    def held(self, topic: str) -> Iterator[Held]:
        """See `Target`."""
        with self._lock:
            found = [change for (of, _), change in self._keys.items() if of == topic]
        return (self._held(change) for change in found)

    def look(self, topic: str, keys: Sequence[bytes]) -> Sequence[Held | None]:
        """See `Target`."""
        with self._lock:
            found = [self._keys.get((topic, key)) for key in keys]
        return [None if change is None else self._held(change) for change in found]

    def remove(self, topic: str, held: Sequence[Held]) -> None:
        """See `Target`."""
        with self._lock:
            for one in held:
                change = self._keys.get((topic, one.key or b""))
                if change is not None and change.offset == one.version:
                    del self._keys[(topic, change.key)]

    def mend(self, changes: Sequence[Change], seen: Sequence[Held | None]) -> None:
        """See `Target`."""
        with self._lock:
            for change, one in zip(changes, seen, strict=True):
                now = self._keys.get((change.topic, change.key))
                if (None if now is None else self._held(now)) == one:
                    self._keys[(change.topic, change.key)] = change

    def close(self) -> None:
        """See `Target`."""

    def _held(self, change: Change) -> Held:
        return Held(change.key, change.key.decode(), change.offset, self.content(change))

    def _apply(self, change: Change) -> Outcome:
        before = self._keys.get((change.topic, change.key))
        if before is not None and before.offset >= change.offset:
            return Outcome(Verdict.OVERTAKEN)
        if change.row is not None and change.kept and before is not None and before.row is not None:
            change = change._replace(row=merged(change.row, change.kept, before.row), kept=())
        self._keys[(change.topic, change.key)] = change
        return Outcome(Verdict.DONE)
