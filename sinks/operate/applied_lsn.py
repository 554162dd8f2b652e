"""Finds the LSN up to which a sink that applies one key at a time has applied everything. Reads Kafka only.

Each cut in the cut index gives, per partition, the offset below which the partition holds exactly the transactions up
to an LSN. The sink's consumer group gives the applied offset of each partition. The sink is at the newest cut that ends
between two source transactions and whose offsets are all committed. So no process of the sink needs to be queried.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice
from operator import or_
from typing import Final, NamedTuple, Protocol

from msgspec import structs

from cdc.cutindex.index_reader import bounds, counts_of, decoded, from_full_map
from cdc.errors import TailraceError, TopicMismatch
from cdc.lsn import Lsn
from cdc.model.log_record import LogRecord
from cdc.model.progress_record import Cut, SchemaRecord
from cdc.model.topic_names import cuts_topic, schema_topic, view_cuts_topic, view_schema_topic
from cdc.patterns import matches
from cdc.progress.record_format import decode_schema
from cdc.progress.restore import Partition, TopicReader
from sinks.operate.unread_tables import NONE, Unread, UnreadTables

PENDING_MAX: Final = 20_000
"""Cuts read ahead of the sink: a minute of load, 10 MB. More are read when the sink has caught up."""

_ASKED: Final = 512  # cuts whose partitions are looked up at a time
_BEHIND: Final = "behind"  # state of a published view, `sinks.warehouse.topics.view_positions.BEHIND`
_LEVEL: Final = 500  # a read that returns fewer records has reached the end of the index


class Reached(NamedTuple):
    """A cut that the sink has applied: its offset in the cut index, its LSN, and the tables that snapshots read."""

    cut: int
    end_lsn: Lsn
    unread: Unread = NONE


class _Waiting(NamedTuple):
    reached: Reached | None  # None inside a source transaction
    needs: Mapping[Partition, int]


class CutReader(TopicReader, Protocol):
    """The Kafka reader that follows the index; `cdc.kafka.log_reader.LogReader` implements it."""

    def read(
        self, assignments: Mapping[Partition, int], until: Mapping[Partition, int] | None = None
    ) -> Generator[list[LogRecord], None, None]:
        """As `TopicReader`; without `until` it never ends, and yields an empty batch when there are no records."""

    def close(self) -> None:
        """End the connections."""


class Offsets(Protocol):
    """The committed offsets of a group; `cdc.kafka.group_offsets.GroupOffsets` implements it."""

    def committed(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the committed offset of each partition; a partition without one is left out."""

    def close(self) -> None:
        """End the connections."""


class PendingCuts:
    """The cuts that a sink has not reached yet, oldest first, and the newest that it has reached. Pure.

    Offsets of a partition only grow from cut to cut, so each offset is checked for the first cut that has it. Cuts of
    an earlier epoch do not count as reached: a restored database has lower LSNs.

    Args:
        wanted: whether the sink reads a topic.
        held: whether it has a table.
    """

    def __init__(self, wanted: Callable[[str], bool], held: Callable[[str], bool]) -> None:
        self.reached: Reached | None = None
        self._unread = UnreadTables(held)
        self._wanted = wanted
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, cut: Cut) -> None:
        """Add the next cut of the index. The first one must be a full map."""
        if self._unread.add(cut.epoch, cut.end_lsn, cut.tables, whole=cut.full):
            self.reached = None
            self._waiting = deque(one._replace(reached=None) for one in self._waiting)
        reached = Reached(offset, Lsn(cut.end_lsn), self._unread.now) if cut.next_ordinal == 0 else None
        counts = ((at, count.next_offset) for at, count in counts_of(cut).items())
        needs = {at: end for at, end in counts if end > 0 and self._wanted(at[0])}
        if needs or (reached is None and not self._waiting):
            self._waiting.append(_Waiting(reached, needs))
        elif self._waiting:
            # It needs no more than the previous cut.
            before = self._waiting.pop()
            self._waiting.append(_Waiting(reached or before.reached, before.needs))
        else:
            self.reached = reached

    def asked(self) -> set[Partition]:
        """Return the partitions whose committed offsets decide which cut is reached next."""
        return {place for waiting in islice(self._waiting, _ASKED) for place in waiting.needs}

    def settle(self, committed: Mapping[Partition, int]) -> bool:
        """Drop the cuts whose offsets are all committed; return whether another call might drop more."""
        count = 0
        while self._waiting and count < _ASKED:
            reached, needs = self._waiting[0]
            if any(committed.get(place, 0) < end for place, end in needs.items()):
                return False
            self._waiting.popleft()
            self.reached = reached or self.reached
            count += 1
        return bool(self._waiting)


