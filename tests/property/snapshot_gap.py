"""Histories with a gap: an older epoch of the log, changes that were never streamed, and a repair with a sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from cdc.model.log_record import LogRecord
from cdc.model.snapshot_record import SnapshotRecord
from cdc.progress.restore import Partition
from cdc.publish.live_keys import StaleKeys
from snapshot.chunk import Chunk, ChunkSpec
from snapshot.log_writer import LogWriter
from snapshot.merger import Merger
from snapshot.sweep import Bounds, Sweep
from snapshot.sweep_set import Sweeps
from snapshot.window import TransactionKeys, Verdict
from tests.property.obligations import ONLY_GONE_DELETED, SNAPSHOT_ENDS, demand
from tests.property.snapshot_history import TABLE, Event, History, Kept, fold
from tests.property.snapshot_server import KEYS


class Topic:
    """See `cdc.progress.restore.TopicReader`: the events of a history as records, an offset each."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    def last_records(self, topic: str, *, keys: object = None) -> dict[bytes, tuple[int, bytes]]:
        raise NotImplementedError

    def end_offsets(self, topics: object) -> dict[Partition, tuple[int, int]]:
        return {(TABLE, 0): (0, len(self._events))}

    def read(
        self, assignments: Mapping[Partition, int], until: Mapping[Partition, int] | None = None
    ) -> Iterator[list[LogRecord]]:
        assert until is not None
        for offset in range(until[TABLE, 0]):
            key, values = self._events[offset]
            live = fold(self._events[:offset]) if key is None else (key,)
            yield [LogRecord(TABLE, 0, offset, 0, str(one).encode(), b"v" if values else None, None) for one in live]


class Swept(History):
    """A history with sweeps, which reads the topic as `snapshot.sweep_reader` does."""

    def __init__(
        self,
        first_xid: int,
        make: Callable[[], Merger],
        preamble: Sequence[int],
        *,
        reselect: bool = True,
        page: int = 2,
    ) -> None:
        self._pages: tuple[Sweep, int, Iterator[tuple[list[bytes], int]]] | None = None
        self._open_pages: AbstractContextManager[Iterator[tuple[list[bytes], int]]] | None = None
        self._found: tuple[list[bytes], int] | None = None
        self._page = page
        super().__init__(first_xid, make, preamble, reselect=reselect)

    def bounds(self, sweep: Sweep) -> Bounds:
        """Return the offsets up to which the topic is read."""
        assert sweep.until is not None
        return sweep.until

    def _start(self) -> None:
        super()._start()
        self._forget()

    def _forget(self) -> None:
        if self._open_pages is not None:
            self._open_pages.__exit__(None, None, None)
        self._pages = self._open_pages = self._found = None

    def _beside(self) -> None:
        """Run one step of `snapshot.sweep_reader`, or a commit, which a sweep needs to begin."""
        merger = self.merger
        sweep = merger.sweeps.due().get(TABLE)
        if sweep is None:
            self._commit()
        elif self._pages is None:
            self._begin_to_read(sweep)
        elif self._pages[:2] != (sweep, sweep.turn):
            self._forget()
        elif self._found is not None:
            sweep.offer(*self._found)
            self.seen["offered"] += len(self._found[0])
            self._found = None
        elif sweep.lost:
            self.seen["lost sweep"] += 1
            merger.sweeps.begin_again(TABLE, sweep)
        elif not sweep.keys and not sweep.busy:
            self._found = next(self._pages[2], None)
            if self._found is None and not sweep.lost:
                merger.sweeps.end(TABLE, sweep)

    def _begin_to_read(self, sweep: Sweep) -> None:
        def streamed() -> set[bytes] | None:
            if not self.merger.sweeps.going_on(TABLE, sweep):
                return None
            noted = sweep.take_noted()
            self.seen["streamed"] += bool(noted)
            return noted

        @contextmanager
        def reader() -> Iterator[Topic]:
            yield Topic(self.kept.events)

        stale = StaleKeys(reader, at_once=self._page)
        self._open_pages = stale.of(TABLE, sweep.marks, self.bounds(sweep), streamed, sweep.among)
        self._pages = (sweep, sweep.turn, self._open_pages.__enter__())


