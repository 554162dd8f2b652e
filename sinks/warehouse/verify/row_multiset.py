"""Compares two lists of rows as multisets and names the rows that differ. Pure.

Rows are tuples of `sinks.warehouse.verify.value_forms.Cell`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from sinks.warehouse.verify.value_forms import Cell, close

Row: TypeAlias = tuple[Cell, ...]

EXAMPLES_MAX: Final = 5
KEPT_MAX: Final = 200_000
"""Differing rows that are kept of each side, to pair those that differ only in floats."""
_SUMS: Final = 1 << 14
_NEAREST_MAX: Final = 100  # rows that are tried for each row; both sides are sorted, so its counterpart is near
_RELATIVE: Final = 1e-9
"""Between floats that were added in a different order, as in `cdc views check` without the source."""


@dataclass(slots=True)
class Compared:
    """The result of a comparison.

    Attributes:
        rows: of the view.
        source_rows: of PostgreSQL's result.
        missing: rows that only PostgreSQL has.
        extra: rows that only the view has.
        near: rows that differ only in floats, by up to a billionth.
        examples: rows that differ, ("missing" or "extra", row).
        columns: number of a column -> differing rows of one key that differ in it.
    """

    rows: int = 0
    source_rows: int = 0
    missing: int = 0
    extra: int = 0
    near: int = 0
    examples: list[tuple[str, Row]] = field(default_factory=list)
    columns: dict[int, int] = field(default_factory=dict)


def compare(
    published: Callable[[], Iterable[Row]],
    source: Callable[[], Iterable[Row]],
    *,
    floats: Sequence[int],
    key: Sequence[int] = (),
) -> Compared:
    """Compare the published rows with PostgreSQL's.

    Each side is read once, in memory that does not grow with its rows: a row is added to one of a fixed number of
    sums. Only where sums differ are both sides read again, and the rows of these sums are compared.

    Args:
        published: yields the rows of the view.
        source: yields the rows of PostgreSQL: each time the same ones, except for the last digits of floats.
        floats: the columns that are floats.
        key: the columns that identify rows; empty if none are known.
    """
    found = Compared()
    bucket = _bucket_by(floats)
    left, found.rows = _sums(published(), bucket)
    right, found.source_rows = _sums(source(), bucket)
    differing = {at for at, (one, other) in enumerate(zip(left, right, strict=True)) if one != other}
    if not differing:
        return found
    missing, extra = _differing(
        lambda: (row for row in published() if bucket(row) in differing),
        (row for row in source() if bucket(row) in differing),
        found,
    )
    if floats and found.missing and found.extra:
        missing, extra, found.near = _without_near(missing, extra, floats)
        found.missing -= found.near
        found.extra -= found.near
    _explain(found, missing, extra, key)
    return found


def _bucket_by(floats: Sequence[int]) -> Callable[[Row], int]:
    """Return what chooses a row's sum: the columns that are the same each time a side is read."""
    if not floats:
        return lambda row: xxh3_64_intdigest(msgspec.msgpack.encode(row)) % _SUMS
    loose = frozenset(floats)
    return lambda row: (
        xxh3_64_intdigest(msgspec.msgpack.encode([cell for at, cell in enumerate(row) if at not in loose])) % _SUMS
    )


def _sums(rows: Iterable[Row], bucket: Callable[[Row], int]) -> tuple[list[int], int]:
    """Return the sums of the rows' digests, and the number of rows. A sum does not depend on the order of rows."""
    sums, count = [0] * _SUMS, 0
    for row in rows:
        sums[bucket(row)] += int.from_bytes(_digest(row))
        count += 1
    return sums, count


def _differing(
    published: Callable[[], Iterable[Row]], source: Iterable[Row], found: Compared
) -> tuple[list[Row], list[Row]]:
    """Return the rows that only one side has, and count them in `found`."""
    left = Counter(map(_digest, published()))
    missing: list[Row] = []
    for row in source:
        digest = _digest(row)
        if left[digest] > 0:
            left[digest] -= 1
            continue
        found.missing += 1
        if len(missing) < KEPT_MAX:
            missing.append(row)
    found.extra = left.total()
    extra: list[Row] = []
    for row in published() if found.extra else ():
        digest = _digest(row)
        if left[digest] > 0 and len(extra) < KEPT_MAX:
            left[digest] -= 1
            extra.append(row)
    return missing, extra


def _digest(row: Row) -> bytes:
    return xxh3_128_digest(msgspec.msgpack.encode(row))


def _without_near(
    missing: Sequence[Row], extra: Sequence[Row], floats: Sequence[int]
) -> tuple[list[Row], list[Row], int]:
    """Return the rows without those that have a counterpart which differs only in the last digits of floats."""
    loose = frozenset(floats)

    def exact(row: Row) -> Row:
        return tuple(cell for at, cell in enumerate(row) if at not in loose)

    def of_floats(row: Row) -> Row:
        return tuple(row[at] for at in floats)

    def order(row: Row) -> list[tuple[bool, float]]:
        return [(cell is None, 0.0 if cell is None or cell == "nan" else float(cell)) for cell in of_floats(row)]

    waiting: dict[Row, list[Row]] = defaultdict(list)
    for row in sorted(extra, key=order):
        waiting[exact(row)].append(row)
    kept: list[Row] = []
    near = 0
    for row in sorted(missing, key=order):
        beside = waiting[exact(row)]
        match = next((one for one in beside[:_NEAREST_MAX] if close(of_floats(row), of_floats(one), _RELATIVE)), None)
        if match is None:
            kept.append(row)
            continue
        beside.remove(match)
        near += 1
    return kept, [row for rows in waiting.values() for row in rows], near


def _explain(found: Compared, missing: Sequence[Row], extra: Sequence[Row], key: Sequence[int]) -> None:
    """Add examples; with a key, rows of one key stand together, and the columns in which they differ are counted."""

    def name(row: Row) -> Row:
        return tuple(row[at] for at in key)

    def order(side: tuple[str, Row]) -> tuple[list[str], str]:
        what, row = side
        return [cell or "" for cell in (name(row) if key else row)], what

    sides = [*(("missing", row) for row in missing), *(("extra", row) for row in extra)]
    found.examples = sorted(sides, key=order)[:EXAMPLES_MAX]
    if not key:
        return
    published = {name(row): row for row in extra}
    for row in missing:
        other = published.get(name(row))
        for at, (one, two) in enumerate(zip(row, other or row, strict=True)):
            if one != two:
                found.columns[at] = found.columns.get(at, 0) + 1
