"""Compares every key of a table with its topic, while capture runs and the table is written.

    1. Read the topic up to the newest cut and the table range by range. Keys that do not agree are suspects.
    2. Check the suspects in rounds. Each round reads them in a snapshot S and then the WAL position L; in this order,
       everything that S sees is below L. It then reads the topic until the log has everything below L. A key agrees
       when its row is the state after its last event whose transaction S sees. A commit can be in the log long before
       it is visible, so a log that was already ahead of S is not wrong yet. A key differs when it is wrong twice with
       no event and no write in between.

Keys that change meanwhile are checked again until the time is up; then they are undecided.

Records in the format ``flat`` do not name their transaction. Such an event counts as visible once every transaction has
ended that had begun when the log had the event (`_Horizon`). A key that changes all the time agrees when its row is one
of the states that the log had around the snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cdc.clock import Clock
from cdc.lsn import Lsn
from cdc.model.log_record import LogRecord
from cdc.model.visibility import PgSnapshot
from cdc.progress.restore import RecordReader
from cdc.verify.findings import TableFindings
from cdc.verify.key_states import KeyState, KeyStates, Sample, records_by_key
from cdc.verify.key_verdict import DifferenceKind
from cdc.verify.log_events import JSON, Format
from cdc.verify.row_json import Row, canonical, row_of
from cdc.verify.sink_check import slices
from cdc.verify.source_rows import Keys, RowsAtSnapshot
from cdc.verify.verified_cut import CutIndex

ROUND_KEYS: Final = 5_000
ROUND_S: Final = 0.5
DECIDE_S: Final = 60.0


class KeyedSource(Protocol):
    """The part of `cdc.verify.source_rows.KeyedRows` that the check uses."""

    def pages(self) -> Iterator[Keys]:
        """Yield all rows in pages."""

    def moment(self, keys: Sequence[bytes]) -> RowsAtSnapshot:
        """Return the current rows of these keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceComparison:
    """The two sides of a comparison, and its settings.

    Attributes:
        cut: waits until the cut index has everything below an LSN, and returns it.
        repair: makes capture read these keys of a table again (keys as in the topic) and delete those that the table
            does not have; returns the keys it requested. None: no repair.
        decide_s: time limit for checking suspects.
        form: returns the format of a topic.
    """

    reader: RecordReader
    cut: Callable[[Lsn], CutIndex]
    clock: Clock
    sample: Sample
    repair: Callable[[str, Sequence[bytes]], Sequence[bytes]] | None = None
    decide_s: float = DECIDE_S
    form: Callable[[str], Format] = lambda _: JSON


@dataclass(frozen=True, slots=True)
class _Suspect:
    kind: DifferenceKind
    offset: int
    row: Row | None
    raw: bytes


def normal_key(key: bytes) -> bytes:
    """Return a JSON key in the normal form that row look-ups use."""
    return canonical(row_of(key))


class _Horizon:
    """Tracks the offsets below which the log has only transactions that are visible to all snapshots."""

    def __init__(self) -> None:
        self._visible: dict[int, int] = {}
        self._next: tuple[int, dict[int, int]] | None = None

    def take(self, moment: RowsAtSnapshot, at: Mapping[int, int]) -> None:
        """Update from a snapshot; `at` has the offsets up to which the log was read before the snapshot."""
        if self._next is not None and moment.snapshot.ended_below(self._next[0]):
            self._visible, self._next = self._next[1], None
        if self._next is None:
            self._next = (moment.next_xid, dict(at))

    def has(self, known: KeyState) -> bool:
        """Return whether the last event of the key is visible."""
        return known.change.offset < self._visible.get(known.change.partition, 0)


