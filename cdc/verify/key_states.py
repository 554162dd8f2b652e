"""Keeps the expected state of each key of a topic on disk, up to the offsets read; as large as the topic.

`cdc.verify.verify_rule` computes the states. They are kept in a private temporary SQLite database, as in
`cdc.verify.topic_rows`. Deleted keys stay, with the record that deleted them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import xxhash

from cdc.model.log_record import LogRecord
from cdc.verify.log_events import JSON, Format, checked_key
from cdc.verify.topic_rows import CACHE_KIB, IN_MAX
from cdc.verify.verify_rule import Event, State, after
from sinks.contract import Change

_SCHEMA: Final = """
create table latest (
    name blob primary key, key blob not null, topic_partition integer not null, at integer not null,
    row blob, kept text not null,
    schema_id text not null, epoch integer not null, lsn integer not null, ts_ms integer not null,
    xid integer, read integer not null, absent text not null, seen integer not null default 0
) without rowid
"""
_UNKNOWN: Final = "create table unknown_name (name text primary key, at integer) without rowid"
_COLUMNS: Final = "name, key, topic_partition, at, row, kept, schema_id, epoch, lsn, ts_ms, xid, read, absent"
_PUT: Final = f"insert or replace into latest ({_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - ours


class KeyState(NamedTuple):
    """The expected state of a key.

    Attributes:
        change: what a store must have. `kept` has the columns that cannot be compared (`State.unsure`).
        xid: the transaction of its last event, 32 bits; None when the log does not contain it.
        absent: columns that the row lacks although the table has them.
        read: whether its last event is a row that was read from the table, not a change.
    """

    change: Change
    xid: int | None
    absent: tuple[str, ...] = ()
    read: bool = False


class Sample:
    """A random share of keys, the same in every store; `share` 1 means all keys."""

    def __init__(self, share: float = 1.0, seed: int = 0) -> None:
        self.share = share
        self.seed = seed
        self._below = int(share * (1 << 64))

    def has(self, key: bytes) -> bool:
        """Return whether the sample contains the key."""
        return self.share >= 1.0 or xxhash.xxh3_64_intdigest(key, self.seed) < self._below


class KeyStates:
    """The states of one topic's keys. Call `close`. `named` maps a key to the name for look-ups, injectively."""

    def __init__(
        self, topic: str, sample: Sample, named: Callable[[bytes], bytes] | None = None, form: Format = JSON
    ) -> None:
        self.topic = topic
        self._form = form
        self._sample = sample
        self._named = named or form.key
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("pragma journal_mode = off")
        self._db.execute(f"pragma cache_size = -{CACHE_KIB}")
        self._db.execute(_SCHEMA)
        self._db.execute(_UNKNOWN)
        self._db.execute("begin")

    def close(self) -> None:
        """Delete everything."""
        self._db.close()

    def take(self, batch: Iterable[LogRecord]) -> None:
        """Apply the next records, in order per partition. Raises TopicMismatch for a record of another program."""
        named = ((self._named(key), records) for key, records in records_by_key(batch).items())
        found = {name: records for name, records in named if self._sample.has(name)}
        before = self.get(list(found))
        put = [(name, self.states(records, before.get(name))[-1]) for name, records in found.items()]
        self._db.executemany(_PUT, [_row(name, known) for name, known in put])

    def states(self, records: Sequence[LogRecord], before: KeyState | None) -> list[KeyState]:
        """Return the states of a key after each of its records; `before` is its state before them."""
        return states_after(records, before, self._form)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, KeyState]:
        """Return the states of these keys, deleted ones included."""
        found: dict[bytes, KeyState] = {}
        for at in range(0, len(keys), IN_MAX):
            some = keys[at : at + IN_MAX]
            marks = ",".join("?" * len(some))
            query = f"select {_COLUMNS} from latest where name in ({marks})"  # noqa: S608 - marks only
            found.update((row[0], self._known(row)) for row in self._db.execute(query, some))
        return found

    def mark_seen(self, keys: Sequence[bytes]) -> None:
        """Mark keys that the other side has."""
        self._db.executemany("update latest set seen = 1 where name = ?", [(key,) for key in keys])

    def unseen(self, *, deleted: bool = False) -> Iterator[bytes]:
        """Yield live keys that were not marked by `mark_seen`; with `deleted` also deleted ones."""
        live = "" if deleted else " and row is not null"
        for (key,) in self._db.execute(f"select name from latest where seen = 0{live}"):  # noqa: S608 - ours
            yield key

    def mark(self, key: bytes, mark: int) -> None:
        """Mark a key with a number above 1; the latest mark counts."""
        self._db.execute("update latest set seen = ? where name = ?", (mark, key))

    def marked_count(self, mark: int) -> int:
        """Return the number of keys with that mark."""
        (count,) = self._db.execute("select count(*) from latest where seen = ?", (mark,)).fetchone()
        return int(count)

    def add_unknown_names(self, names: Iterable[tuple[str, int]]) -> None:
        """Add names in the store, with their versions, whose key the store does not tell."""
        self._db.executemany("insert or ignore into unknown_name values (?, ?)", list(names))

    def remove_names(self, names: Iterable[str]) -> None:
        """Remove names that belong to keys of the topic."""
        self._db.executemany("delete from unknown_name where name = ?", [(name,) for name in names])

    def unknown_names(self) -> Iterator[tuple[str, int]]:
        """Yield the remaining names and versions."""
        yield from self._db.execute("select name, at from unknown_name order by name")

    def live_count(self) -> int:
        """Return the number of live keys."""
        (count,) = self._db.execute("select count(*) from latest where row is not null").fetchone()
        return int(count)

    def _known(self, row: tuple[Any, ...]) -> KeyState:
        _, key, partition, at, image, kept, schema_id, epoch, lsn, ts_ms, xid, read, absent = row
        change = Change(self.topic, partition, at, key, image, _split(kept), schema_id, epoch, lsn, ts_ms)
        return KeyState(change, xid, _split(absent), bool(read))


