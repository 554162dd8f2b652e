"""Random histories of a source: transactions with or without gaps, relations that change, keepalives.

`Source` plays the walsender: a session may begin at any transaction that it must send, and announces each relation
before its first row in the session, and again when its shape changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from cdc.lsn import Lsn
from cdc.model.relation import Column, Relation, ReplicaIdentity
from cdc.wire.pgoutput import UNCHANGED, Begin, Commit, Delete, Insert, Message, Truncate, Update
from tests.fixtures.capture import pgoutput as server

LEFT_OUT = 3
"""Oid of the table that is published but not captured."""

FIRST_LSN = 1000


@dataclass(frozen=True, slots=True)
class Step:
    """One thing in a transaction: a change (I, U, D, T) of a relation in a shape, or a keepalive (k).

    H is an update that leaves a large value alone, which is therefore not sent; K is one that moves the key on by one.
    """

    kind: str
    oid: int = 1
    shape: int = 1
    number: int = 0
    lsn: int = 0


@dataclass(frozen=True, slots=True)
class Transaction:
    """`before` are keepalives the server sends in front of it."""

    before: tuple[int, ...]
    commit_lsn: int
    end_lsn: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """What must be in the log: where it stands, and which change it is."""

    commit_lsn: int
    ordinal: int
    message: Insert | Update | Delete


@dataclass(frozen=True, slots=True)
class Source:
    """A database with a past. `after` are keepalives behind its last transaction."""

    transactions: tuple[Transaction, ...]
    after: tuple[int, ...]

    @property
    def changes(self) -> list[tuple[int, int, Step]]:
        """(commit_lsn, ordinal, change) of captured tables, in order."""
        return [
            (transaction.commit_lsn, ordinal, step)
            for transaction in self.transactions
            for ordinal, step in enumerate((step for step in transaction.steps if step.kind != "k"), 1)
            if step.oid != LEFT_OUT
        ]

    @property
    def events(self) -> list[Event]:
        """Every event of captured tables, in order; truncates take an ordinal and are no event."""
        found = []
        for commit_lsn, ordinal, step in self.changes:
            message = change_of(step)
            if not isinstance(message, Truncate):
                found.append(Event(commit_lsn, ordinal, message))
        return found

    def first_to_send(self, lsn: int) -> int:
        """Index of the first transaction a session from `lsn` must have: its commit record starts at or after it."""
        below = [transaction for transaction in self.transactions if transaction.commit_lsn < lsn]
        return len(below)

    def session(self, first: int) -> list[bytes]:
        """Everything a session sends that begins with transaction number `first`."""
        frames: list[bytes] = []
        shapes: dict[int, int] = {}
        for transaction in self.transactions[first:]:
            frames += [server.keepalive(lsn) for lsn in transaction.before]
            frames.append(server.frame(Begin(Lsn(transaction.commit_lsn), 1_700_000_000_000_000, 700)))
            for step in transaction.steps:
                if step.kind == "k":
                    frames.append(server.keepalive(step.lsn))
                    continue
                if shapes.get(step.oid) != step.shape:
                    shapes[step.oid] = step.shape
                    frames.append(server.frame(relation_of(step)))
                frames.append(server.frame(change_of(step)))
            end = Commit(Lsn(transaction.commit_lsn), Lsn(transaction.end_lsn), 1_700_000_000_000_000)
            frames.append(server.frame(end))
        return frames + [server.keepalive(lsn) for lsn in self.after]


def relation_of(step: Step) -> Relation:
    """The relation of a step: shape n has n columns besides its key."""
    extra = tuple(Column(f"c{index}", 25, -1, False) for index in range(step.shape))
    columns = (Column("id", 23, -1, True), *extra)
    return Relation(step.oid, "public", f"t{step.oid}", ReplicaIdentity.DEFAULT, columns)


def change_of(step: Step) -> Insert | Update | Delete | Truncate:
    """The message of a step; `number` is the key."""
    key = b"%d" % step.number
    row = (key, *[b"v"] * step.shape)
    match step.kind:
        case "I":
            return Insert(step.oid, row)
        case "U":
            return Update(step.oid, "", None, row)
        case "H":
            return Update(step.oid, "", None, (*row[:-1], UNCHANGED))
        case "K":
            return Update(step.oid, "K", (key, *[None] * step.shape), (b"%d" % (step.number + 1), *row[1:]))
        case "D":
            return Delete(step.oid, "K", (key, *[None] * step.shape))
        case _:
            return Truncate((step.oid,), cascade=False, restart_identity=False)


@st.composite
def sources(draw: st.DrawFn, *, transactions_max: int = 6, rows_max: int = 9, truncates: bool = True) -> Source:
    """A database with up to so many transactions. Commit records often start where the one before ended."""
    kinds = "IIUUDkT" if truncates else "IIUUDk"
    at = FIRST_LSN
    shapes = {1: 1, 2: 1, LEFT_OUT: 1}
    transactions = []
    for _ in range(draw(st.integers(0, transactions_max))):
        commit_lsn = at + draw(st.sampled_from([0, 0, 1, 5]))
        before = draw(st.sampled_from([(commit_lsn,), (at, (at + commit_lsn) // 2), ()]))
        end_lsn = commit_lsn + draw(st.integers(1, 4))
        steps = tuple(_step(draw, kinds, shapes) for _ in range(draw(st.integers(0, rows_max))))
        transactions.append(Transaction(before, commit_lsn, end_lsn, steps))
        at = end_lsn
    after = draw(st.lists(st.integers(at, at + 9), max_size=2))
    return Source(tuple(transactions), tuple(sorted(after)))


def _step(draw: st.DrawFn, kinds: str, shapes: dict[int, int]) -> Step:
    kind = draw(st.sampled_from(kinds))
    if kind == "k":
        return Step(kind, lsn=draw(st.integers(FIRST_LSN, FIRST_LSN + 99)))
    oid = draw(st.sampled_from([1, 1, 2, LEFT_OUT]))
    if draw(st.integers(0, 9)) == 0:
        shapes[oid] += 1
    return Step(kind, oid, shapes[oid], draw(st.integers(0, 5)))


def messages_of(events: Sequence[Event]) -> list[Message]:
    """Only the changes."""
    return [event.message for event in events]
