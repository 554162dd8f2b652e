"""What each key of a topic is to be, as far as the topic was read: external memory, as large as the topic.

In SQLite's private temporary database, as `cdc.verify.fold` has it. Deleted keys stay, with the record that said so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import xxhash

from cdc.progress.restore import LogRecord
from cdc.verify.fold import CACHE_KIB, IN_MAX
from sinks.contract import Change
from sinks.fold import by_key, change_of, merged

_SCHEMA: Final = """
create table latest (
    name blob primary key, key blob not null, topic_partition integer not null, at integer not null,
    row blob, kept text not null,
    schema_id text not null, epoch integer not null, lsn integer not null, ts_ms integer not null,
    xid integer, omitted text not null, seen integer not null default 0
) without rowid
"""
_STRANGE: Final = "create table strange (name text primary key, at integer) without rowid"
_COLUMNS: Final = "name, key, topic_partition, at, row, kept, schema_id, epoch, lsn, ts_ms, xid, omitted"
_PUT: Final = f"insert or replace into latest ({_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - ours


class _Source(msgspec.Struct, frozen=True):
    txId: int | None = None  # noqa: N815 - Debezium's name
    omitted: tuple[str, ...] = ()


class _Event(msgspec.Struct, frozen=True):
    source: _Source


class Known(NamedTuple):
    """A key.

    Attributes:
        xid: the transaction of its last event, 32 bits; None for a row of a snapshot.
        omitted: columns that capture left out of the row because it was too large.
    """

    change: Change
    xid: int | None
    omitted: tuple[str, ...] = ()


class Sample:
    """A random share of keys, the same in every store; `share` 1 is all of them."""

    def __init__(self, share: float = 1.0, seed: int = 0) -> None:
        self.share = share
        self.seed = seed
        self._below = int(share * (1 << 64))

    def has(self, key: bytes) -> bool:
        """Whether the key is in it."""
        return self.share >= 1.0 or xxhash.xxh3_64_intdigest(key, self.seed) < self._below


def _as_it_is(key: bytes) -> bytes:
    return key


class Latest:
    """One topic. Close it. `named` gives the name under which a key is asked for; no two keys have the same."""

    def __init__(self, topic: str, sample: Sample, named: Callable[[bytes], bytes] = _as_it_is) -> None:
        self.topic = topic
        self._sample = sample
        self._named = named
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("pragma journal_mode = off")
        self._db.execute(f"pragma cache_size = -{CACHE_KIB}")
        self._db.execute(_SCHEMA)
        self._db.execute(_STRANGE)
        self._db.execute("begin")

    def close(self) -> None:
        """Forget everything."""
        self._db.close()

    def take(self, batch: Iterable[LogRecord]) -> None:
        """The next records, in order per partition. Raises TopicMismatch for one that is none of ours."""
        named = ((self._named(key), records) for (_, _, key), records in by_key(batch).items())
        found = {name: records for name, records in named if self._sample.has(name)}
        before = self.get(list(found))
        put = [(name, known_after(records, before.get(name))) for name, records in found.items()]
        self._db.executemany(_PUT, [_row(name, known) for name, known in put])

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Known]:
        """What is known of these keys, dead ones too."""
        found: dict[bytes, Known] = {}
        for at in range(0, len(keys), IN_MAX):
            some = keys[at : at + IN_MAX]
            marks = ",".join("?" * len(some))
            query = f"select {_COLUMNS} from latest where name in ({marks})"  # noqa: S608 - marks only
            found.update((row[0], self._known(row)) for row in self._db.execute(query, some))
        return found

    def see(self, keys: Sequence[bytes]) -> None:
        """Note that the other side has these."""
        self._db.executemany("update latest set seen = 1 where name = ?", [(key,) for key in keys])

    def unseen(self, *, deleted: bool = False) -> Iterator[bytes]:
        """Live keys that the other side was not seen to have; with `deleted` those that were once, too."""
        live = "" if deleted else " and row is not null"
        for (key,) in self._db.execute(f"select name from latest where seen = 0{live}"):  # noqa: S608 - ours
            yield key

    def note(self, key: bytes, mark: int) -> None:
        """Put a key among those of a mark, above 1, however often; the newest mark counts."""
        self._db.execute("update latest set seen = ? where name = ?", (mark, key))

    def noted(self, mark: int) -> int:
        """How many keys have that mark."""
        (count,) = self._db.execute("select count(*) from latest where seen = ?", (mark,)).fetchone()
        return int(count)

    def add_strange(self, names: Iterable[tuple[str, int]]) -> None:
        """Remember names in the store, and their versions, of which it does not say whose they are."""
        self._db.executemany("insert or ignore into strange values (?, ?)", list(names))

    def explain(self, names: Iterable[str]) -> None:
        """These are names of keys of the topic."""
        self._db.executemany("delete from strange where name = ?", [(name,) for name in names])

    def strange(self) -> Iterator[tuple[str, int]]:
        """Names and versions that nobody has explained."""
        yield from self._db.execute("select name, at from strange order by name")

    def live_count(self) -> int:
        """Keys that are there."""
        (count,) = self._db.execute("select count(*) from latest where row is not null").fetchone()
        return int(count)

    def _known(self, row: tuple[Any, ...]) -> Known:
        _, key, partition, at, image, kept, schema_id, epoch, lsn, ts_ms, xid, omitted = row
        change = Change(self.topic, partition, at, key, image, _split(kept), schema_id, epoch, lsn, ts_ms)
        return Known(change, xid, _split(omitted))


def known_after(records: Sequence[LogRecord], before: Known | None) -> Known:
    """A key behind these records of it; `before` is what was known in front of them."""
    change = change_of(records)
    source = _source(records)
    if source is None:  # a tombstone alone belongs to the delete before it
        return Known(change, None if before is None else before.xid)
    if change.row is None or not change.kept or before is None or before.change.row is None:
        return Known(change, source.txId, source.omitted)
    unknown = before.change.kept
    row = merged(change.row, (column for column in change.kept if column not in unknown), before.change.row)
    kept = tuple(column for column in change.kept if column in unknown)
    omitted = {*source.omitted, *(column for column in change.kept if column in before.omitted)}
    return Known(change._replace(row=row, kept=kept), source.txId, tuple(sorted(omitted)))


def states_after(records: Sequence[LogRecord], before: Known | None) -> list[Known]:
    """The same, behind each of the records."""
    found: list[Known] = []
    for record in records:
        before = known_after([record], before)
        found.append(before)
    return found


def _source(records: Sequence[LogRecord]) -> _Source | None:
    """Of the last event."""
    values = (record[5] for record in reversed(records))
    value = next((value for value in values if value is not None), None)
    return None if value is None else msgspec.json.decode(value, type=_Event).source


def _row(name: bytes, known: Known) -> tuple[object, ...]:
    change = known.change
    place = (name, change.key, change.partition, change.offset, change.row, "\0".join(change.kept))
    event = (change.schema_id, change.epoch, change.commit_lsn, change.ts_ms)
    return (*place, *event, known.xid, "\0".join(known.omitted))


def _split(columns: str) -> tuple[str, ...]:
    return tuple(columns.split("\0")) if columns else ()