def states_after(records: Sequence[LogRecord], before: KeyState | None, form: Format = JSON) -> list[KeyState]:
    """Return the states of a key after each of its records; `before` is its state before them."""
    found: list[KeyState] = []
    for record in records:
        before = _known_after(record, form.event(record), before)
        found.append(before)
    return found


def records_by_key(batch: Iterable[LogRecord]) -> dict[bytes, list[LogRecord]]:
    """Return the records of each key of one topic, in order. Raises TopicMismatch for a record without a key."""
    found: dict[bytes, list[LogRecord]] = {}
    for record in batch:
        found.setdefault(checked_key(record), []).append(record)
    return found


def _known_after(record: LogRecord, event: Event, before: KeyState | None) -> KeyState:
    then = None if before is None else State(before.change.row, before.change.kept, before.absent)
    row, unsure, absent = after(event, then)
    identity = (record.topic, record.partition, record.offset, checked_key(record))
    change = Change(*identity, row, unsure, event.schema_id, event.epoch, event.commit_lsn, event.ts_ms)
    if not event.op and before is not None and before.change.row is None:
        return KeyState(change, before.xid, (), before.read)  # the tombstone of the delete before it
    return KeyState(change, event.xid, absent, event.op == "r")


def _row(name: bytes, known: KeyState) -> tuple[object, ...]:
    change = known.change
    place = (name, change.key, change.partition, change.offset, change.row, "\0".join(change.kept))
    event = (change.schema_id, change.epoch, change.commit_lsn, change.ts_ms)
    return (*place, *event, known.xid, known.read, "\0".join(known.absent))


def _split(columns: str) -> tuple[str, ...]:
    return tuple(columns.split("\0")) if columns else ()
