"""Finds the files of a version that can have rows with certain keys, by the ranges in its log. Reads no data.

Ranges are of the key's first column. Only types count whose statistics are exact or wider than the values. Texts may be
cut in the log, but remain bounds. Times are cut to milliseconds there and decimals pass through a double, so files are
never left out by these, and neither are files without statistics.
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
_SMALL_MAX: Final = 2  # the last file, which takes new rows, and one that stayed small


@dataclass(frozen=True, slots=True)
class FileRange:
    """A file of a version.

    Attributes:
        path: below the table.
        size: bytes.
        rows: None if the log does not say.
        low, high: every key in the file is between them; None if unknown.
    """

    path: str
    size: int
    rows: int | None
    low: Any
    high: Any


def ranges_of(opened: DeltaTable, column: str) -> list[FileRange]:
    """Return the files of a version, ordered by their ranges of a column; those without a range come last."""
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
    """Whether files of `ranges_of` follow each other without overlap, and at most `_SMALL_MAX` of them are small."""
    if any(file.low is None for file in files):
        return False
    apart = all(before.high <= after.low for before, after in pairwise(files))
    return apart and sum(file.size < small_bytes for file in files) <= _SMALL_MAX


def sorted_keys(values: pa.ChunkedArray | pa.Array) -> list[Any] | None:
    """Return keys in order, for `between`; None for a type whose statistics are not reliable."""
    if not is_ranged(values.type):
        return None
    try:
        return sorted(values.drop_null().to_pylist())
    except (ValueError, OverflowError):
        return None  # a date outside of Python's range


def between(file: FileRange, keys: Sequence[Any]) -> range:
    """Return the positions of the sorted keys that can be in a file; all of them for a file without a range."""
    if file.low is None:
        return range(len(keys))
    return range(bisect_left(keys, file.low), bisect_right(keys, file.high))


def homes(files: Sequence[FileRange], keys: Sequence[Any]) -> list[tuple[FileRange, range]]:
    """Return the file for each range of new keys, by position: from the start of the file to the start of the next one.

    The first file also takes the keys before it; files without a range take none. `files` come from `ranges_of`.
    """
    ranged = [file for file in files if file.low is not None]
    begins = [0, *(bisect_left(keys, file.low) for file in ranged[1:]), len(keys)]
    return [(file, range(begins[number], begins[number + 1])) for number, file in enumerate(ranged)]


def is_ranged(kind: pa.DataType) -> bool:
    """Whether the statistics of a column of this type may exclude files."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date32(kind))


def _bounds(actions: pa.Table, name: str, count: int) -> list[Any]:
    if name not in actions.column_names or not is_ranged(actions.column(name).type):
        return [None] * count
    try:
        found: list[Any] = actions.column(name).to_pylist()
    except (ValueError, OverflowError):
        return [None] * count
    return found
