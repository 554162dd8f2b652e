"""Compares every key of a sink with its topic, as of the committed offsets, while the sink runs.

    1. Read the committed offsets, then the topic up to them.
    2. Read the whole store. Keys that do not agree are suspects: they may have changed since.
    3. Check the suspects in rounds. Each round reads the committed offsets and the topic again, then these keys in the
       store, then the end of the topic and later records of these keys. Every version in the store is below that end,
       and every record below the offsets is in the store, so each round decides by itself. A key differs when it is
       wrong twice with the same records and the same version in the store. A key that keeps changing until the time is
       up is undecided.

With `repair`, differing keys are repaired under the guard of the store and checked in rounds again. A store that may
lack rows by its settings decides whether a difference is allowed (`sinks.contract.Lossy`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from cdc.clock import Clock
from cdc.model.log_record import LogRecord
from cdc.progress.restore import RecordReader
from cdc.verify.findings import TableFindings
from cdc.verify.key_states import KeyState, KeyStates, Sample, records_by_key
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

REQUEST_KEYS: Final = 500  # keys in one request to the store
ROUND_KEYS: Final = 20_000  # suspects of one round; their keys and later records are in memory
ROUND_S: Final = 0.3  # between rounds: a sink commits every 100 ms
DECIDE_S: Final = 30.0  # time limit for the rounds of one batch of suspects

_EXPIRED: Final = 2
_UNDECIDABLE: Final = 3

_T = TypeVar("_T")
_Blocked: TypeAlias = Callable[[TopicPartition], frozenset[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkComparison:
    """The two sides of a comparison, and its settings.

    Attributes:
        committed: returns the committed offsets of partitions that have one.
        blocked: returns the keys of a partition that currently wait behind a dead letter.
        content: returns the content that the store would have for a change.
        decide_s: time limit for checking suspects.
    """

    reader: RecordReader
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
    """A wrong key in a round: the records that its state may have, and its content in the store."""

    kind: DifferenceKind
    records: tuple[int, ...]
    held: StoredKey | None
    newest: Change | None


def check_topic(
    sides: SinkComparison, topic: Topic, on_progress: Callable[[str, int], None] = lambda _, __: None
) -> TableFindings:
    """Compare one topic with the store; repair it if requested. `on_progress` receives step and number of keys."""
    check = _Check(sides, topic, on_progress)
    try:
        return check.run()
    finally:
        check.close()


class _Check:
    def __init__(self, sides: SinkComparison, topic: Topic, on_progress: Callable[[str, int], None]) -> None:
        self._sides = sides
        self._topic = topic
        self._on_progress = on_progress
        self._states = KeyStates(topic.topic, sides.sample)
        self._places = [(topic.topic, partition) for partition in range(topic.partition_count)]
        self._at: dict[TopicPartition, int] = {}
        self._found = TableFindings(table=topic.table, topic=topic.topic)
        self._blocked: set[bytes] = set()
        self._lossy = sides.target if isinstance(sides.target, Lossy) else None

    def close(self) -> None:
        self._states.close()

    def run(self) -> TableFindings:
        low = self._sides.reader.end_offsets([self._topic.topic])
        self._at = {place: low[place][0] for place in self._places}
        self._advance()
        self._found.offsets = {partition: at for (_, partition), at in self._at.items()}
        suspects = list(self._scan())
        self._on_progress("again", len(suspects))
        for some in slices(suspects, ROUND_KEYS):
            self._settle(some)
        for names in slices(self._states.unknown_names(), REQUEST_KEYS):
            self._foreign(names)
        self._found.blocked = len(self._blocked)
        self._found.expired = self._states.marked_count(_EXPIRED)
        self._found.undecided += self._states.marked_count(_UNDECIDABLE)
        return self._found

    def _advance(self) -> None:
        """Read the topic up to the committed offsets, never backwards, and not beyond the end of a truncated topic."""
        committed, ends = self._sides.committed(self._places), self._ends()
        until = {place: max(at, min(committed.get(place, at), ends[place])) for place, at in self._at.items()}
        count = 0
        for batch in self._sides.reader.read(self._at, until):
            self._states.take(batch)
            count += len(batch)
            self._on_progress("fold", count)
        self._at = until

    def _scan(self) -> Iterator[bytes]:
        """Read the whole store; yields keys that do not agree at first."""
        sides, found = self._sides, self._found
        sides.target.refresh([self._topic.topic])
        ends = self._ends()
        unknown: set[bytes] = set()
        suspects: set[bytes] = set()
        for some in slices(sides.target.stored_keys(self._topic.topic), REQUEST_KEYS):
            mine = [one for one in some if one.key is not None and sides.sample.has(one.key)]
            known = self._states.get([one.key for one in mine if one.key is not None])
            self._states.mark_seen([one.key for one in mine if one.key is not None])
            for one in mine:
                key = one.key or b""
                if self._judge(key, [_change(known.get(key))], one, ends) is not None:
                    suspects.add(key)
                if key not in known and one.content is not None:
                    unknown.add(key)
            self._states.add_unknown_names((one.name, one.version) for one in some if one.key is None)
        suspects.update(self._states.unseen(deleted=self._lossy is not None))
        found.compared += self._states.live_count() + len(unknown)
        yield from sorted(suspects)

    def _foreign(self, names: Sequence[tuple[str, int]]) -> None:
        """Report rows of other programs as extra; without a key they cannot be checked again."""
        for name, _ in names:
            self._found.compared += 1
            self._found.add(DifferenceKind.EXTRA, name)
        if self._sides.repair:
            self._sides.target.remove(
                self._topic.topic, [StoredKey(None, name, version, {}) for name, version in names]
            )
            self._found.repaired += len(names)

    def _settle(self, suspects: list[bytes]) -> None:
        """Decide suspects, repair those that differ, and check them again."""
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
        """Return the keys that differ, and those that kept changing."""
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
        """Return the keys that are wrong in this round."""
        sides = self._sides
        self._advance()
        waiting = {key: self._place(key) for key in keys}
        blocked = {place: sides.blocked(place) for place in set(waiting.values())}
        sides.target.refresh([self._topic.topic])
        held: dict[bytes, StoredKey | None] = {}
        for some in slices(keys, REQUEST_KEYS):
            held.update(zip(some, sides.target.read_keys(self._topic.topic, some), strict=True))
        self._states.remove_names(one.name for one in held.values() if one is not None and one.version < 0)
        ends = self._ends()
        known = self._states.get(keys)
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
        self,
        known: Mapping[bytes, KeyState],
        held: Mapping[bytes, StoredKey | None],
        ends: Mapping[TopicPartition, int],
    ) -> dict[bytes, list[Change]]:
        """Return the changes of keys after the committed offsets; reads only partitions where they matter."""
        need: dict[TopicPartition, set[bytes]] = {}
        for key, one in held.items():
            place = self._place(key)
            if one is None or one.content is None or one.version >= self._at[place]:
                need.setdefault(place, set()).add(key)
        start = {place: self._at[place] for place in need}
        keys = set[bytes]().union(*need.values())
        records: dict[bytes, list[LogRecord]] = {}
        for batch in self._sides.reader.read(start, {place: ends[place] for place in need}):
            for key, of_key in records_by_key(batch).items():
                if key in keys:
                    records.setdefault(key, []).extend(of_key)
        return {
            key: [state.change for state in self._states.states(of_key, known.get(key))]
            for key, of_key in records.items()
        }

    def _repair(self, differing: Mapping[bytes, _Suspect]) -> None:
        """Write the current state of each key; the store skips keys that changed since the check."""
        sides, topic = self._sides, self._topic.topic
        extra: list[StoredKey] = []
        to_repair: list[tuple[Change, StoredKey | None]] = []
        for suspect in differing.values():
            newest = suspect.newest
            if newest is not None and newest.row is not None:
                to_repair.append((newest, suspect.held))
            elif suspect.held is not None:
                extra.append(suspect.held)
        for some in slices(extra, REQUEST_KEYS):
            sides.target.remove(topic, some)
        for pairs in slices(to_repair, REQUEST_KEYS):
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
            self._states.mark(key, _EXPIRED)
            return None
        if AllowedDifference.UNKNOWN in excuses and not self._sides.repair:
            self._states.mark(key, _UNDECIDABLE)
            self._found.show("undecided", _shown(key))
            return None
        return kind

    def _place(self, key: bytes) -> TopicPartition:
        return self._topic.topic, partition_of(key, self._topic.partition_count)

    def _ends(self) -> dict[TopicPartition, int]:
        return {place: end for place, (_, end) in self._sides.reader.end_offsets([self._topic.topic]).items()}


def _change(known: KeyState | None) -> Change | None:
    return None if known is None else known.change


def _same(before: _Suspect | None, now: _Suspect) -> bool:
    """Return whether a key is wrong in the same way, with no record and no write in between."""
    return before is not None and (before.kind, before.records, before.held) == (now.kind, now.records, now.held)


def _shown(key: bytes) -> str:
    return key.decode(errors="replace")


def slices(of: Iterable[_T], count: int) -> Iterator[list[_T]]:
    """Divide into lists of at most `count` items."""
    rest = iter(of)
    while some := list(islice(rest, count)):
        yield some
