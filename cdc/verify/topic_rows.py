"""Collects the rows of one topic: the last row of each key, or the count of each row for a table without a key.

The rows are kept in a private temporary SQLite database, which is in memory while it is small and in a file otherwise,
so the size of a table does not matter. Knows nothing about PostgreSQL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from cdc.cutindex.index_reader import PartitionCount
from cdc.kafka.log_reader import LogReader
from cdc.model.change_records import Record
from cdc.verify import verify_rule
from cdc.verify.partition_check import Event, PartitionCheck
from cdc.verify.row_json import canonical, row_of
from cdc.verify.verified_cut import CutIndex
from cdc.verify.verify_report import Countable, LogFaults
from cdc.verify.verify_rule import State, after

CACHE_KIB: Final = 64 << 10  # cache of SQLite: half a million rows of 100 bytes fit before it uses a file
IN_MAX: Final = 500  # keys of one `in (…)`; SQLite takes 32,766 parameters, long lists gain nothing

Live: TypeAlias = tuple[bytes, tuple[str, ...]]
"""A row as JSON, and the columns that capture left out of it."""

_SCHEMA: Final = """
create table live (key blob primary key, row blob not null, omitted text not null) without rowid;
create table bag (row blob primary key, count integer not null) without rowid;
"""
_PUT: Final = "insert or replace into live values (?, ?, ?)"
_COUNT: Final = "insert into bag values (?, ?) on conflict do update set count = count + excluded.count"


class RowStore:
    """Rows by key (`live`), and counts of rows (`bag`)."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("pragma journal_mode = off")
        self._db.execute(f"pragma cache_size = -{CACHE_KIB}")
        self._db.executescript(_SCHEMA)
        self._db.execute("begin")  # without it every statement would be written out on its own

    def close(self) -> None:
        """Delete everything."""
        self._db.close()

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Live]:
        """Return the rows of at most IN_MAX keys."""
        marks = ",".join("?" * len(keys))
        found = self._db.execute(f"select key, row, omitted from live where key in ({marks})", keys)  # noqa: S608
        return {key: (row, tuple(omitted.split("\0")) if omitted else ()) for key, row, omitted in found}

    def put(self, rows: Mapping[bytes, Live]) -> None:
        """Set the rows of keys."""
        self._db.executemany(_PUT, [(key, row, "\0".join(omitted)) for key, (row, omitted) in rows.items()])

    def drop(self, keys: Sequence[bytes]) -> None:
        """Delete keys, if they exist."""
        for at in range(0, len(keys), IN_MAX):
            some = keys[at : at + IN_MAX]
            self._db.execute(f"delete from live where key in ({','.join('?' * len(some))})", some)  # noqa: S608

    def rest(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and row of all remaining keys, in no particular order."""
        yield from self._db.execute("select key, row from live")

    def count(self, changes: Mapping[bytes, int]) -> None:
        """Add to the counts of rows."""
        self._db.executemany(_COUNT, list(changes.items()))

    def counted(self) -> Iterator[tuple[bytes, int]]:
        """Yield rows with their counts, except those with count 0."""
        yield from self._db.execute("select row, count from bag where count <> 0")

    def sizes(self) -> tuple[int, int]:
        """Return the number of keys and the sum of all counts."""
        found: tuple[int, int] = self._db.execute(
            "select (select count(*) from live), (select coalesce(sum(count), 0) from bag)"
        ).fetchone()
        return found


class TopicFold:
    """Reads one topic from its first record to the cut, checks it, and collects its rows. Call `close`."""

    def __init__(self, topic: str, *, keyed: bool) -> None:
        self.topic = topic
        self.keyed = keyed
        self.store = RowStore()
        self.record_count = 0
        self.tombstone_count = 0
        self.countable: Countable = "exact"
        self.faults = LogFaults()

    def read(self, reader: LogReader, index: CutIndex, *, may_be_compacted: bool) -> Iterator[int]:
        """Read the topic; yields the number of records read so far. Exhaust the iterator."""
        accounts = index.topic(self.topic)
        checks = {at: PartitionCheck(at, len(accounts), keyed=self.keyed) for at in accounts}
        ends = {(self.topic, at): account.next_offset for at, account in accounts.items()}
        low = {partition: first for partition, (first, _) in reader.end_offsets([self.topic]).items()}
        starts = {partition: low.get(partition, 0) for partition in ends}
        for batch in reader.read(starts, ends):
            parts: dict[int, list[Record]] = {}
            for record in batch:
                parts.setdefault(record.partition, []).append((record.key, record.value, record.headers))
            for partition, records in parts.items():
                self._take(checks[partition], records)
            yield sum(check.count for check in checks.values())
        for at, check in checks.items():
            # Only retention moves the first offset, and only topics without compaction have retention.
            since_start = not index.since_lsn and (self.keyed or starts[(self.topic, at)] == 0)
            self._settle(check, accounts[at], since_start=since_start, may_be_compacted=may_be_compacted)

    def close(self) -> None:
        """Delete the rows."""
        self.store.close()

    def _take(self, check: PartitionCheck, records: list[Record]) -> None:
        """Add the records of one partition in one batch."""
        check.count_in(records)
        latest: dict[bytes, Live | None] = {}
        bag: dict[bytes, int] = {}
        for key, value, _ in records:
            event = check.judge(key, value)
            if key is None:
                if event is not None:
                    _count(bag, event)
            elif value is None or (event is not None and event.op == "d"):
                latest[key] = None
            elif event is not None:
                latest[key] = self._row(event, key, latest)
        self._write(latest, bag)

    def _row(self, event: Event, key: bytes, latest: Mapping[bytes, Live | None]) -> Live:
        """Return the row after the event, and the columns that cannot be compared; see `cdc.verify.verify_rule`."""
        source, row = event.source, bytes(event.after)
        before = None
        if source.unchanged:
            known = latest[key] if key in latest else self.store.get([_key(key)]).get(_key(key))
            before = State(known[0], (), known[1]) if known is not None else None
        state = after(verify_rule.Event(event.op, row, source.unchanged, source.omitted), before)
        return state.row or row, (*state.absent, *state.unsure)

    def _write(self, latest: Mapping[bytes, Live | None], bag: Mapping[bytes, int]) -> None:
        keys = {key: _key(key) for key in latest}
        self.store.drop([keys[key] for key, row in latest.items() if row is None])
        self.store.put({keys[key]: row for key, row in latest.items() if row is not None})
        if bag:
            self.store.count(bag)

    def _settle(
        self, check: PartitionCheck, account: PartitionCount, *, since_start: bool, may_be_compacted: bool
    ) -> None:
        countable = check.settle(account, since_start=since_start, may_be_compacted=may_be_compacted)
        if countable != "exact":
            self.countable = countable
        self.faults.add(check.faults)
        self.record_count += check.count
        self.tombstone_count += check.tombstone_count


def _key(key: bytes) -> bytes:
    """Return a key in normal form; the key of another program stays unchanged and shows as an extra row."""
    try:
        return canonical(row_of(key))
    except msgspec.MsgspecError:
        return key


def _count(bag: dict[bytes, int], event: Event) -> None:
    """Count the rows that an event removes and adds."""
    for image, change in ((event.before, -1), (event.after, 1)):
        if bytes(image) != b"null":
            row = canonical(row_of(bytes(image)))
            bag[row] = bag.get(row, 0) + change