class SourceCheck:
    """Compares one table. Call `run` once, then `close`."""

    def __init__(
        self,
        sides: SourceComparison,
        table: str,
        topic: str,
        rows: KeyedSource,
        on_progress: Callable[[str, int], None],
    ) -> None:
        self._sides = sides
        self._table = table
        self._topic = topic
        self._rows = rows
        self._on_progress = on_progress
        self._form = sides.form(topic)
        self._states = KeyStates(topic, sides.sample, self._name, self._form)
        self._horizon = _Horizon()
        self._at: dict[int, int] = {}
        self._found = TableFindings(table=table, topic=topic)

    def close(self) -> None:
        """Delete the state of the topic."""
        self._states.close()

    def run(self) -> TableFindings:
        """Compare the table. Raises CutNotReached and errors of Kafka and PostgreSQL."""
        self._fold(self._sides.cut(Lsn(0)))
        self._found.offsets = dict(self._at)
        suspects = self._scan()
        self._on_progress("again", len(suspects))
        for some in slices(suspects, ROUND_KEYS):
            self._settle(some)
        return self._found

    def _name(self, key: bytes) -> bytes:
        return normal_key(self._form.key(key))

    def _fold(self, index: CutIndex, watched: frozenset[bytes] = frozenset()) -> dict[bytes, list[LogRecord]]:
        """Read the topic up to a cut; returns the new records of the watched keys."""
        until = {(self._topic, at): account.next_offset for at, account in index.topic(self._topic).items()}
        low = {place: first for place, (first, _) in self._sides.reader.end_offsets([self._topic]).items()}
        start = {place: max(self._at.get(place[1], 0), low.get(place, 0)) for place in until}
        came: dict[bytes, list[LogRecord]] = {}
        count = 0
        for batch in self._sides.reader.read(start, until):
            self._states.take(batch)
            count += len(batch)
            self._on_progress("fold", count)
            for key, of_key in records_by_key(batch).items() if watched else ():
                if (name := self._name(key)) in watched:
                    came.setdefault(name, []).extend(of_key)
        self._at.update({place[1]: end for place, end in until.items()})
        return came

    def _scan(self) -> list[bytes]:
        found, suspects, compared = self._found, [], 0
        for page in self._rows.pages():
            mine = {key: row for key, row in page.items() if self._sides.sample.has(key)}
            known = self._states.get(list(mine))
            self._states.mark_seen(list(mine))
            suspects += [key for key, row in mine.items() if differs(row, known.get(key)) is not None]
            compared += len(mine)
            self._on_progress("compare", compared)
        extra = list(self._states.unseen())
        found.compared = compared + len(extra)
        return sorted({*suspects, *extra})

    def _settle(self, suspects: Sequence[bytes]) -> None:
        differing, undecided = self._decide(list(suspects))
        for suspect in differing.values():
            self._found.add(suspect.kind, suspect.raw.decode(errors="replace"))
        if self._sides.repair is not None and differing:
            undecided += self._mend(differing)
        self._found.undecided += len(undecided)
        for key in undecided:
            self._found.show("undecided", key.decode(errors="replace"))

    def _mend(self, differing: Mapping[bytes, _Suspect]) -> list[bytes]:
        """Have the keys read again and wait until they agree; returns those that are undecided then."""
        assert self._sides.repair is not None
        asked = set(self._sides.repair(self._table, [one.raw for one in differing.values()]))
        end_s = self._sides.clock.monotonic_s() + self._sides.decide_s
        while True:
            left, undecided = self._decide(list(differing))
            if not any(one.raw in asked for one in left.values()) or self._sides.clock.monotonic_s() > end_s:
                break
            self._sides.clock.wait(threading.Event(), ROUND_S)
        self._found.repaired += len(differing) - len(left) - len(undecided)
        self._found.unrepaired += len(left)
        return undecided

    def _decide(self, suspects: list[bytes]) -> tuple[dict[bytes, _Suspect], list[bytes]]:
        """Return the keys that differ, and the undecided ones."""
        sides = self._sides
        end_s = sides.clock.monotonic_s() + sides.decide_s
        before: dict[bytes, _Suspect] = {}
        differing: dict[bytes, _Suspect] = {}
        while suspects:
            wrong, unclear = self._round(suspects)
            self._found.again += 0 if before else len(suspects)
            differing |= {key: one for key, one in wrong.items() if before.get(key) == one}
            suspects = [*(key for key in wrong if key not in differing), *unclear]
            before = wrong
            if not suspects or sides.clock.monotonic_s() > end_s:
                break
            sides.clock.wait(threading.Event(), ROUND_S)
        return differing, suspects

    def _round(self, keys: Sequence[bytes]) -> tuple[dict[bytes, _Suspect], list[bytes]]:
        """Return the keys that are wrong in this round, and those that it cannot decide."""
        before = self._states.get(keys)
        moment = self._rows.moment(keys)
        self._horizon.take(moment, self._at)
        came = self._fold(self._sides.cut(moment.lsn), frozenset(keys))
        wrong: dict[bytes, _Suspect] = {}
        unclear: list[bytes] = []
        for key in keys:
            known = before.get(key)
            states = [known, *self._states.states(came.get(key, ()), known)]
            row = moment.rows.get(key)
            event = as_of(moment.snapshot, states, self._horizon.has)
            if isinstance(event, Unclear):
                if not _may_be(row, states):
                    unclear.append(key)
                continue
            kind = differs(row, event)
            if kind is not None:
                raw = event.change.key if event is not None else key
                wrong[key] = _Suspect(kind, -1 if event is None else event.change.offset, row, raw)
        return wrong, unclear


class Unclear:
    """The log does not tell which state a snapshot sees."""


def _may_be(row: Row | None, states: Sequence[KeyState | None]) -> bool:
    """Return whether a row is one of the states that a snapshot may see, if no state names its transaction. Pure."""
    unnamed = all(state is None or state.xid is None for state in states)
    return unnamed and any(differs(row, state) is None for state in states)


def as_of(
    snapshot: PgSnapshot, states: Sequence[KeyState | None], visible: Callable[[KeyState], bool]
) -> KeyState | Unclear | None:
    """Return the state of a key in a snapshot; None when the log had no record of it. Pure.

    Args:
        snapshot: everything that it sees is among the states.
        states: the state in the log before the snapshot was taken, then one after each later record.
        visible: whether the snapshot sees the event of the first state, if that names no transaction.
    """
    for at, state in reversed(list(enumerate(states))):
        if state is None:
            return None
        if state.xid is None and at:
            return Unclear()  # a row that was read again, or a change, at an unknown time
        if snapshot.sees(state.xid) if state.xid is not None else state.read or visible(state):
            return state
    return Unclear()


def differs(row: Row | None, known: KeyState | None) -> DifferenceKind | None:
    """Return how the topic differs from a row of the table; None if it agrees. Pure.

    A column that the topic does not have counts as null: it was added later.
    """
    live = known is not None and known.change.row is not None
    if row is None:
        return DifferenceKind.EXTRA if live else None
    if known is None or known.change.row is None:
        return DifferenceKind.MISSING
    there = row_of(known.change.row)
    left_out = {*known.absent, *known.change.kept}
    same = all(there.get(column) == value for column, value in row.items() if column not in left_out)
    return None if same else DifferenceKind.DIFFERENT
