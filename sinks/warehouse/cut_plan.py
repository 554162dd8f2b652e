"""Decides how much a cut takes and in how many pieces it is applied, so that it fits into memory.

The index of cuts counts records, not bytes. So a cut is measured before it is begun: one that is too large is shortened
to an earlier boundary of transactions, and one that cannot be shortened is divided (`sinks.warehouse.log.cut_pieces`).
A second attempt at a cut that failed uses smaller pieces for whatever is not written yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import structs

from cdc.errors import LakeOverloaded, SparkFailed
from cdc.telemetry import log
from sinks.warehouse.lake.cut_commit import holds
from sinks.warehouse.log.cut_pieces import divide, only_topics, rest_of, topics_of, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.config.settings import Warehouse
    from sinks.warehouse.lake.committer import Committer
    from sinks.warehouse.lake.manifest import Manifest, ManifestStore, Pending
    from sinks.warehouse.log.cut_pieces import Chunk, Piece
    from sinks.warehouse.log.span import Span
    from sinks.warehouse.log.span_reading import SpanReader
    from sinks.warehouse.log.table_choice import Choice

FAILURES_MAX: Final = 5  # of one cut, each attempt with half the bytes of the one before
_SHARE: Final = 8  # of Spark's memory: rows are there as text, as rows, sorted, and as Arrow at the same time
_LEAST: Final = 4 << 20  # a piece has a fixed cost of about a second
_SHORTENED: Final = 4  # times that a span is measured and made shorter
_UNITS: Final = {"m": 1 << 20, "g": 1 << 30}


def bytes_max(settings: Warehouse, shrunk: int = 0) -> int:
    """Bytes of keys and values that are applied at once.

    Args:
        settings: of the sink.
        shrunk: how often to halve them.
    """
    most = settings.bytes_max or int(settings.memory[:-1]) * _UNITS[settings.memory[-1]] // _SHARE
    return max(most >> shrunk, min(most, _LEAST))


@dataclass(slots=True)
class CutSize:
    """Keeps the number of records of a cut below what memory allows. One per driver.

    Attributes:
        settings: of the sink.
        records_max: of the next cut; follows from the size of the records of the last ones.
    """

    settings: Warehouse
    records_max: int = 0

    def __post_init__(self) -> None:
        self.records_max = self.settings.events_max

    def bounded(
        self, span: Span, measure: Callable[[Span], Sequence[Chunk]], shorter: Callable[[int], Span | None]
    ) -> tuple[Span, tuple[Piece, ...]]:
        """A span that fits, or the shortest one and its pieces.

        Args:
            span: what the index offers.
            measure: its chunks; none when it fits.
            shorter: the span of at most so many records, or up to the first boundary.
        """
        limit = bytes_max(self.settings)
        for _ in range(_SHORTENED):
            chunks = measure(span)
            if not chunks:
                self.records_max = min(2 * self.records_max, self.settings.events_max)
                return span, ()
            records, size = sum(chunk.records for chunk in chunks), sum(chunk.size for chunk in chunks)
            self.records_max = max(1, min(records, int(records * limit * 0.8 / size)))
            less = shorter(self.records_max)
            if less is None or less.records >= span.records:
                return span, tuple(divide(chunks, limit))
            span = less
        return span, tuple(divide(measure(span), limit))


def begun_again(
    pending: Pending,
    new: Span,
    choice: Choice,
    committer: Committer,
    manifest: Manifest | None,
    reader: SpanReader,
    settings: Warehouse,
) -> Pending:
    """The plan of the next attempt at a cut that is open: pieces that are written stay as they are.

    The first attempt behind a crash takes the same pieces; after a failure of Spark, or a second crash, they are
    smaller.
    """
    pending = structs.replace(pending, attempts=pending.attempts + 1)
    shrunk = max(pending.failures, pending.attempts - 1)
    if not shrunk or not new.ranges:
        return pending
    base = {} if manifest is None else {table: state.version for table, state in manifest.tables.items()}
    tables = {topic: names.all for topic, names in choice.names.items()}
    tables |= {topic: (archive,) for topic, archive in choice.events.items()}
    moved = {
        topic: [name for name in names if committer.version(name) != base.get(name)] for topic, names in tables.items()
    }
    pieces = list(pending.pieces or (whole(new),))
    last = {
        topic: number
        for number, piece in enumerate(pieces)
        for topic in topics_of(piece)
        if any(holds(committer, table, number, pending.cut) for table in moved.get(topic, ()))
    }
    # A piece that has only tombstones of a topic is written by writing nothing.
    kept = [
        only_topics(piece, {topic: number <= last.get(topic, -1) for topic in topics_of(piece)})
        for number, piece in enumerate(pieces[: max(last.values(), default=-1) + 1])
    ]
    rest = rest_of(new, kept)
    if not rest.ranges:
        return pending
    limit = bytes_max(settings, shrunk)
    pieces = [*kept, *(divide(reader.chunks(rest, bytes_max=limit), limit) or [whole(rest)])]
    log.get().info("cut_planned_again", cut=pending.cut, pieces=len(pieces), written=len(kept), piece_bytes_max=limit)
    return structs.replace(pending, pieces=tuple(pieces) if len(pieces) > 1 else ())


def failed(store: ManifestStore, error: SparkFailed, settings: Warehouse, view: str) -> None:
    """Record that Spark failed in a cut, so that the next attempt does something else.

    Args:
        store: has the cut.
        error: what happened.
        settings: of the sink.
        view: that was being computed; empty: none.

    Raises:
        LakeOverloaded: it failed as often as it may.
    """
    pending = store.pending()
    if pending is None or not error.counts:
        return
    if view:
        left = {**pending.left, view: out_of_memory(settings)} if pending.suspect == view else pending.left
        store.revise(structs.replace(pending, suspect=view, left=left))
        return
    failures = pending.failures + 1
    store.revise(structs.replace(pending, failures=failures))
    if failures >= FAILURES_MAX:
        raise LakeOverloaded(
            f"cut {pending.cut} failed {failures} times, the last time with pieces of at most "
            f"{bytes_max(settings, failures - 1) >> 20} MiB: {error.message}",
            hint=f"raise `memory` of the sink, which is {settings.memory} now; spark.log and spark.out in "
            "the cache folder say more",
            cut=pending.cut,
            memory=settings.memory,
        ) from error


def out_of_memory(settings: Warehouse) -> str:
    """Why a view is left behind that Spark cannot compute with the memory it has."""
    return (
        f"Spark failed twice while it computed this view with memory = {settings.memory}; raise `memory` of the sink, "
        "or have the view read less"
    )


def left_behind(name: str, text: str, pending: Pending, manifest: Manifest | None, settings: Warehouse) -> str:
    """Why a view is not computed in a cut: Spark lacked memory for it, and neither memory nor SQL changed since.

    Args:
        name: of the view.
        text: sum of the text that the cut would compute it by.
        pending: the cut.
        manifest: of the cut before.
        settings: of the sink.
    """
    if name in pending.left:
        return pending.left[name]
    state = None if manifest is None else manifest.views.get(name)
    unbuilt = None if manifest is None else manifest.unbuilt.get(name)
    reason = out_of_memory(settings)
    same = (state is not None and state.reason == reason) or (
        unbuilt is not None and (unbuilt.reason, unbuilt.text) == (reason, text)
    )
    return reason if same else ""
