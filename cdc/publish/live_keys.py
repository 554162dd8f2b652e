"""Finds the live keys of a compacted topic by reading it into a temporary SQLite database.

A topic is read (committed records only) from its beginning to the last record that was committed here. A record with a
value makes its key live, a tombstone removes it. The database goes to disk when it outgrows its cache, so memory does
not depend on the number of keys. The operating system deletes it with the process.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Final

from cdc.encode.partitioner import partition_of
from cdc.errors import SpoolFailed
from cdc.model.log_record import LogRecord
from cdc.progress.restore import TopicReader
from cdc.publish.ledger import Ledger, Partition

_KEYS_AT_ONCE: Final = 2_000
_DELETE: Final = "delete from live where partition = ? and key = ?"
_CACHE_KIB: Final = 16_384
_SETTINGS: Final = (
    "pragma journal_mode = off",
    f"pragma cache_size = -{_CACHE_KIB}",
    "create table live (partition int, key blob, primary key (partition, key)) without rowid",
    "create table streamed (partition int, key blob, primary key (partition, key)) without rowid",
)


class SpooledKeys:
    """Implements `cdc.contracts.LiveKeys`.

    Args:
        reader: creates a reader of the log.
        ledger: knows the offsets of the last committed records.
    """

    def __init__(self, reader: Callable[[], AbstractContextManager[TopicReader]], ledger: Ledger) -> None:
        self._reader = reader
        self._ledger = ledger

    @contextmanager
    def of(self, topic: str) -> Iterator[Iterator[tuple[int, list[bytes]]]]:
        """See `cdc.contracts.LiveKeys.of`."""
        ends = self._ledger.ends(topic)
        with _spool(topic) as spool, self._reader() as reader:
            for batch in _batches(reader, topic, ends):
                _take(spool, batch, ends)
            yield _chunks(spool)


class StaleKeys:
    """Finds the live keys of a topic whose last record lies below given offsets. One thread.

    Args:
        reader: creates a reader of the log.
        at_once: the number of keys per page.
    """

    def __init__(self, reader: Callable[[], AbstractContextManager[TopicReader]], *, at_once: int) -> None:
        self._reader = reader
        self._at_once = at_once

    @contextmanager
    def of(
        self,
        topic: str,
        marks: Sequence[int],
        ends: Mapping[Partition, int],
        streamed: Callable[[], set[bytes] | None],
        among: frozenset[bytes] | None = None,
    ) -> Iterator[Iterator[tuple[list[bytes], int]]]:
        """Yield pages of stale keys, each with the number of keys that are left after it.

        A record at or above the mark of its partition makes its key fresh; without marks no record does. With `among`,
        only those keys are considered. The topic is read up to `ends`, one for each partition. For keys beyond that,
        `streamed` is called many times: it returns the keys streamed since its last call, or None to give up.

        Raises SpoolFailed, BrokerUnreachable, TopicMismatch.
        """
        bounds = {(topic, partition): mark for partition, mark in enumerate(marks)} or ends
        count = len(bounds)
        with _spool(topic) as spool, self._reader() as reader:
            for batch in _batches(reader, topic, ends):
                _take(spool, batch if among is None else [one for one in batch if one.key in among], bounds)
                keys = streamed()
                if keys is None:
                    yield iter(())
                    return
                _change(spool, "insert or ignore into streamed values (?, ?)", _placed(keys, count))
            spool.execute("delete from live where (partition, key) in (select partition, key from streamed)")
            yield _pages(spool, count, streamed, self._at_once)


@contextmanager
def _spool(topic: str) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect("", isolation_level=None)) as spool:
            for statement in _SETTINGS:
                spool.execute(statement)
            yield spool
    except sqlite3.Error as error:
        raise SpoolFailed(
            f"cannot store the keys of {topic} in the temporary folder: {error}",
            hint="free space there, or set TMPDIR to another folder; each key needs about 100 bytes",
            command=f"df -h {tempfile.gettempdir()}",
            topic=topic,
        ) from error


def _batches(reader: TopicReader, topic: str, ends: Mapping[Partition, int]) -> Iterator[list[LogRecord]]:
    lows = {at: low for at, (low, _) in reader.end_offsets([topic]).items()}
    yield from reader.read({at: lows[at] for at in ends}, ends)


def _take(spool: sqlite3.Connection, batch: Sequence[LogRecord], bounds: Mapping[Partition, int]) -> None:
    """Store the keys whose newest record has a value and lies below the bound of its partition; remove the others."""
    newest = {
        (partition, key): value is not None and offset < bounds[topic, partition]
        for topic, partition, offset, _, key, value, _ in batch
        if key
    }
    _change(spool, "insert or ignore into live values (?, ?)", [at for at in newest if newest[at]])
    _change(spool, _DELETE, [at for at in newest if not newest[at]])


def _change(spool: sqlite3.Connection, statement: str, keys: Sequence[tuple[int, bytes]]) -> None:
    if keys:
        spool.execute("begin")
        spool.executemany(statement, keys)
        spool.execute("commit")


def _placed(keys: Iterable[bytes], partition_count: int) -> list[tuple[int, bytes]]:
    return [(partition_of(key, partition_count), key) for key in keys]


def _pages(
    spool: sqlite3.Connection, partition_count: int, streamed: Callable[[], set[bytes] | None], at_once: int
) -> Iterator[tuple[list[bytes], int]]:
    (left,) = spool.execute("select count(*) from live").fetchone()
    at = (-1, b"")
    while (keys := streamed()) is not None:
        _change(spool, _DELETE, _placed(keys, partition_count))
        page = spool.execute(
            "select partition, key from live where (partition, key) > (?, ?) order by partition, key limit ?",
            (*at, at_once),
        ).fetchall()
        if not page:
            return
        at, left = page[-1], max(0, left - len(page))
        yield [key for _, key in page], left


def _chunks(spool: sqlite3.Connection) -> Iterator[tuple[int, list[bytes]]]:
    partitions = [index for (index,) in spool.execute("select distinct partition from live order by partition")]
    for index in partitions:
        found = spool.execute("select key from live where partition = ? order by key", (index,))
        while rows := found.fetchmany(_KEYS_AT_ONCE):
            yield index, [key for (key,) in rows]
