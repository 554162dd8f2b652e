"""Replaces the rows of some keys by rewriting only the files that have them.

A general merge joins the table with the keys and writes the result. Here a file keeps the order of its rows, and the
new rows of a key take the place of its old ones. A new key goes to the file whose range contains it, if that file is
rewritten anyway or is small. Where keys have no ranges, it goes to the smallest file. Other new keys go to new files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cdc.errors import InvariantError
from sinks.warehouse.delta.key_ranges import FileRange, between, homes, sorted_keys
from sinks.warehouse.delta.patch import Match, is_keyable, match, replaced
from sinks.warehouse.delta.table_files import (
    AT_ONCE,
    Action,
    Target,
    Writing,
    file_rows,
    matched_in,
    open_file,
    rows_in,
    written,
    written_again,
)

_NO_ROWS = pa.array([], pa.int64())


@dataclass(frozen=True, slots=True)
class _MatchedFile:
    """A file, and which of its rows have which of the keys."""

    file: FileRange
    matched: Match


def replace(target: Target, keys: pa.Table, rows: pa.Table) -> list[Action]:
    """Write the table without the rows of `keys` and with `rows`. Returns the actions of the commit.

    Args:
        target: the version to change; its key is the columns of `keys`.
        keys: each once, in the table's types, none a float or nested; a null equals a null.
        rows: in the table's columns and types, any number per key; each has one of `keys`.

    Raises InvariantError for other keys or rows.
    """
    if not is_keyable(keys.schema.types) or keys.schema.types != [
        target.schema.field(name).type for name in target.key
    ]:
        raise InvariantError("rows are replaced by a key that is not exactly comparable, or has another type")
    known = None if keys[target.key[0]].null_count else sorted_keys(keys[target.key[0]])
    asked = [file for file in target.files if known is None or between(file, known)]
    with ThreadPoolExecutor(AT_ONCE, "lake-replace") as pool:
        found_files = list(pool.map(lambda file: _MatchedFile(file, matched_in(target, file, keys)), asked))
        matching = [one for one in found_files if len(one.matched)]
        fresh, rest = _housed(target, matching, keys, rows)
        jobs = {one.file.path: one for one in matching}
        jobs |= {file.path: _MatchedFile(file, Match(_NO_ROWS, _NO_ROWS)) for file in fresh if file.path not in jobs}
        places = {file.path: found for file, found in fresh.items()}
        actions = [
            action
            for some in pool.map(lambda job: _rewritten(target, job, keys, places.get(job.file.path)), jobs.values())
            for action in some
        ]
    return actions + written(target, rest, Writing(file_rows(target, target.files)))


def _housed(
    target: Target, matching: Sequence[_MatchedFile], keys: pa.Table, rows: pa.Table
) -> tuple[dict[FileRange, pa.Table], pa.Table]:
    """Return the new rows by the file that takes them, and those that go to new files."""
    place = match(rows, keys, target.key).changes  # for each row, the position of its key
    if len(place) < rows.num_rows:
        raise InvariantError("rows have keys that are not replaced")
    home = [-1] * keys.num_rows
    for number, one in enumerate(matching):
        for key in pc.unique(one.matched.changes).to_pylist():
            home[key] = number
    homes = pa.array(home, pa.int64()).take(place)
    found = {one.file: rows.filter(pc.equal(homes, number)) for number, one in enumerate(matching)}
    fresh = rows.filter(pc.equal(homes, -1))
    if not fresh.num_rows:
        return found, fresh
    written_anyway = {one.file for one in matching}
    kept = [fresh.slice(0, 0)]
    for file, some in _near(target, fresh):
        if file is not None and (file in written_anyway or file.size < target.small_bytes):
            found[file] = pa.concat_tables([found[file], some]) if file in found else some
        else:
            kept.append(some)
    return found, pa.concat_tables(kept)


def _near(target: Target, rows: pa.Table) -> Iterable[tuple[FileRange | None, pa.Table]]:
    """Yield rows with new keys by the nearest file."""
    first = target.key[0]
    known = None if rows[first].null_count else sorted_keys(rows[first])
    if known is None or not target.files or any(file.low is None for file in target.files):
        yield min(target.files, key=lambda file: file.size, default=None), rows
        return
    rows = rows.take(pc.sort_indices(rows[first]))
    for file, here in homes(target.files, known):
        if here:
            yield file, rows.slice(here.start, len(here))


def _rewritten(target: Target, job: _MatchedFile, keys: pa.Table, fresh: pa.Table | None) -> list[Action]:
    """Rewrite a file: remove rows of the keys, and add `fresh` rows."""
    with open_file(target.storage, job.file) as opened:
        rows, footer = rows_in(opened, target.schema), opened.metadata
    return written_again(target, job.file, footer, replaced(rows, keys, fresh, target.key, job.matched))
