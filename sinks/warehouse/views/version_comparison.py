"""Compares two generations of a view before one replaces the other: rows, columns, differing keys.

Rows are compared in the columns that both have. With a key, rows of the same key are compared; without one, whole rows
and their number. Needs no Spark. Each row's key and digest are held in memory, 200 bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.views.version_diff import Pin, digest
from sinks.warehouse.views.view_records import row_form

if TYPE_CHECKING:
    from sinks.warehouse.lake.location import Location

EXAMPLES_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences.

    Attributes:
        old_rows, new_rows: number of rows.
        removed_columns, added_columns: columns of only the old and only the new one.
        changed: keys whose rows differ in the common columns; 0 without a key.
        gone, new: keys, or rows, that only the old or only the new one has.
        examples: some keys that are changed, gone or new, as JSON; empty without a key.
    """

    old_rows: int
    new_rows: int
    removed_columns: tuple[str, ...]
    added_columns: tuple[str, ...]
    changed: int
    gone: int
    new: int
    examples: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether readers would see no difference."""
        return not (self.removed_columns or self.added_columns or self.changed or self.gone or self.new)


def compare(location: Location, view: str, old: Pin, new: Pin, key: Sequence[str]) -> Comparison:
    """Compare two versions. Raises ViewRefused for a key that one of them lacks, LakeDamaged."""
    sides = [pinned(location, pin.table, pin.version).to_pyarrow_dataset() for pin in (old, new)]
    names = [list(side.schema.names) for side in sides]
    shared = [name for name in names[0] if name in names[1]]
    held: dict[bytes, bytes] = {}
    rows: Counter[bytes] = Counter()
    counts = [0, 0]
    changed: list[bytes] = []
    added: list[bytes] = []
    for number, side in enumerate(sides):
        table = side.to_table(columns=shared)
        counts[number] = table.num_rows
        for found, row in row_form("", view, table.schema, key).rows(table):
            if not key:
                rows[digest(row)] += 1 if number else -1
            elif number == 0:
                held[found] = digest(row)
            else:
                before = held.pop(found, None)
                if before is None:
                    added.append(found)
                elif before != digest(row):
                    changed.append(found)
    shown = [*changed[:EXAMPLES_MAX], *list(held)[:EXAMPLES_MAX], *added[:EXAMPLES_MAX]] if key else []
    return Comparison(
        old_rows=counts[0],
        new_rows=counts[1],
        removed_columns=tuple(name for name in names[0] if name not in shared),
        added_columns=tuple(name for name in names[1] if name not in shared),
        changed=len(changed),
        gone=len(held) if key else -sum(count for count in rows.values() if count < 0),
        new=len(added) if key else sum(count for count in rows.values() if count > 0),
        examples=tuple(one.decode() for one in shown[:EXAMPLES_MAX]),
    )
