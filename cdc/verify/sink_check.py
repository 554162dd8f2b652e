"""Topic and sink: every key compared as of the sink's committed offsets, while it runs (DESIGN section 8).

    1. read the committed offsets, fold the topic up to them;
    2. look through the store. What agrees is done. What does not is suspect: it may have changed since.
    3. a round over the suspects: read the committed offsets again and fold on; look at these keys in the store; read
       what came after the offsets, of these keys. Now each is right or wrong by itself, and a key that is wrong twice
       with the same records and the same version in the store differs. What changes between is looked at again, until
       time is up: then it is undecided.

With `repair` keys that differ are mended under the store's own guard, and go through rounds once more. A store that may
lack rows by its settings is asked whether it does (`sinks.contract.Lossy`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol, TypeAlias, TypeVar

from cdc.clock import Clock
from cdc.progress.restore import LogRecord
from cdc.verify.findings import TableFindings
from cdc.verify.key_states import Known, Latest, Sample, of_keys
from cdc.verify.key_verdict import DifferenceKind, judge
from cdc.verify.partition_check import partition_of
from sinks.contract import (
    AllowedDifference,
    Change,
    Content,
    Lossy,
    StoredKey,
    Topic,
    TopicPartition,
    Verdict,
    Verifiable,
)

LOOK_KEYS: Final = 500  # of one question to the store
ROUND_KEYS: Final = 20_000  # suspects of one round; their keys, and what came after of them, are in memory
ROUND_S: Final = 0.3  # between rounds: a sink commits every 100 ms
DECIDE_S: Final = 30.0  # for which suspects of one batch are looked at again

_EXPIRED: Final = 2
_UNTOLD: Final = 3

_T = TypeVar("_T")
_Blocked: TypeAlias = Callable[[TopicPartition], frozenset[bytes]]


class Reader(Protocol):
    """What is needed of `cdc.kafka.log_reader.LogReader`."""

    def end_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, tuple[int, int]]:
        """First offset there is, and the one after the last committed record."""

    def read(
        self, assignments: Mapping[TopicPartition, int], until: Mapping[TopicPartition, int]
    ) -> Iterator[list[LogRecord]]:
        """Committed records between two offsets of each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkComparison:
    """What is compared, and how.

    Attributes:
        committed: the sink's offsets of these partitions, those it has.
        blocked: keys of a partition that wait behind a dead letter, asked anew each time.
        content: of a change, as the store would have it.
        decide_s: how long suspects are looked at.
    """

    reader: Reader
    target: Verifiable
    committed: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
    blocked: _Blocked
    content: Callable[[Change], Content | None]
    clock: Clock
    sample: Sample
    repair: bool = False
    decide_s: float = DECIDE_S


@dataclass(frozen=True, slots=True)
class _Suspect:
    """What was found of a key in a round: which records it may be as of, and what the store had."""

    kind: DifferenceKind
    records: tuple[int, ...]
    held: StoredKey | None
    newest: Change | None


def check_topic(
    sides: SinkComparison, topic: Topic, told: Callable[[str, int], None] = lambda _, __: None
) -> TableFindings:
    """Compare one topic with the store, and mend it if that is asked for. `told`: what is done, and how many keys."""
    check = _Check(sides, topic, told)
    try:
        return check.run()
    finally:
        check.close()


