"""Divides what a cut reads into pieces of bounded size, which are applied one by one and published together. Pure.

A piece takes a part of every partition's range, and the parts of one partition follow each other. So the events of a
key are applied in order, whichever pieces they are in. `pending.json` records the division before the first piece is
written. After a crash the same pieces are applied again, and each commit is found by the number of its piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from cdc.model.topic_names import parse_partition
from sinks.warehouse.lake.cut_position import Partition
from sinks.warehouse.log.span import Span

Piece: TypeAlias = dict[str, tuple[int, int]]
"""``topic-partition`` -> (end offset, exclusive; records). A piece begins where the previous one ended."""


@dataclass(frozen=True, slots=True, order=True)
class Chunk:
    """The records of a partition between two offsets.

    Attributes:
        at: relative position of its beginning in the range, 0 to 1.
        size: uncompressed bytes of keys and values.
    """

    at: float
    partition: Partition
    end: int
    records: int
    size: int


def divide(chunks: Sequence[Chunk], bytes_max: int) -> list[Piece]:
    """Pack chunks into pieces of at most `bytes_max`, topic by topic; a larger chunk is a piece of its own.

    The partitions of a topic advance side by side, so that they can be read at the same time.
    """
    pieces: list[Piece] = []
    piece: Piece = {}
    size = 0
    for chunk in sorted(chunks, key=lambda one: (one.partition[0], one.at, one.partition[1])):
        if piece and size + chunk.size > bytes_max:
            pieces.append(piece)
            piece, size = {}, 0
        name = f"{chunk.partition[0]}-{chunk.partition[1]}"
        piece[name] = (chunk.end, piece.get(name, (0, 0))[1] + chunk.records)
        size += chunk.size
    return [*pieces, piece] if piece else pieces


def parts_of(span: Span, pieces: Sequence[Piece]) -> Iterator[Span]:
    """Yield the span of each piece, in order; the whole span if it is not divided."""
    if not pieces:
        yield span
        return
    begins = {partition: begin for partition, (begin, _, _) in span.ranges.items()}
    for piece in pieces:
        ranges: dict[Partition, tuple[int, int, int]] = {}
        for name, (end, records) in piece.items():
            partition = parse_partition(name)
            ranges[partition] = (begins[partition], end, records)
            begins[partition] = end
        yield replace(span, only=ranges)


def rest_of(span: Span, pieces: Sequence[Piece]) -> Span:
    """Return the part of the span that `pieces` do not cover."""
    ranges = span.ranges
    for piece in pieces:
        for name, (to, records) in piece.items():
            partition = parse_partition(name)
            _, end, count = ranges[partition]
            ranges[partition] = (to, end, count - records)
    # After its last record, a range may hold only transaction markers.
    left = {at: found for at, found in ranges.items() if found[0] < found[1] and (found[2] > 0 or not span.counted)}
    return replace(span, only=left)


def whole(span: Span) -> Piece:
    """Return the whole span as one piece."""
    return {f"{topic}-{index}": (end, records) for (topic, index), (_, end, records) in span.ranges.items()}


def topics_of(piece: Piece) -> set[str]:
    """Return the topics that a piece has records of."""
    return {parse_partition(name)[0] for name in piece}


def only_topics(piece: Piece, topics: Mapping[str, bool]) -> Piece:
    """Return the part of a piece that belongs to these topics."""
    return {name: found for name, found in piece.items() if topics.get(parse_partition(name)[0])}
