"""Values of a snapshot's plan: the leaves of a table, ranges of their blocks, and chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from cdc.model.relation import Relation
from cdc.model.snapshot_record import Blocks
from snapshot.condition import Condition


@dataclass(frozen=True, slots=True)
class Leaf:
    """A table that holds rows: an ordinary table, or a partition without partitions of its own.

    Attributes:
        filenode: pg_relation_filenode; a rewrite changes it.
        block_count: blocks of the heap, without TOAST.
        size: bytes of heap and TOAST.
    """

    oid: int
    namespace: str
    name: str
    filenode: int
    block_count: int
    size: int


@dataclass(frozen=True, slots=True)
class Form:
    """What is read of every leaf of a table.

    Attributes:
        relation: the table with its published columns, as the stream would announce it now.
        row_filter: row filter of the publication; empty for none.
        partitioned: whether the table is partitioned.
    """

    relation: Relation
    row_filter: str = ""
    partitioned: bool = False


@dataclass(frozen=True, slots=True)
class ChunkSpec:
    """What a chunk reads: blocks of a leaf, or rows by key.

    Attributes:
        leaf, blocks: the blocks to read; `leaf` is None for rows by key.
        keys: keys in the form of the log.
        condition: selects rows of the blocks; None for all.
        named: the same keys by column, if known.
        sweep: delete the keys that the table does not have from the log.
    """

    table: str
    form: Form
    leaf: Leaf | None = None
    blocks: Blocks = (0, None)
    keys: tuple[bytes, ...] = ()
    condition: Condition | None = None
    named: tuple[Mapping[str, str], ...] = ()
    sweep: bool = False


class Rows(Protocol):
    """The rows of a chunk, as a sequence. A slice may be longer than requested."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over rows, or over groups of rows."""

    def __getitem__(self, which: slice, /) -> Rows:
        """Return a slice of the rows."""


@dataclass(slots=True)
class Chunk:
    """One attempt to read a `ChunkSpec`, from its registration until its rows have joined the log or it is given up.

    Attributes:
        rows: the rows after they have arrived; a `snapshot.chunk_lines.Lines`.
        checked: how many rows have been checked: joined or dropped.
        row_count: how many rows have joined.
        size: bytes of `rows`.
        arrived: whether all rows have arrived.
        began_s: when its read began, by the wall clock.
    """

    number: int
    spec: ChunkSpec
    rows: Rows = ()
    checked: int = 0
    row_count: int = 0
    size: int = 0
    arrived: bool = False
    began_s: float = 0.0


class JoinedChunk(NamedTuple):
    """A chunk whose rows have all joined the log or were dropped, for traces.

    `number` is that of the snapshot of this table; `row_count` counts rows that joined, `size` bytes that were read.
    """

    table: str
    number: int
    began_s: float
    row_count: int
    size: int


def with_range(done: Sequence[Blocks], blocks: Blocks) -> tuple[Blocks, ...]:
    """Return `done` with a new range; sorted, and with adjacent ranges merged."""
    ranges = sorted([*done, blocks], key=lambda one: one[0])
    found: list[Blocks] = []
    for first, end in ranges:
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return tuple(found)


def missing_ranges(done: Sequence[Blocks], block_count: int, step: int) -> Iterator[Blocks]:
    """Yield the ranges that `done` lacks, `step` blocks each; the last has no end, because a heap grows."""
    at = 0
    for first, end in done:
        while at < first:
            yield at, min(at + step, first)
            at += step
        if end is None:
            return
        at = end
    while at + step < block_count:
        yield at, at + step
        at += step
    yield at, None


def halves(blocks: Blocks, block_count: int) -> list[Blocks]:
    """Split a range in two; a single block stays as it is."""
    first, end = blocks
    middle = (first + max(block_count if end is None else end, first + 1)) // 2
    return [blocks] if middle == first else [(first, middle), (middle, end)]
