"""The keys a compacted topic has, told by the topic itself and kept on disk meanwhile.

Read committed from its beginning to the last record we committed: a record with a value makes its key live, a
tombstone ends it. The set is a table of a temporary SQLite database, which goes to disk when it outgrows its cache, so
memory does not depend on its size, and which the system deletes with the process, however that ends.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Final

from cdc.errors import SpoolFailed
from cdc.progress.restore import TopicReader
from cdc.publish.ledger import Ledger

_KEYS_AT_ONCE: Final = 2_000
_CACHE_KIB: Final = 16_384
_SETTINGS: Final = (
    "pragma journal_mode = off",
    f"pragma cache_size = -{_CACHE_KIB}",
    "create table live (partition int, key blob, primary key (partition, key)) without rowid",
)


class SpooledKeys:
    """See `cdc.contracts.LiveKeys`.

    Args:
        reader: makes a reader of the log.
        ledger: knows how far our records reach.
    """

    def __init__(self, reader: Callable[[], AbstractContextManager[TopicReader]], ledger: Ledger) -> None:
        self._reader = reader
        self._ledger = ledger

    @contextmanager
    def of(self, topic: str) -> Iterator[Iterator[tuple[int, list[bytes]]]]:
        """See `cdc.contracts.LiveKeys.of`."""
        with _spool(topic) as spool:
            self._fill(spool, topic)
            yield _chunks(spool)

    def _fill(self, spool: sqlite3.Connection, topic: str) -> None:
        ends = self._ledger.ends(topic)
        with self._reader() as reader:
            lows = {at: low for at, (low, _) in reader.end_offsets([topic]).items()}
            for batch in reader.read({at: lows[at] for at in ends}, ends):
                newest = {(partition, key): value is not None for _, partition, _, _, key, value, _ in batch if key}
                spool.execute("begin")
                spool.executemany("insert or ignore into live values (?, ?)", (at for at in newest if newest[at]))
                dead = (at for at in newest if not newest[at])
                spool.executemany("delete from live where partition = ? and key = ?", dead)
                spool.execute("commit")


@contextmanager
def _spool(topic: str) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect("", isolation_level=None)) as spool:
            for statement in _SETTINGS:
                spool.execute(statement)
            yield spool
    except sqlite3.Error as error:
        raise SpoolFailed(
            f"the keys of {topic} that a TRUNCATE removes cannot be kept in the temporary folder: {error}",
            hint="free space there, or have TMPDIR name another one; a hundred bytes or so are needed for each key",
            command=f"df -h {tempfile.gettempdir()}",
            topic=topic,
        ) from error


def _chunks(spool: sqlite3.Connection) -> Iterator[tuple[int, list[bytes]]]:
    partitions = [index for (index,) in spool.execute("select distinct partition from live order by partition")]
    for index in partitions:
        found = spool.execute("select key from live where partition = ? order by key", (index,))
        while rows := found.fetchmany(_KEYS_AT_ONCE):
            yield index, [key for (key,) in rows]