class AppliedCutFinder:
    """Returns the newest cut that a sink has applied, each time it is called. Thread-safe; connects at the first call.

    With `lake`, it uses the cut index of the views that this lake publishes.
    Raises BrokerUnreachable, BrokerRefused, TopicMismatch; the next call reconnects.
    """

    def __init__(
        self,
        name: str,
        tables: Sequence[str],
        reader: Callable[[], CutReader],
        offsets: Callable[[], Offsets],
        *,
        lake: str = "",
    ) -> None:
        self._topic = (view_cuts_topic(name, lake) if lake else cuts_topic(name), 0)
        self._schemas = view_schema_topic(name, lake) if lake else schema_topic(name)
        self._patterns = tables
        self._make = (reader, offsets)
        self._reader: CutReader | None = None
        self._offsets: Offsets | None = None
        self._cuts = PendingCuts(self._wants, self._holds)
        self._lock = threading.Lock()
        self._batches: Iterator[list[LogRecord]] | None = None
        self._tables: dict[str, bool] = {}

    def __call__(self) -> Reached | None:
        """Return the newest cut that the sink has applied; None when the sink is further behind than the cuts read."""
        with self._lock:
            try:
                self._follow()
                if self._offsets is None:
                    self._offsets = self._make[1]()
                while len(self._cuts) and self._cuts.settle(self._offsets.committed(self._cuts.asked())):
                    pass
            except TailraceError:
                self._close()
                raise
            return self._cuts.reached

    def topics(self) -> list[str]:
        """Return the topics of the sink that were seen in the index so far."""
        return sorted(topic for topic, wanted in self._tables.items() if wanted)

    def close(self) -> None:
        """End the connections. May be called twice; the next call reconnects."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if isinstance(self._batches, Generator):
            self._batches.close()
        for one in (self._reader, self._offsets):
            if one is not None:
                one.close()
        self._reader = self._offsets = self._batches = None
        self._cuts, self._tables = PendingCuts(self._wants, self._holds), {}

    def _follow(self) -> None:
        """Read new records of the index, up to PENDING_MAX cuts."""
        if self._reader is None:
            self._reader = self._make[0]()
        if self._batches is None:
            start = self._begin(self._reader)
            if start is None:
                return
            self._batches = self._reader.read({self._topic: start})
        while len(self._cuts) < PENDING_MAX:
            batch = next(self._batches)
            for one in decoded(batch):
                self._cuts.add(one.offset, self._judged(one.cut))
            if len(batch) < _LEVEL:
                return

    def _judged(self, cut: Cut) -> Cut:
        """Do not count a cut for waits if it left a view of this sink behind."""
        late = any(state == _BEHIND and self._holds(table) for table, state in cut.tables.items())
        return structs.replace(cut, next_ordinal=max(cut.next_ordinal, 1)) if late else cut

    def _begin(self, reader: TopicReader) -> int | None:
        """Return the offset of the newest full map, if there is one; earlier cuts are not needed."""
        cuts = from_full_map(reader, self._topic[0], *bounds(reader, self._topic[0]))
        return cuts[0].offset if cuts else None

    def _holds(self, table: str) -> bool:
        return matches(table, self._patterns)

    def _wants(self, topic: str) -> bool:
        if topic not in self._tables:
            reader = self._make[0]()  # the other reader is in the middle of the index
            try:
                for of, record in _newest_schemas(reader, self._schemas).items():
                    self._tables[of] = bool(record.key) and matches(record.table, self._patterns)
            finally:
                reader.close()
        return self._tables.setdefault(topic, False)


def least(reaches: Sequence[Callable[[], Reached | None]]) -> Reached | None:
    """Of several cut indices, return the position the sink is furthest behind at; None: unknown.

    It has the unread tables of all indices.
    An index that does not exist yet, because a lake has published nothing, counts as not reached.
    """
    found: list[Reached] = []
    for reach in reaches:
        try:
            reached = reach()
        except TopicMismatch:
            if len(reaches) == 1:
                raise
            return None
        if reached is None:
            return None
        found.append(reached)
    if not found:
        return None
    unread = reduce(or_, (one.unread for one in found))
    return min(found, key=lambda one: one.end_lsn)._replace(unread=unread)


def _newest_schemas(reader: TopicReader, topic: str) -> dict[str, SchemaRecord]:
    """Return the newest schema record of each topic."""
    newest: dict[str, tuple[int, SchemaRecord]] = {}
    for offset, value in reader.last_records(topic).values():
        record = decode_schema(value, topic)
        if offset >= newest.get(record.topic, (-1, record))[0]:
            newest[record.topic] = (offset, record)
    return {of: record for of, (_, record) in newest.items()}