class _Check:
    def __init__(self, sides: SinkComparison, topic: Topic, told: Callable[[str, int], None]) -> None:
        self._sides = sides
        self._topic = topic
        self._told = told
        self._latest = Latest(topic.topic, sides.sample)
        self._places = [(topic.topic, partition) for partition in range(topic.partition_count)]
        self._at: dict[TopicPartition, int] = {}
        self._found = TableFindings(table=topic.table, topic=topic.topic)
        self._blocked: set[bytes] = set()
        self._lossy = sides.target if isinstance(sides.target, Lossy) else None

    def close(self) -> None:
        self._latest.close()

    def run(self) -> TableFindings:
        low = self._sides.reader.end_offsets([self._topic.topic])
        self._at = {place: low[place][0] for place in self._places}
        self._advance()
        self._found.offsets = {partition: at for (_, partition), at in self._at.items()}
        suspects = list(self._scan())
        self._told("again", len(suspects))
        for some in slices(suspects, ROUND_KEYS):
            self._settle(some)
        for names in slices(self._latest.strange(), LOOK_KEYS):
            self._foreign(names)
        self._found.blocked = len(self._blocked)
        self._found.expired = self._latest.noted(_EXPIRED)
        self._found.undecided += self._latest.noted(_UNTOLD)
        return self._found

    def _advance(self) -> None:
        """Fold up to the committed offsets; they never go backwards here, nor beyond what a topic that was cut has."""
        committed, ends = self._sides.committed(self._places), self._ends()
        until = {place: max(at, min(committed.get(place, at), ends[place])) for place, at in self._at.items()}
        count = 0
        for batch in self._sides.reader.read(self._at, until):
            self._latest.take(batch)
            count += len(batch)
            self._told("fold", count)
        self._at = until

    def _scan(self) -> Iterator[bytes]:
        """Look through the store; keys that do not agree at once."""
        sides, found = self._sides, self._found
        sides.target.refresh([self._topic.topic])
        ends = self._ends()
        unknown: set[bytes] = set()
        suspects: set[bytes] = set()
        for some in slices(sides.target.stored_keys(self._topic.topic), LOOK_KEYS):
            mine = [one for one in some if one.key is not None and sides.sample.has(one.key)]
            known = self._latest.get([one.key for one in mine if one.key is not None])
            self._latest.see([one.key for one in mine if one.key is not None])
            for one in mine:
                key = one.key or b""
                if self._judge(key, [_change(known.get(key))], one, ends) is not None:
                    suspects.add(key)
                if key not in known and one.content is not None:
                    unknown.add(key)
            self._latest.add_strange((one.name, one.version) for one in some if one.key is None)
        suspects.update(self._latest.unseen(deleted=self._lossy is not None))
        found.compared += self._latest.live_count() + len(unknown)
        yield from sorted(suspects)

    def _foreign(self, names: Sequence[tuple[str, int]]) -> None:
        """What was never written by us has no key to look at again."""
        for name, _ in names:
            self._found.compared += 1
            self._found.add(DifferenceKind.EXTRA, name)
        if self._sides.repair:
            self._sides.target.remove(
                self._topic.topic, [StoredKey(None, name, version, {}) for name, version in names]
            )
            self._found.repaired += len(names)

    def _settle(self, suspects: list[bytes]) -> None:
        """Decide these, mend what differs, and see that it is mended."""
        differing, undecided = self._decide(suspects)
        for key, suspect in differing.items():
            self._found.add(suspect.kind, _shown(key))
        self._undecided(undecided)
        if not self._sides.repair or not differing:
            return
        self._repair(differing)
        left, undecided = self._decide(list(differing))
        self._undecided(undecided)
        self._found.repaired += len(differing) - len(left) - len(undecided)
        self._found.unrepaired += len(left)

    def _undecided(self, keys: Sequence[bytes]) -> None:
        self._found.undecided += len(keys)
        for key in keys:
            self._found.show("undecided", _shown(key))

    def _decide(self, suspects: list[bytes]) -> tuple[dict[bytes, _Suspect], list[bytes]]:
        """Those that differ, and those that kept changing."""
        sides = self._sides
        end_s = sides.clock.monotonic_s() + sides.decide_s
        before: dict[bytes, _Suspect] = {}
        differing: dict[bytes, _Suspect] = {}
        while suspects:
            self._found.again += 0 if before else len(suspects)
            now = self._round(suspects)
            differing |= {key: suspect for key, suspect in now.items() if _same(before.get(key), suspect)}
            suspects = [key for key in now if key not in differing]
            before = now
            if not suspects:
                break
            if sides.clock.monotonic_s() > end_s:
                return differing, suspects
            sides.clock.wait(threading.Event(), ROUND_S)
        return differing, []

    def _round(self, keys: Sequence[bytes]) -> dict[bytes, _Suspect]:
        """Those of the keys that are wrong at this moment."""
        sides = self._sides
        self._advance()
        waiting = {key: self._place(key) for key in keys}
        blocked = {place: sides.blocked(place) for place in set(waiting.values())}
        sides.target.refresh([self._topic.topic])
        held: dict[bytes, StoredKey | None] = {}
        for some in slices(keys, LOOK_KEYS):
            held.update(zip(some, sides.target.read_keys(self._topic.topic, some), strict=True))
        self._latest.explain(one.name for one in held.values() if one is not None and one.version < 0)
        ends = self._ends()
        known = self._latest.get(keys)
        later = self._later(known, held, ends)
        wrong: dict[bytes, _Suspect] = {}
        for key in keys:
            accepted = [_change(known.get(key)), *later.get(key, ())]
            kind = self._judge(key, accepted, held[key], ends)
            if kind is None:
                continue
            if key in blocked[waiting[key]]:
                self._note_blocked(key)
                continue
            records = tuple(change.offset for change in accepted if change is not None)
            wrong[key] = _Suspect(kind, records, held[key], accepted[-1])
        return wrong

    def _note_blocked(self, key: bytes) -> None:
        if key not in self._blocked:
            self._blocked.add(key)
            self._found.show("blocked", _shown(key))

    def _later(
        self, known: Mapping[bytes, Known], held: Mapping[bytes, StoredKey | None], ends: Mapping[TopicPartition, int]
    ) -> dict[bytes, list[Change]]:
        """What came of keys after the committed offsets; read only where it can matter."""
        need: dict[TopicPartition, set[bytes]] = {}
        for key, one in held.items():
            place = self._place(key)
            if one is None or one.content is None or one.version >= self._at[place]:
                need.setdefault(place, set()).add(key)
        start = {place: self._at[place] for place in need}
        keys = set[bytes]().union(*need.values())
        records: dict[bytes, list[LogRecord]] = {}
        for batch in self._sides.reader.read(start, {place: ends[place] for place in need}):
            for key, of_key in of_keys(batch).items():
                if key in keys:
                    records.setdefault(key, []).extend(of_key)
        return {
            key: [state.change for state in self._latest.states(of_key, known.get(key))]
            for key, of_key in records.items()
        }

    def _repair(self, differing: Mapping[bytes, _Suspect]) -> None:
        """Each key as the topic has it now; whatever has changed since it was looked at stays as it is."""
        sides, topic = self._sides, self._topic.topic
        extra: list[StoredKey] = []
        mend: list[tuple[Change, StoredKey | None]] = []
        for suspect in differing.values():
            newest = suspect.newest
            if newest is not None and newest.row is not None:
                mend.append((newest, suspect.held))
            elif suspect.held is not None:
                extra.append(suspect.held)
        for some in slices(extra, LOOK_KEYS):
            sides.target.remove(topic, some)
        for pairs in slices(mend, LOOK_KEYS):
            changes = [change for change, _ in pairs]
            outcomes = sides.target.apply(changes)
            again = [
                pair for pair, outcome in zip(pairs, outcomes, strict=True) if outcome.verdict is Verdict.OVERTAKEN
            ]
            if again:
                sides.target.repair_keys([change for change, _ in again], [one for _, one in again])

    def _judge(
        self, key: bytes, accepted: Sequence[Change | None], held: StoredKey | None, ends: Mapping[TopicPartition, int]
    ) -> DifferenceKind | None:
        end = ends[self._place(key)]
        kind = judge(accepted, held, end, self._sides.content)
        if kind is None or self._lossy is None or (held is not None and held.version >= end):
            return kind
        now_ms = int(self._sides.clock.wall_s() * 1000)
        excuses = {self._lossy.allowed_difference(change, held, now_ms) for change in accepted}
        if AllowedDifference.ACCEPTED in excuses:
            return None
        if AllowedDifference.EXPIRED in excuses:
            self._latest.note(key, _EXPIRED)
            return None
        if AllowedDifference.UNKNOWN in excuses and not self._sides.repair:
            self._latest.note(key, _UNTOLD)
            self._found.show("undecided", _shown(key))
            return None
        return kind

    def _place(self, key: bytes) -> TopicPartition:
        return self._topic.topic, partition_of(key, self._topic.partition_count)

    def _ends(self) -> dict[TopicPartition, int]:
        return {place: end for place, (_, end) in self._sides.reader.end_offsets([self._topic.topic]).items()}


def _change(known: Known | None) -> Change | None:
    return None if known is None else known.change


def _same(before: _Suspect | None, now: _Suspect) -> bool:
    """Wrong in the same way, with no record and no write in between."""
    return before is not None and (before.kind, before.records, before.held) == (now.kind, now.records, now.held)


def _shown(key: bytes) -> str:
    return key.decode(errors="replace")


def slices(of: Iterable[_T], count: int) -> Iterator[list[_T]]:
    """In lists of at most so many."""
    rest = iter(of)
    while some := list(islice(rest, count)):
        yield some
