"""Applies changed rows to the rows of one file, by key and in place. Arrow, pure; Python handles no single row.

A file keeps its order: a changed row stays in its place, and only new rows require sorting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cdc.errors import InvariantError
from sinks.warehouse.lake.committer import DELETED, VALID_TO, VALID_TO_LSN


@dataclass(frozen=True, slots=True)
class Match:
    """The rows of a file that a batch has changes for.

    Attributes:
        rows: their positions in the file, in order.
        changes: for each of them, the position of its change in the batch.
    """

    rows: pa.Array
    changes: pa.Array

    def __len__(self) -> int:
        return len(self.rows)


def is_keyable(kinds: Sequence[pa.DataType]) -> bool:
    """Whether keys of these types can be matched here. Nested ones cannot; tables of a log have none."""
    return not any(pa.types.is_nested(kind) for kind in kinds)


def check_once(table: str, changes: pa.Table, key: Sequence[str]) -> None:
    """Raise InvariantError if a key appears twice, or is of a type that cannot be matched."""
    if not is_keyable([changes.schema.field(name).type for name in key]):
        raise InvariantError(f"the key of {table} is nested, which cannot be merged", table=table)
    columns = [whole(changes[name]) for name in key]
    distinct = _comparable(columns[0]) if len(columns) == 1 else _places(columns, columns)
    if pc.count_distinct(distinct).as_py() != changes.num_rows:
        raise InvariantError(f"a batch for {table} contains a key twice", table=table)


def match(keys: pa.Table, changes: pa.Table, key: Sequence[str]) -> Match:
    """Find the rows of a file with a key of the batch. `keys` needs only the key's columns, `changes` each key once."""
    places = _places([whole(keys[name]) for name in key], [whole(changes[name]) for name in key])
    return Match(pc.indices_nonzero(pc.is_valid(places)).cast(pa.int64()), places.drop_null())


def among(places: pa.Array, count: int) -> pa.BooleanArray:
    """Return, for each of `count` positions, whether it is in `places`, which has no duplicates."""
    if not count:
        return pa.array([], pa.bool_())
    return pc.is_valid(pc.inverse_permutation(places, max_index=count - 1))


class Patched(NamedTuple):
    """The rows of a file after changes.

    Attributes:
        rows: all rows.
        columns: whose values changed in rows that stay.
        has_gone: whether rows were deleted.
    """

    rows: pa.Table
    columns: frozenset[str]
    has_gone: bool


def patched(stored: pa.Table, changes: pa.Table, matched: Match) -> Patched:
    """Return the rows of a file after updates and deletes.

    Args:
        stored: all rows of the file.
        changes: with `_deleted`; columns that it lacks keep their values.
        matched: the result of `match` for both.
    """
    gone = whole(changes[DELETED]).take(matched.changes)
    kept = pc.invert(gone)
    rows_at, at = matched.rows.filter(kept), matched.changes.filter(kept)
    here = among(rows_at, stored.num_rows)
    columns, changed = [], set()
    for name in stored.column_names:
        values = stored[name]
        if name in changes.column_names and len(at):
            fresh = whole(changes[name]).take(at)
            # Most updates leave most columns unchanged; those are not copied.
            if not _bits(whole(values.take(rows_at))).equals(_bits(fresh)):
                values = pc.replace_with_mask(whole(values), here, fresh)
                changed.add(name)
        columns.append(values)
    rows = pa.table(columns, schema=stored.schema)
    dropped = matched.rows.filter(gone)
    if len(dropped):
        rows = rows.filter(pc.invert(among(dropped, rows.num_rows)))
    return Patched(rows, frozenset(changed), bool(len(dropped)))


def _bits(values: pa.Array) -> pa.Array:
    """Return floats as integers: as floats, zero equals minus zero, and NaN equals nothing."""
    if not pa.types.is_floating(values.type):
        return values
    return values.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[values.type.bit_width])


def inserted(rows: pa.Table, more: pa.Table, key: Sequence[str]) -> pa.Table:
    """Add `more` to `rows`, in order of the key; a column that `more` lacks is null."""
    if not more.num_rows:
        return rows
    added = pa.concat_tables(
        [rows, more.select([name for name in more.column_names if name != DELETED])], promote_options="default"
    )
    return added.sort_by([(name, "ascending") for name in key])


def merged(stored: pa.Table, changes: pa.Table, matched: Match, fresh: pa.Table | None, key: Sequence[str]) -> Patched:
    """Return the rows of a file after a merge: the one rule of both committers.

    Args:
        stored: all rows of the file.
        changes: with `_deleted`; columns that it lacks keep their values.
        matched: the result of `match` for both.
        fresh: rows with new keys that the file takes; None for none.
        key: names of the key's columns.
    """
    found = patched(stored, changes, matched) if len(matched) else Patched(stored, frozenset(), has_gone=False)
    return found if fresh is None else found._replace(rows=inserted(found.rows, fresh, key))


