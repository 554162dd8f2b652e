"""Which files of a version can have rows with certain keys, by the ranges that its log states. Reads no data.

Ranges are of the key's first column. Only types whose statistics are exact or wider than the truth count: texts may be
cut in the log, but then as bounds; times are cut to milliseconds there and decimals pass through a double, so those
are never left out, nor are files without statistics.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable

_PATH: Final = "path"
_SIZE: Final = "size_bytes"
_ROWS: Final = "num_records"
_SMALL_MAX: Final = 2  # the last one, which takes new rows, and one that was left small


@dataclass(frozen=True, slots=True)
class FileRange:
    """A file of a version.

    Attributes:
        path: below the table, as it lies there.
        size: bytes.
        rows: None when the log does not say.
        low, high: no key in it is outside of them; None: unknown.
    """

    path: str
    size: int
    rows: int | None
    low: Any
    high: Any


def ranges_of(opened: DeltaTable, column: str) -> list[FileRange]:
    """The files of a version with their ranges of a column, in order of them; those without a range come last."""
    actions = pa.table(opened.get_add_actions(flatten=True))
    count = actions.num_rows
    lows = _bounds(actions, f"min.{column}", count)
    highs = _bounds(actions, f"max.{column}", count)
    rows = actions.column(_ROWS).to_pylist() if _ROWS in actions.column_names else [None] * count
    paths = actions.column(_PATH).to_pylist()
    files = [
        FileRange(unquote(path), size, number, *((None, None) if low is None or high is None else (low, high)))
        for path, size, number, low, high in zip(
            paths, actions.column(_SIZE).to_pylist(), rows, lows, highs, strict=True
        )
    ]
    known = [file for file in files if file.low is not None]
    return sorted(known, key=lambda file: (file.low, file.high)) + [file for file in files if file.low is None]


def in_order(files: Sequence[FileRange], *, small_bytes: int) -> bool:
    """Whether files of `ranges_of` follow each other without overlap, and at most two of them are small."""
    if any(file.low is None for file in files):
        return False
    apart = all(before.high <= after.low for before, after in pairwise(files))
    return apart and sum(file.size < small_bytes for file in files) <= _SMALL_MAX


def sorted_keys(values: pa.ChunkedArray | pa.Array) -> list[Any] | None:
    """Keys in order, to ask `between` with; None for a type whose statistics say nothing certain."""
    if not is_ranged(values.type):
        return None
    try:
        return sorted(values.drop_null().to_pylist())
    except (ValueError, OverflowError):
        return None  # a date that Python does not have


def between(file: FileRange, keys: Sequence[Any]) -> range:
    """Which of the sorted keys can be in a file, by their places; of a file without a range, all of them."""
    if file.low is None:
        return range(len(keys))
    return range(bisect_left(keys, file.low), bisect_right(keys, file.high))


def homes(files: Sequence[FileRange], keys: Sequence[Any]) -> list[tuple[FileRange, range]]:
    """Where new keys go, by their places: from the beginning of each file to that of the next one.

    The first file takes what comes before it, too; files without a range take none. `files` as `ranges_of` gives them.
    """
    ranged = [file for file in files if file.low is not None]
    begins = [0, *(bisect_left(keys, file.low) for file in ranged[1:]), len(keys)]
    return [(file, range(begins[number], begins[number + 1])) for number, file in enumerate(ranged)]


def is_ranged(kind: pa.DataType) -> bool:
    """Whether the statistics of a column of this type may leave files out."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date32(kind))


def _bounds(actions: pa.Table, name: str, count: int) -> list[Any]:
    if name not in actions.column_names or not is_ranged(actions.column(name).type):
        return [None] * count
    try:
        found: list[Any] = actions.column(name).to_pylist()
    except (ValueError, OverflowError):
        return [None] * count
    return found
