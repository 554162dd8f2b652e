"""Builds the statistics of a Parquet file for a Delta log, from the file's own footer.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics. A value that JSON cannot represent
exactly is left out: without a bound a reader opens the file, with a wrong bound it would miss rows.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

_TEXT_LENGTH_MAX: Final = 64  # of a bound; every open of the table reads the log
_LAST_LETTER: Final = "\U0010ffff"


def leaves(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Yield every column of a Parquet file of this schema: its path in the file, and the table column it belongs to."""
    for column in schema:
        for path in _leaves(column.name, column.type):
            yield path, column.name


def stats_json(footer: pq.FileMetaData, schema: pa.Schema, indexed: int) -> str:
    """Return the row count, and bounds and null counts of the first `indexed` columns; nested columns are left out.

    Args:
        footer: of the file.
        schema: of the rows written into it.
        indexed: number of columns, counted as deltalake does: in the file.
    """
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index, (_, name) in enumerate(islice(leaves(schema), indexed)):
        if pa.types.is_nested(schema.field(name).type):
            continue
        found = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
        counts = [None if one is None or not one.has_null_count else one.null_count for one in found]
        known = [count for count in counts if count is not None]
        if len(known) < len(counts):
            continue
        nulls[name] = sum(known)
        # A group whose values are all null has no bounds and needs none.
        bounded = [
            (one, footer.row_group(group).num_rows)
            for group, one in enumerate(found)
            if one.null_count < footer.row_group(group).num_rows
        ]
        if not bounded or not all(one.has_min_max for one, _ in bounded):
            continue
        low = _low(min(one.min for one, _ in bounded))
        high = _high(max(one.max for one, _ in bounded))
        if low is not None and high is not None:
            lows[name], highs[name] = low, high
    return json.dumps({"numRecords": footer.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls})


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for part in kind:
            yield from _leaves(f"{path}.{part.name}", part.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_nested(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def _low(value: Any) -> Any:
    return value[:_TEXT_LENGTH_MAX] if isinstance(value, str) else _exact(value)


def _high(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _TEXT_LENGTH_MAX else value[:_TEXT_LENGTH_MAX] + _LAST_LETTER
    return _exact(value)


def _exact(value: Any) -> Any:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, dt.datetime):
        text = value.isoformat(timespec="microseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        number = float(value)
        return number if Decimal(repr(number)) == value else None
    return None
