"""Rebuilds an index from the compacted topic beside the live one, and rolls back, without interrupting searches.

Both end with the same steps: (1) block writes to the live index, (2) apply the rest of the topic to the other index,
(3) refresh it, (4) store its positions, (5) move the alias in one step. A worker with changes for the old index meets
the block and continues with the new index. The old index and its positions are kept, so that `roll_back` only applies
newer records.

The process may be killed or frozen at any moment: see `sinks.search.index_closing`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from cdc.clock import Clock
from cdc.errors import SinkGap, SinkStale, SinkUnfit, SinkUnreachable
from cdc.model.progress_record import SchemaRecord
from cdc.progress.restore import RecordReader
from cdc.telemetry import log
from sinks.contract import Change, Outcome, Topic, TopicPartition, Verdict
from sinks.runner.key_fold import by_key, change_of
from sinks.search.index_closing import closed, reopen, reopen_abandoned
from sinks.search.index_positions import IndexPositions
from sinks.search.indices import Index, Indices
from sinks.search.target import IndexOptions, SearchTarget

NEAR_RECORDS: Final = 2_000
"""Records left at which the workers are paused to apply the rest."""
ROUNDS_MAX: Final = 10
"""Rounds of catching up while workers write; then the workers are paused anyway."""
PATIENCE_S: Final = 300.0
"""Time without progress, because OpenSearch is overloaded or does not answer, before the rebuild fails."""
_PAUSE_S: Final = 0.5
_ERRORS_SHOWN: Final = 3


class Schemas(Protocol):
    """The schemas of topics."""

    def all(self, topic: str) -> Sequence[SchemaRecord]:
        """Return all current schemas of a topic, newest first."""


class SwapResult(NamedTuple):
    """The result for a table.

    Attributes:
        now: the index behind the alias; `before` is the previous one, which is kept.
        records: number of records read for it.
        refused: number of records that it refused.
        positions: partition -> offset below which everything is applied.
    """

    table: str
    now: str
    before: str | None
    records: int
    refused: int
    positions: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildContext:
    """The parts and options of a rebuild or rollback.

    Attributes:
        paused: pauses the workers of the sink. Correctness does not depend on it, because writes to the old index are
            blocked; without the pause the workers would retry without success.
        accept_refused: continue although records were refused.
        parallel: concurrent requests; request_records: keys per request.
    """

    indices: Indices
    book: IndexPositions
    shape: IndexOptions
    reader: RecordReader
    schemas: Schemas
    paused: Callable[[], AbstractContextManager[object]]
    clock: Clock
    accept_refused: bool = False
    parallel: int = 4
    request_records: int = 2_000


def rebuild(shop: RebuildContext, topic: Topic) -> SwapResult:
    """Fill a new index and move the alias to it. After a crash at any moment it can be repeated.

    Raises SinkUnfit when records are refused, or the fields of a schema; SinkUnreachable, BrokerUnreachable.
    """
    indices = shop.indices
    shop.book.open()
    live = _live(shop, topic)
    there = indices.generations(topic)
    for left in (index for index in there if index != live and not index.meta.retired_ms):
        _remove(shop, left, topic)  # left by a killed rebuild
    number = max((index.meta.generation for index in there), default=0) + 1
    name = indices.name(topic, number)
    shop.book.forget(name, topic.partition_count)
    indices.create(topic, number, live=False)
    try:
        filling = _Filling(shop, topic, name)
        # It is not searched yet, and each refresh is expensive.
        indices.put_settings(name, {"refresh_interval": "-1"})
        filling.catch_up()
        swapped = _take_over(shop, topic, live, filling)
    except BaseException:
        if indices.is_behind(topic, name):
            raise
        indices.delete(name)
        raise
    for older in (index for index in there if index != live):
        _remove(shop, older, topic)
    return swapped


def roll_back(shop: RebuildContext, topic: Topic, *, remembers_ms: int) -> SwapResult:
    """Bring the previous index up to date and move the alias back to it. Repeating it undoes the rollback.

    Args:
        shop: the parts and options.
        topic: the topic of the table.
        remembers_ms: how long the topic keeps tombstones; an index that was retired for longer would miss deletes.

    Raises:
        SinkUnfit: there is no previous index, or it cannot take the fields that columns need now.
        SinkStale: it was retired for too long, or belongs to an earlier topic of the same name.
    """
    indices = shop.indices
    live = _live(shop, topic)
    resting = [index for index in indices.generations(topic) if index.meta.retired_ms and index != live]
    if not resting:
        raise SinkUnfit(
            f"there is no previous index of {topic.table}",
            hint="a rebuild keeps the index that it replaces, until the next rebuild",
            command=f"cdc sink rebuild {indices.sink} --table {topic.table}",
            table=topic.table,
        )
    old = resting[-1]
    rested_ms = shop.clock.wall_s() * 1000 - old.meta.retired_ms
    if old.meta.topic_id != topic.topic_id or rested_ms > remembers_ms:
        raise SinkStale(
            f"{old.name} cannot be brought up to date: "
            + ("it belongs to an earlier topic, which was recreated" if rested_ms <= remembers_ms else
               "the topic no longer has all deletes since it was replaced"),
            hint="rebuild instead",
            command=f"cdc sink rebuild {indices.sink} --table {topic.table}",
            table=topic.table,
        )  # fmt: skip
    indices.block(old.name, closed=False)
    try:
        filling = _Filling(shop, topic, old.name)
        filling.catch_up()
        return _take_over(shop, topic, live, filling)
    except BaseException:
        if not indices.is_behind(topic, old.name):
            indices.block(old.name, closed=True)
        raise


def _live(shop: RebuildContext, topic: Topic) -> Index | None:
    """Return the index behind the alias, and remove an abandoned block."""
    live = shop.indices.behind(topic)
    if live is None or not reopen_abandoned(shop.indices, topic, live, shop.clock):
        return live
    return shop.indices.behind(topic)


def _take_over(shop: RebuildContext, topic: Topic, live: Index | None, filling: _Filling) -> SwapResult:
    """Run the five steps in the docstring of the module.

    Writes are blocked before the end of the topic is read, so that everything the old index has lies below that end.
    """
    indices, name = shop.indices, filling.index
    with shop.paused(), _closed(shop, live, filling):
        filling.finish()
        filling.target.refresh([topic.topic])
        filling.target.attach(topic, name)  # the settings of a live index
        shop.book.note({(name, partition): at for (_, partition), at in filling.positions.items()})
        if live is not None:
            indices.mark(topic, live.name, retired_ms=max(1, int(shop.clock.wall_s() * 1000)))
        indices.swap(topic, live.name if live else None, name)
        indices.mark(topic, name, retired_ms=0, swap_until_ms=0)
        if live is not None:
            _close_again(indices, topic, live.name)
            filling.follow()
    log.get().info("search_index_swapped", table=topic.table, index=name, records=filling.records)
    return SwapResult(
        topic.table,
        name,
        live.name if live else None,
        filling.records,
        sum(filling.refused.values()),
        {partition: at for (_, partition), at in filling.positions.items()},
    )


@contextmanager
def _closed(shop: RebuildContext, live: Index | None, filling: _Filling) -> Iterator[None]:
    """Block writes to the live index; allow them again if it stays the live one."""
    if live is None:
        yield
        return
    try:
        with closed(shop.indices, filling.topic, live.name, shop.clock):
            yield
    except BaseException:
        if not shop.indices.is_behind(filling.topic, filling.index):
            reopen(shop.indices, filling.topic, live.name)
        raise


def _close_again(indices: Indices, topic: Topic, old: str) -> None:
    """Block the old index again: if this process was frozen before the swap, a worker removed the block and wrote."""
    indices.block(old, closed=True)
    indices.mark(topic, old, swap_until_ms=0)


def _remove(shop: RebuildContext, index: Index, topic: Topic) -> None:
    shop.indices.delete(index.name)
    shop.book.forget(index.name, topic.partition_count)


class _Filling:
    """Applies a topic to one index, from the index's positions on."""

    def __init__(self, shop: RebuildContext, topic: Topic, index: str) -> None:
        self.topic = topic
        self.index = index
        self.records = 0
        self.refused: dict[str, int] = {}
        self.target = SearchTarget(shop.indices, shop.book, shop.shape, shop.clock)
        self.target.attach(topic, index)
        self._shop = shop
        noted = {(topic.topic, partition): at for (_, partition), at in shop.book.noted(
            (index, partition) for partition in range(topic.partition_count)
        ).items()}  # fmt: skip
        ends = shop.reader.end_offsets([topic.topic])
        if len(ends) != topic.partition_count:
            raise SinkStale(f"{topic.topic} has another number of partitions than recorded", topic=topic.topic)
        self.positions: dict[TopicPartition, int] = {
            place: max(low, noted.get(place, low)) for place, (low, _) in ends.items()
        }
        self._known: set[str] = set()

    def catch_up(self) -> None:
        """Apply the topic almost to its end while the workers run."""
        for _ in range(ROUNDS_MAX):
            ends = self._ends()
            if sum(ends[place] - at for place, at in self.positions.items()) <= NEAR_RECORDS:
                break
            self._fill(ends)
        self._check_refused()

    def finish(self) -> None:
        """Apply the topic to its current end, which covers everything written to the old index."""
        self._fill(self._ends())
        self._check_refused()

    def follow(self) -> None:
        """As `finish`, after the swap: a record that is refused now becomes a dead letter of the workers."""
        self._fill(self._ends())

    def _ends(self) -> dict[TopicPartition, int]:
        ends = self._shop.reader.end_offsets([self.topic.topic])
        return {place: max(ends[place][1], at) for place, at in self.positions.items()}

    def _fill(self, ends: Mapping[TopicPartition, int]) -> None:
        self._prepare()
        for batch in self._shop.reader.read(dict(self.positions), ends):
            self.records += len(batch)
            changes = [change_of(records) for records in by_key(batch).values()]
            if any(change.schema_id not in self._known for change in changes if change.row is not None):
                self._prepare()
            self._apply(changes)
        self.positions.update(ends)

    def _prepare(self) -> None:
        # Newest first: where an older schema differs, the column keeps the newer type.
        for record in self._shop.schemas.all(self.topic.topic):
            if record.schema_id not in self._known:
                self.target.prepare(record)
                self._known.add(record.schema_id)

    def _apply(self, changes: Sequence[Change]) -> None:
        unknown = next((each for each in changes if each.row is not None and each.schema_id not in self._known), None)
        if unknown is not None:
            raise SinkGap(
                f"a row of {unknown.topic} refers to schema {unknown.schema_id}, which does not exist",
                hint="capture writes the schema before the row: its record was deleted",
                topic=unknown.topic,
            )
        size = self._shop.request_records
        parts = [changes[first : first + size] for first in range(0, len(changes), size)]
        with ThreadPoolExecutor(self._shop.parallel) as pool:
            for outcomes in pool.map(self._apply_part, parts):
                for outcome in outcomes:
                    if outcome.verdict is Verdict.REFUSED:
                        what = f"{outcome.error} {outcome.reason}".strip()
                        self.refused[what] = self.refused.get(what, 0) + 1

    def _apply_part(self, changes: Sequence[Change]) -> list[Outcome]:
        """Apply the changes until every verdict is final."""
        clock, final = self._shop.clock, []
        moved_s, pending = clock.monotonic_s(), list(changes)
        while pending:
            trouble: SinkUnreachable | None = None
            try:
                outcomes = list(self.target.apply(pending))
            except SinkUnreachable as error:
                trouble, outcomes = error, [Outcome(Verdict.LATER)] * len(pending)
            later = [each for each, outcome in zip(pending, outcomes, strict=True) if outcome.verdict is Verdict.LATER]
            final += [outcome for outcome in outcomes if outcome.verdict is not Verdict.LATER]
            if len(later) < len(pending):
                moved_s = clock.monotonic_s()
            elif clock.monotonic_s() - moved_s > PATIENCE_S:
                raise trouble or SinkUnreachable(
                    f"OpenSearch accepted no write to {self.index} for {PATIENCE_S:.0f} s",
                    hint="check that its disk is not full",
                )
            pending = later
            if pending:
                clock.wait(threading.Event(), _PAUSE_S)
        return final

    def _check_refused(self) -> None:
        if not self.refused or self._shop.accept_refused:
            return
        most = sorted(self.refused, key=lambda what: -self.refused[what])[:_ERRORS_SHOWN]
        raise SinkUnfit(
            f"the new index of {self.topic.table} refuses {sum(self.refused.values())} records: "
            + "; ".join(f"{self.refused[what]} {what}" for what in most),
            hint="the current index stays; correct the sink's `fields`, or continue without these records",
            command=f"cdc sink rebuild {self._shop.indices.sink} --table {self.topic.table} --accept-refused",
            table=self.topic.table,
        )
