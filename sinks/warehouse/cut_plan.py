"""Decides how many records a cut takes and in how many pieces it is applied, so that it fits into memory.

The cut index counts records, not bytes, so a cut is measured before it begins. A cut that is too large ends at an
earlier transaction boundary. If it cannot, it is divided into pieces (`sinks.warehouse.log.cut_pieces`). A second
attempt at a failed cut uses smaller pieces for everything that is not written yet.
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
    from sinks.warehouse.lake.committer import TableReads
    from sinks.warehouse.lake.manifest import Manifest, ManifestStore, Pending
    from sinks.warehouse.log.cut_pieces import Chunk, Piece
    from sinks.warehouse.log.span import Span
    from sinks.warehouse.log.span_reading import SpanReader
    from sinks.warehouse.log.table_choice import Choice

FAILURES_MAX: Final = 5  # attempts at one cut; each uses half the bytes of the previous one
_SHARE: Final = 8  # part of Spark's memory: a row exists as text, as a row, sorted, and as Arrow at the same time
_LEAST: Final = 4 << 20  # a smaller piece is not worth its fixed cost of about a second
_SHORTENED: Final = 4  # attempts to shorten a span
_UNITS: Final = {"m": 1 << 20, "g": 1 << 30}


def bytes_max(settings: Warehouse, shrunk: int = 0) -> int:
    """Return how many bytes of keys and values may be applied at once.

    Args:
        settings: of the sink.
        shrunk: how many times to halve the result.
    """
    most = settings.bytes_max or int(settings.memory[:-1]) * _UNITS[settings.memory[-1]] // _SHARE
    return max(most >> shrunk, min(most, _LEAST))


@dataclass(slots=True)
class CutSize:
    """Keeps a cut's number of records within what memory allows. One per driver.

    Attributes:
        settings: of the sink.
        records_max: records of the next cut, derived from the record size of the previous ones.
    """

    settings: Warehouse
    records_max: int = 0

    def __post_init__(self) -> None:
        self.records_max = self.settings.events_max

    def divided(self, span: Span, measure: Callable[[Span], Sequence[Chunk]]) -> tuple[Piece, ...]:
        """Return the pieces of a span that is not shortened; none if it fits into memory."""
        return tuple(divide(measure(span), bytes_max(self.settings)))

    def bounded(
        self, span: Span, measure: Callable[[Span], Sequence[Chunk]], shorter: Callable[[int], Span | None]
    ) -> tuple[Span, tuple[Piece, ...]]:
        """Return a span that fits, or the shortest possible span and its pieces.

        Args:
            span: the span that the cut index offers.
            measure: returns the span's chunks; empty if the span fits.
            shorter: returns the span of at most that many records, or the one up to the first boundary.
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
    lake: TableReads,
    manifest: Manifest | None,
    reader: SpanReader,
    settings: Warehouse,
) -> Pending:
    """Return the plan of the next attempt at an open cut. Pieces that are already written stay the same.

    The number of a piece is part of the app id of its commits, so only what no table holds yet may be divided again.
    The first attempt after a crash uses the same pieces. After a Spark failure, or a second crash, the pieces are
    smaller.
    """
    pending = structs.replace(pending, attempts=pending.attempts + 1)
    shrunk = max(pending.failures, pending.attempts - 1)
    if not shrunk or not new.ranges:
        return pending
    base = {} if manifest is None else {table: state.version for table, state in manifest.tables.items()}
    tables = {topic: names.all for topic, names in choice.names.items()}
    tables |= {topic: (archive,) for topic, archive in choice.events.items()}
    moved = {topic: [name for name in names if lake.version(name) != base.get(name)] for topic, names in tables.items()}
    pieces = list(pending.pieces or (whole(new),))
    last = {
        topic: number
        for number, piece in enumerate(pieces)
        for topic in topics_of(piece)
        if any(holds(lake, table, number, pending.cut) for table in moved.get(topic, ()))
    }
    # A piece that holds only tombstones of a topic makes no commit. So every piece up to the last one that did counts
    # as written.
    done = pending.written
    kept = [
        piece
        if number < done
        else only_topics(piece, {topic: number <= last.get(topic, -1) for topic in topics_of(piece)})
        for number, piece in enumerate(pieces[: max(done, max(last.values(), default=-1) + 1)])
    ]
    rest = rest_of(new, kept)
    if not rest.ranges:
        return pending
    limit = bytes_max(settings, shrunk)
    pieces = [*kept, *(divide(reader.chunks(rest, bytes_max=limit), limit) or [whole(rest)])]
    log.get().info("cut_planned_again", cut=pending.cut, pieces=len(pieces), written=len(kept), piece_bytes_max=limit)
    return structs.replace(pending, pieces=tuple(pieces) if len(pieces) > 1 else ())


def failed(store: ManifestStore, error: SparkFailed, settings: Warehouse, view: str) -> None:
    """Record that Spark failed in a cut, so that the next attempt uses smaller pieces or leaves a view behind.

    Args:
        store: holds the open cut.
        error: the failure.
        settings: of the sink.
        view: the views that were being computed, joined by commas; empty if none. After several, the next attempt
            computes one at a time, so that one name is left.

    Raises:
        LakeOverloaded: the cut failed `FAILURES_MAX` times.
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
            hint=f"raise `memory` of the sink (now {settings.memory}); see spark.log and spark.out in the cache folder",
            cut=pending.cut,
            memory=settings.memory,
        ) from error


def out_of_memory(settings: Warehouse) -> str:
    """Return the reason for a view that Spark cannot compute with its memory."""
    return (
        f"Spark failed twice while it computed this view with memory = {settings.memory}; raise `memory` of the sink, "
        "or have the view read less"
    )


def left_behind(name: str, text: str, pending: Pending, manifest: Manifest | None, settings: Warehouse) -> str:
    """Return why a cut leaves a view behind: Spark lacked memory, and neither `memory` nor the SQL changed since.

    Args:
        name: name of the view.
        text: hash of the SQL text that the cut would use.
        pending: the open cut.
        manifest: manifest of the previous cut.
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
