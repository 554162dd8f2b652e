"""Changed rows put into the rows of one file, by key and in place. Arrow, pure; no row is looked at by Python.

A file keeps its order: a changed row stays where it was, and only rows that come anew have it sorted again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from cdc.errors import InvariantError
from sinks.warehouse.lake.committer import DELETED

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Match:
    """Rows of a file that a batch has changes for.

    Attributes:
        rows: their places in the file, in order.
        changes: of each the place of its change in the batch.
    """

    rows: pa.Array
    changes: pa.Array

    def __len__(self) -> int:
        return len(self.rows)


def is_keyable(kinds: Sequence[pa.DataType]) -> bool:
    """Whether keys of these types can be looked for here. Floats cannot: zeros have a sign, and NaN equals nothing."""
    return not any(pa.types.is_floating(kind) or pa.types.is_nested(kind) for kind in kinds)


def check_once(table: str, changes: pa.Table, key: Sequence[str]) -> None:
    """Raise InvariantError when a key is there twice."""
    columns = [whole(changes[name]) for name in key]
    if pc.count_distinct(_places(columns, columns)).as_py() != changes.num_rows:
        raise InvariantError(f"a batch for {table} has a key twice", table=table)


def match(keys: pa.Table, changes: pa.Table, key: Sequence[str]) -> Match:
    """Which rows of a file have a key of the batch. `keys` needs the key's columns only, `changes` each key once."""
    places = _places([whole(keys[name]) for name in key], [whole(changes[name]) for name in key])
    return Match(pc.indices_nonzero(pc.is_valid(places)).cast(pa.int64()), places.drop_null())


def among(places: pa.Array, count: int) -> pa.BooleanArray:
    """For each of `count` things whether its place is one of `places`, which has none twice."""
    if not count:
        return pa.array([], pa.bool_())
    return pc.is_valid(pc.inverse_permutation(places, max_index=count - 1))


def patched(stored: pa.Table, changes: pa.Table, matched: Match) -> pa.Table:
    """The rows of a file, updated and deleted.

    Args:
        stored: all of the file.
        changes: with `_deleted`; columns that it does not have keep their values.
        matched: as `match` gave it for both.
    """
    gone = whole(changes[DELETED]).take(matched.changes)
    kept = pc.invert(gone)
    rows_at, at = matched.rows.filter(kept), matched.changes.filter(kept)
    here = among(rows_at, stored.num_rows)
    columns = []
    for name in stored.column_names:
        values = stored[name]
        if name in changes.column_names and len(at):
            fresh = whole(changes[name]).take(at)
            # Most updates leave most columns as they are, and so does this.
            if not whole(values.take(rows_at)).equals(fresh):
                values = pc.replace_with_mask(whole(values), here, fresh)
        columns.append(values)
    rows = pa.table(columns, schema=stored.schema)
    dropped = matched.rows.filter(gone)
    return rows.filter(pc.invert(among(dropped, rows.num_rows))) if len(dropped) else rows


def inserted(rows: pa.Table, more: pa.Table, key: Sequence[str]) -> pa.Table:
    """`rows` with `more` among them, in order of the key; a column that `more` lacks is null there."""
    if not more.num_rows:
        return rows
    added = pa.concat_tables(
        [rows, more.select([name for name in more.column_names if name != DELETED])], promote_options="default"
    )
    return added.sort_by([(name, "ascending") for name in key])


def whole(values: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    found = values.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _places(columns: Sequence[pa.Array], keys: Sequence[pa.Array]) -> pa.Int32Array:
    """For each row of `columns` where its key is first in `keys`, null where it is not."""
    if len(columns) == 1:
        return pc.index_in(columns[0], value_set=keys[0])
    place = known = None
    for column, values in zip(columns, keys, strict=True):
        distinct = values.unique()
        one, its = (pc.index_in(each, value_set=distinct).cast(pa.int64()) for each in (column, values))
        if place is not None:
            one = pc.add(pc.multiply(place, len(distinct)), one)
            its = pc.add(pc.multiply(known, len(distinct)), its)
        # Numbered anew each time: no number is greater than the product of two counts.
        numbers = its.unique()
        place, known = (pc.index_in(each, value_set=numbers).cast(pa.int64()) for each in (one, its))
    return pc.index_in(place, value_set=known)