class Repaired(Swept):
    """A history that starts with a log of the table before the gap, and with deleted keys."""

    def __init__(
        self,
        first_xid: int,
        make: Callable[[], Merger],
        preamble: Sequence[int],
        gap: Sequence[int],
        *,
        reselect: bool = True,
        page: int = 2,
    ) -> None:
        self._mark = 0
        super().__init__(first_xid, make, preamble, reselect=reselect, page=page)
        server = self.server
        while server.hidden:
            server.show(0)
        rows = server.rows()
        events: list[Event] = [(key, (row.small, row.large)) for key, row in rows.items()]
        events += [event for key in range(KEYS) if key not in rows for event in ((key, (0, 0)), (key, None))]
        for step in gap:
            self._write(step)
            self._delete(step // 7 % KEYS)
        for transaction in list(server.open.values()):  # creating a slot waits for them
            server.commit(transaction)
        server.flushed = server.insert
        self._mark = len(events)
        begun = SnapshotRecord(
            table=TABLE, relation=1, state="running", begun=True, asked=True, sweep=(self._mark,), number=2
        )
        self.kept = Kept(events, server.insert, {TABLE: begun})
        self._start()

    def _delete(self, key: int) -> None:
        transaction = self.server.begin()
        if key in self.server.rows():
            self.server.change(transaction, 0, key, 0)
        self.server.commit(transaction)

    def go_on(self, count: int) -> None:
        """Run some steps of everything except the writers."""
        for _ in range(count):
            self._stream()
            self._coordinate()
            self._open()
            self._read(0)
            self._join(100)
            self._beside()
            self.server.flushed = self.server.insert
            while self.server.hidden:
                self.server.show(0)
            self.server.abort(self.server.begin())

    def run(self, steps: Sequence[int]) -> None:
        for step in steps:
            super().run([step])
            if step % 3 == 0:
                self._beside()

    def finish(self) -> None:
        super().finish()
        demand(SNAPSHOT_ENDS, self.kept.records[TABLE].sweep == (), "a sweep is left")
        demand(SNAPSHOT_ENDS, self.merger.states[TABLE] == "complete", self.merger.states[TABLE])

    def _start(self) -> None:
        super()._start()
        self._said = fold(self._events[self._mark :], deleted=True)  # records from before the gap are not reliable

    def _remove(self, spec: ChunkSpec, absent: Sequence[bytes]) -> int:
        events = [*self._events, *self._buffer]
        for key in map(int, absent):
            last = max(at for at, event in enumerate(events) if event[0] in {key, None})
            demand(ONLY_GONE_DELETED, last < self._mark, f"key {key} has a record of this epoch")
            demand(ONLY_GONE_DELETED, key in fold(events), f"key {key} is not in the log")
            self._say((key, None))
        return len(absent)


class NotSwept(Repaired):
    """Ends every sweep without searching for keys that were deleted in the gap."""

    def _beside(self) -> None:
        sweep = self.merger.sweeps.due().get(TABLE)
        if sweep is None:
            self._commit()
        else:
            self.merger.sweeps.end(TABLE, sweep)


class OldRecordSwept(Repaired):
    """Treats every key with an older record as a candidate, even if it has a newer one."""

    def bounds(self, sweep: Sweep) -> Bounds:
        return {(TABLE, 0): self._mark}


class _NeverLost(Sweeps):
    def streamed(self, name: str, touch: TransactionKeys) -> None:
        sweep = self._of(name)
        if sweep is not None and sweep.following:
            sweep.streamed(touch.keys.get(name, ()))


class _StreamIgnored(Sweeps):
    def streamed(self, name: str, touch: TransactionKeys) -> None:
        pass

    def judge(self, chunk: Chunk, verdict: Verdict, place: LogWriter) -> tuple[int, int]:
        return super().judge(chunk, Verdict(), place)


class NeverLost(Merger):
    """Does not read the topic again after a TRUNCATE or a transaction with unknown keys."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sweeps.__class__ = _NeverLost


class StreamIgnored(Merger):
    """Ignores transactions that are streamed during a sweep, also for the chunks of the sweep."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sweeps.__class__ = _StreamIgnored