def replaced(
    stored: pa.Table, keys: pa.Table, fresh: pa.Table | None, key: Sequence[str], matched: Match | None = None
) -> pa.Table:
    """Return the rows of a file without those of `keys`, and with `fresh` rows.

    Fresh rows take the place of the first old row of their key; those of a new key come at the end.

    Args:
        stored: all rows of the file.
        keys: each once, in the types of the file; a null equals a null.
        fresh: in the file's columns, any number per key; each has one of `keys`.
        key: names of the key's columns.
        matched: the result of `match` for `stored` and `keys`, if it is known.
    """
    matched, count = match(stored, keys, key) if matched is None else matched, stored.num_rows
    stays = pc.indices_nonzero(pc.invert(among(matched.rows, count))).cast(pa.int64())
    if fresh is None or not fresh.num_rows:
        return stored.take(stays)
    old = pa.table({"key": matched.changes.cast(pa.int32()), "at": matched.rows})
    firsts = old.group_by("key").aggregate([("at", "min")])  # the first old row of each key
    place = pc.index_in(match(fresh, keys, key).changes, value_set=whole(firsts["key"]))
    at = pc.fill_null(whole(firsts["at_min"]).take(place), count)
    order = pc.sort_indices(pa.concat_arrays([stays, at.cast(pa.int64())]))
    sources = pa.concat_arrays([stays, pa.array(range(count, count + fresh.num_rows), pa.int64())])
    both = pa.concat_tables([stored, fresh.select(stored.column_names).cast(stored.schema)]).combine_chunks()
    return both.take(sources.take(order))


class Closed(NamedTuple):
    """The rows of a history's file after versions ended.

    Attributes:
        opens: rows that are still open.
        ended: rows that ended, with their end.
    """

    opens: pa.Table
    ended: pa.Table


def closed(stored: pa.Table, closes: pa.Table, matched: Match, fresh: pa.Table | None, key: Sequence[str]) -> Closed:
    """Return the rows of a file of a history after versions ended: the one rule of both committers.

    Args:
        stored: all rows of the file, each open.
        closes: with `_valid_to_lsn` and `_valid_to`.
        matched: the result of `match` for both.
        fresh: new open rows that the file takes; None for none.
        key: names of the key's columns.
    """
    ended = stored.take(matched.rows)
    for name in (VALID_TO_LSN, VALID_TO):
        values = whole(closes[name]).take(matched.changes)
        ended = ended.set_column(ended.schema.get_field_index(name), stored.schema.field(name), values)
    if fresh is None or not fresh.num_rows:
        return Closed(stored.filter(pc.invert(among(matched.rows, stored.num_rows))), ended)
    # A version takes the place of the one it ends, as an update does in a mirror: only new keys require sorting.
    follows = _places([whole(closes[name]) for name in key], [whole(fresh[name]) for name in key])
    at = follows.take(matched.changes)
    ends = pa.table({DELETED: [True]})
    changes = pa.concat_tables([fresh.append_column(DELETED, _no(fresh.num_rows)), ends], promote_options="default")
    opens = patched(stored, changes, Match(matched.rows, pc.fill_null(at, fresh.num_rows))).rows
    return Closed(inserted(opens, fresh.filter(pc.invert(among(at.drop_null(), fresh.num_rows))), key), ended)


def _no(count: int) -> pa.Array:
    return pa.repeat(pa.scalar(False), count)  # noqa: FBT003 - the value of a column


def whole(values: pa.ChunkedArray) -> pa.Array:
    """Return a column in one chunk."""
    found = values.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _comparable(values: pa.Array) -> pa.Array:
    """Return values that are equal if PostgreSQL's are: its zeros have no sign, and its NaN equals NaN."""
    if not pa.types.is_floating(values.type):
        return values
    nan = pa.scalar(float("nan"), values.type)
    return _bits(pc.if_else(pc.is_nan(values), nan, pc.add(values, pa.scalar(0.0, values.type))))


def _places(columns: Sequence[pa.Array], keys: Sequence[pa.Array]) -> pa.Int32Array:
    """Return, for each row of `columns`, the position of its key in `keys`; null if it is not there."""
    columns, keys = list(map(_comparable, columns)), list(map(_comparable, keys))
    if len(columns) == 1:
        return pc.index_in(columns[0], value_set=keys[0])
    place = known = None
    for column, values in zip(columns, keys, strict=True):
        distinct = values.unique()
        one, its = (pc.index_in(each, value_set=distinct).cast(pa.int64()) for each in (column, values))
        if place is not None:
            one = pc.add(pc.multiply(place, len(distinct)), one)
            its = pc.add(pc.multiply(known, len(distinct)), its)
        # Renumbered each time, so that no number exceeds the product of two counts.
        numbers = its.unique()
        place, known = (pc.index_in(each, value_set=numbers).cast(pa.int64()) for each in (one, its))
    return pc.index_in(place, value_set=known)
