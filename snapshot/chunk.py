"""What is to be read of a table: leaves, ranges of their blocks, and what a chunk is. Values only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cdc.model.relation import Relation
from cdc.model.snapshot_record import Blocks
from snapshot.condition import Condition


@dataclass(frozen=True, slots=True)
class Leaf:
    """A table that holds rows, as the catalog has it now.

    Attributes:
        filenode: where its rows lie.
        block_count: of its heap, without what is stored out of line.
        size: bytes of heap and out-of-line values.
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
        row_filter: of the publication; empty for none.
        partitioned: its rows lie in partitions.
    """

    relation: Relation
    row_filter: str = ""
    partitioned: bool = False


@dataclass(frozen=True, slots=True)
class ChunkSpec:
    """One piece of work: blocks of a leaf, or rows by their keys, as the log has these, wherever they lie.

    `condition` says which rows of the blocks are wanted; None for all. `named` are the keys by column, if known. With
    `sweep` keys that the table does not have are to be deleted from the log.
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
    """Rows of a chunk, whatever they are. A slice may be longer than was asked for."""

    def __len__(self) -> int:
        """How many they are."""

    def __iter__(self) -> Iterator[Any]:
        """One after the other, or some at once."""

    def __getitem__(self, which: slice, /) -> Rows:
        """Some of them."""


@dataclass(slots=True)
class Chunk:
    """One attempt at a spec, from its registration until its rows have joined or it is given up.

    Attributes:
        rows: when they are there; `snapshot.chunk_lines.Lines`.
        joined: how many of them were looked at: joined, or dropped for good.
        row_count: those that joined.
        size: bytes of `rows`.
        there: they have arrived.
    """

    number: int
    spec: ChunkSpec
    rows: Rows = ()
    joined: int = 0
    row_count: int = 0
    size: int = 0
    there: bool = False


def added(done: Sequence[Blocks], blocks: Blocks) -> tuple[Blocks, ...]:
    """`done` with `blocks`, which it does not have, in order and joined where they meet."""
    ranges = sorted([*done, blocks], key=lambda one: one[0])
    found: list[Blocks] = []
    for first, end in ranges:
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return tuple(found)


def missing(done: Sequence[Blocks], block_count: int, step: int) -> Iterator[Blocks]:
    """What `done` lacks, in pieces of `step` blocks; the last piece has no end, since a heap grows."""
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


def halved(blocks: Blocks, block_count: int) -> list[Blocks]:
    """The same in two pieces; one block stays as it is."""
    first, end = blocks
    middle = (first + max(block_count if end is None else end, first + 1)) // 2
    return [blocks] if middle == first else [(first, middle), (middle, end)]
