"""Simulates the parts of a PostgreSQL server with one table that matter for snapshots.

Commits may be streamed before they are visible, or visible before they are flushed. There are locks, rewritten heaps,
transaction ids that wrap, and crashes that lose asynchronous commits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cdc.model.visibility import PgSnapshot

BLOCKS = 3
KEYS = 7


@dataclass(frozen=True, slots=True)
class Row:
    """A version of a row: its block and its two values; the second one is large."""

    block: int
    small: int
    large: int


@dataclass(frozen=True, slots=True)
class Op:
    """One change of `key`, or from `old` to `key` if the key changed. No row: a delete. No key: a TRUNCATE.

    `whole` says whether the stream has the large value of the new row; `published` whether the stream has the change.
    """

    key: int | None
    row: Row | None = None
    old: int | None = None
    whole: bool = True
    published: bool = True


@dataclass(slots=True)
class Transaction:
    """A transaction; `commit` and `end` are the start and end LSN of its commit record, 0 while it is open."""

    xid: int
    ops: list[Op] = field(default_factory=list)
    commit: int = 0
    end: int = 0


class Server:
    """The server. LSNs and ids have 64 bits here; the stream has the lower 32 bits of an id."""

    def __init__(self, first_xid: int) -> None:
        self.insert = self.flushed = 1000
        self.filenode = 1
        self.leaf = 77
        self._next_xid = first_xid
        self._completed = first_xid - 1
        self.open: dict[int, Transaction] = {}
        self.hidden: list[Transaction] = []  # committed, not visible yet
        self.committed: list[Transaction] = []
        self._table: dict[int, Row] = {}  # visible versions
        self._base: tuple[int, dict[int, Row]] = (0, {})  # the same when so many had committed; never lost by a crash
        self._value = 0
        self.readers: set[int] = set()  # chunks that hold the table's lock

    # Called by writers.

    def begin(self) -> Transaction:
        transaction = Transaction(self._next_xid)
        self._next_xid += 1
        self.open[transaction.xid] = transaction
        return transaction

    def change(self, transaction: Transaction, kind: int, key: int, block: int) -> None:
        """Insert, update, change the key or delete, whichever is possible; nothing if the row is locked."""
        locked = self._locked(transaction)
        if key in locked or None in locked:
            return
        row = self._view(transaction).get(key)
        self._value += 1
        if row is None:
            op = Op(key, Row(block, self._value, self._value))
        elif kind == 0:
            op = Op(key, None)
        elif kind == 1:
            op = Op(key, Row(block, self._value, row.large), whole=False)
        elif kind == 2:
            op = Op(key, Row(block, self._value, self._value))
        else:
            other = (key + 1) % KEYS
            if other in locked or other in self._view(transaction):
                return
            op = Op(other, Row(block, self._value, row.large), old=key)
        transaction.ops.append(op)
        self.insert += 10

    def truncate(self, transaction: Transaction) -> None:
        if self._locked(transaction) or self.readers:
            return
        transaction.ops.append(Op(None))
        self.filenode += 1
        self.insert += 10

    def rewrite(self, shift: int) -> None:
        """Run VACUUM FULL: rows move to another file, and nothing is streamed."""
        if self.readers or any(one.ops for one in (*self.open.values(), *self.hidden)):
            return
        self._table = {key: Row((row.block + shift) % BLOCKS, row.small, row.large) for key, row in self._table.items()}
        self._base = (len(self.committed), dict(self._table))
        self.filenode += 1
        self.flushed = self.insert

    def join_publication(self) -> None:
        """Add the table to the publication; earlier changes of open transactions are never streamed."""
        for transaction in self.open.values():
            transaction.ops = [replace(op, published=False) for op in transaction.ops]

    def commit(self, transaction: Transaction) -> None:
        """Write the commit record; it can be streamed once it is flushed. Locks stay until it is visible."""
        del self.open[transaction.xid]
        transaction.commit, transaction.end = self.insert, self.insert + 10
        self.insert += 10
        self.committed.append(transaction)
        self.hidden.append(transaction)

    def show(self, index: int) -> None:
        """Make one more transaction visible, in any order."""
        transaction = self.hidden.pop(index % len(self.hidden))
        for op in transaction.ops:
            _apply(self._table, op)
        self._completed = max(self._completed, transaction.xid)

    def abort(self, transaction: Transaction) -> None:
        if any(op.key is None for op in transaction.ops):
            self.filenode += 1  # back to the old file; a number of its own is stricter
        del self.open[transaction.xid]
        self._completed = max(self._completed, transaction.xid)

    def crash(self) -> None:
        """Crash: lose what was not flushed, and reuse its ids."""
        self.insert = self.flushed
        lost = [one for one in self.committed if one.end > self.flushed]
        self.committed = [one for one in self.committed if one.end <= self.flushed]
        count, rows = self._base
        self._table = dict(rows)
        for one in self.committed[count:]:
            for op in one.ops:
                _apply(self._table, op)
        ids = [one.xid for one in lost] + list(self.open)
        self.open.clear()
        self.hidden.clear()
        self.readers.clear()
        if ids:
            self._next_xid = max(min(ids), max((one.xid for one in self.committed), default=0) + 1)
        self._completed = self._next_xid - 1
        if any(op.key is None for one in lost for op in one.ops):
            self.filenode += 1

    # Called by capture.

    def snapshot(self) -> PgSnapshot:
        running = {*self.open, *(one.xid for one in self.hidden)}
        return PgSnapshot(self._completed + 1, frozenset(xid for xid in running if xid <= self._completed))

    def lock_holders(self) -> list[int]:
        """Return the transaction ids in pg_locks."""
        return [*self.open, *(one.xid for one in self.hidden)]

    @property
    def readable(self) -> bool:
        """Whether a reader can lock the table; a TRUNCATE holds the lock until it is visible."""
        return all(op.key is not None for one in (*self.open.values(), *self.hidden) for op in one.ops)

    def rows(self) -> dict[int, Row]:
        """Return the rows that a snapshot taken now sees."""
        return dict(self._table)

    # Private.

    def _locked(self, but: Transaction) -> set[int | None]:
        others = [one for one in (*self.open.values(), *self.hidden) if one is not but]
        changes = [op for one in others for op in one.ops]
        return {op.key for op in changes} | {op.old for op in changes if op.old is not None}

    def _view(self, transaction: Transaction) -> dict[int, Row]:
        rows = dict(self._table)
        for op in transaction.ops:
            _apply(rows, op)
        return rows


def _apply(rows: dict[int, Row], op: Op) -> None:
    if op.key is None:
        rows.clear()
        return
    if op.old is not None:
        del rows[op.old]
    if op.row is None:
        del rows[op.key]
    else:
        rows[op.key] = op.row
