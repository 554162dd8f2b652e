"""Checks at every commit of Kafka that the log is what the list of source transactions requires.

Each check names its obligation: P1 prefix, P2 no early acknowledgement, P3 no gap, P4 no duplicate, P5 order, P6
fencing, P8 same bytes, G8 cuts. `tests.simulation.history` checks P7, P11 and P12, which concern a whole history.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from cdc.model.change_records import Record
from cdc.model.progress_record import Cut, Progress
from tests.fixtures.capture.rolling_hash import rolled
from tests.simulation.broker import Broker, Transaction
from tests.simulation.source import CAPTURED, Postgres
from tests.simulation.world import World

_TOPICS: Final = {f"shop.public.t{oid}": oid for oid in CAPTURED}
_PROGRESS: Final = ("shop.__progress", 0)
_CUTS: Final = ("shop.__cuts", 0)
_SENTINEL: Final = b"shop/sentinel"

Partition = tuple[str, int]
"""(topic, index)."""

Event = tuple[str, int, str]
"""(topic, key, operation)."""


class _Source(msgspec.Struct):
    commit_lsn: int
    ordinal: int


class _Envelope(msgspec.Struct):
    op: str
    source: _Source


class _Key(msgspec.Struct):
    id: int


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope).decode
_KEY: Final = msgspec.json.Decoder(_Key).decode
_PROGRESS_OF: Final = msgspec.json.Decoder(Progress).decode
_CUT_OF: Final = msgspec.json.Decoder(Cut).decode


@dataclass(slots=True)
class Change:
    """A change of the source, and the events that must follow from it. A TRUNCATE may come in several parts."""

    commit_lsn: int
    ordinal: int
    events: set[Event]
    spread: bool = False
    published: bool = True


@dataclass(slots=True)
class Referee:
    """Attributes:
    missing: changes that were not published although the log has passed them; a GAP must name them all.
    reached: the position in the last committed progress record.
    """

    world: World
    broker: Broker
    postgres: Postgres
    missing: list[Change] = field(default_factory=list)
    reached: Progress = field(default_factory=lambda: Progress(epoch=0, end_lsn=0))
    event_count: int = 0
    _wanted: list[Change] = field(default_factory=list)
    _told: int = 0
    _at: int = 0
    _known: set[object] = field(default_factory=set)
    _deposed: set[object] = field(default_factory=set)
    _live: dict[int, set[int]] = field(default_factory=lambda: {oid: set() for oid in CAPTURED})
    _bytes: dict[tuple[Partition, int, int, int, bool], bytes] = field(default_factory=dict)
    _last: dict[Partition, tuple[int, int]] = field(default_factory=dict)
    _delete_of: dict[Partition, tuple[int, int, int] | None] = field(default_factory=dict)
    _accounts: dict[Partition, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every change is in the log."""
        return self._at >= len(self._changes())

    def learn(self) -> None:
        """Read every transaction so far, before a restore of the source removes some."""
        self._changes()

    def appended(self, partition: Partition, record: Record) -> None:
        """P8: every process writes the same bytes for a change, at any time."""
        if partition[0] not in _TOPICS:
            return
        key, value, _ = record
        number = _KEY(key or b"").id
        if value is None:
            at = self._delete_of.get(partition)
            if at is None or at[2] != number:
                self.world.violate("P5", f"a tombstone of key {number} does not stand behind its delete")
            return
        found = _ENVELOPE(value)
        source = found.source
        deletes = found.op == "d"
        self._delete_of[partition] = (source.commit_lsn, source.ordinal, number) if deletes else None
        before = self._bytes.setdefault((partition, source.commit_lsn, source.ordinal, number, deletes), value)
        if before != value:
            self.world.violate("P8", f"{source} of {partition[0]} has other bytes than before")

    def confirmed(self, lsn: int) -> None:
        """P2: capture acknowledges no WAL beyond a committed progress record."""
        if lsn > max(self.reached.end_lsn, self.postgres.slot_from):
            self.world.violate("P2", f"{lsn} is acknowledged, the log is at {self.reached.end_lsn}")

    def committed(self, transaction: Transaction) -> None:
        """Check a transaction whose commit is decided, so that its records are visible from now on."""
        if not self.broker.is_newest(transaction.producer):
            self.world.violate("P6", f"a producer of epoch {transaction.producer} commits, and a newer one is there")
        owner = self.broker.owners[transaction.producer]
        if any(partition == _PROGRESS and record[0] == _SENTINEL for partition, _, record in transaction.records):
            self._known.add(owner)
            self._deposed = self._known - {owner}
        if owner in self._deposed:
            self.world.violate("P6", "a process commits, and another one has read the log since")
        found: dict[tuple[int, int], list[Event]] = {}
        progress: Progress | None = None
        cut: Cut | None = None
        touched: dict[Partition, list[Record]] = {}
        for partition, offset, record in transaction.records:
            if partition == _PROGRESS:
                if record[0] == b"shop":
                    progress = _PROGRESS_OF(record[1] or b"")
            elif partition == _CUTS and record[1] is not None:
                cut = _CUT_OF(record[1] or b"")
            elif partition[0] in _TOPICS:
                self._event(partition, record, found)
            if partition not in (_PROGRESS, _CUTS):
                touched.setdefault(partition, []).append(record)
                count, rolling = self._accounts.get(partition, (0, 0, 0))[1:]
                self._accounts[partition] = (offset + 1, count + 1, rolled(rolling, record[0], record[1]))
        if progress is None or cut is None:
            if found or progress is not None or cut is not None:
                self.world.violate("P1", "a Kafka transaction without its progress or its cut is committed")
            return
        self._advance(found, progress)
        self._check_cut(cut, progress)
        self.reached = progress

    def _event(self, partition: Partition, record: Record, found: dict[tuple[int, int], list[Event]]) -> None:
        key, value, _ = record
        if value is None:
            return
        envelope = _ENVELOPE(value)
        at = (envelope.source.commit_lsn, envelope.source.ordinal)
        if at < self._last.get(partition, at):
            if self._at == len(self._changes()) or at < self._place(self._at):
                self.world.violate("P4", f"{at} is in the log already")
            self.world.violate("P5", f"{at} stands behind {self._last[partition]} in {partition}")
        self._last[partition] = at
        found.setdefault(at, []).append((partition[0], _KEY(key or b"").id, envelope.op))

    def _advance(self, found: dict[tuple[int, int], list[Event]], progress: Progress) -> None:
        """P1, P3, P4: the new events are exactly the next ones, up to the position in the progress record."""
        changes = self._changes()
        for at in sorted(found):
            events = set(found[at])
            self.event_count += len(found[at])
            if len(events) < len(found[at]):
                self.world.violate("P4", f"events of {at} are in one Kafka transaction twice")
            while self._at < len(changes) and (self._place(self._at) < at or not changes[self._at].events):
                self._pass()
            if self._at == len(changes) or self._place(self._at) != at:
                self.world.violate("P4", f"{at} is in the log already, or was never committed")
            change = changes[self._at]
            if not events <= change.events:
                self.world.violate("P4", f"{at} has events that it must not have, or has again")
            if events != change.events and not change.spread:
                self.world.violate("P3", f"of {at} events are missing")
            if not self._below(change, progress, partly=True):
                self.world.violate("P1", f"{at} is in the log, its progress says {progress.end_lsn}")
            change.events = change.events - events
        while self._at < len(changes) and (
            not changes[self._at].events or self._below(changes[self._at], progress, partly=False)
        ):
            self._pass()

    def _place(self, index: int) -> tuple[int, int]:
        return self._wanted[index].commit_lsn, self._wanted[index].ordinal

    def _pass(self) -> None:
        """Record that the log has passed this change."""
        change = self._wanted[self._at]
        if change.events and change.published:
            self.world.violate("P3", f"{self._place(self._at)} is not in the log, and what comes later is")
        if change.events:
            self.missing.append(change)
        self._at += 1

    @staticmethod
    def _below(change: Change, progress: Progress, *, partly: bool) -> bool:
        if change.commit_lsn < progress.end_lsn:
            return True
        if not progress.next_ordinal or change.commit_lsn != progress.commit_lsn:
            return False
        return change.ordinal < progress.next_ordinal + (partly and change.spread)

    def _check_cut(self, cut: Cut, progress: Progress) -> None:
        """G8: check the end offset, record count and hash of each partition."""
        if (cut.end_lsn, cut.commit_lsn, cut.next_ordinal) != (
            progress.end_lsn,
            progress.commit_lsn,
            progress.next_ordinal,
        ):
            self.world.violate("G8", "cut and progress of one Kafka transaction differ")
        for name, (next_offset, count, rolling) in cut.changed.items():
            topic, _, index = name.rpartition("-")
            have = self._accounts.get((topic, int(index)))
            if have is not None and have != (next_offset, count, int(rolling, 16)):
                self.world.violate("G8", f"the cut says {(next_offset, count)} of {name}, there is {have[:2]}")

    def _changes(self) -> list[Change]:
        """Return the changes of all transactions in the slot; a TRUNCATE deletes every key that exists then."""
        transactions = self.postgres.transactions
        while self.postgres.slot_from and self._told < len(transactions):
            one = transactions[self._told]
            self._told += 1
            if one.commit_lsn < self.postgres.slot_from:
                continue
            ordinal = 0
            for step in one.steps:
                published = step.oid in one.published
                ordinal += published
                if step.oid not in CAPTURED:
                    continue
                topic, live, key = f"shop.public.t{step.oid}", self._live[step.oid], step.number
                events = {(topic, key, {"I": "c", "D": "d"}.get(step.kind, "u"))}
                if step.kind == "T":
                    events = {(topic, number, "d") for number in live}
                    live.clear()
                elif step.kind == "K":
                    events = {(topic, key, "d"), (topic, key + 1, "c")}
                    live.add(key + 1)
                    live.discard(key)
                elif step.kind == "D":
                    live.discard(key)
                else:
                    live.add(key)
                self._wanted.append(Change(one.commit_lsn, ordinal, events, step.kind == "T", published))
        return self._wanted
