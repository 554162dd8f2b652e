"""Changes of TPC-H's tables as rows to merge into mirrors, for measurements without servers. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

import pyarrow as pa

from sinks.warehouse.lake.committer import DELETED
from tests.tpch.refresh import Change, Delete, Insert, Row, Transaction
from tests.tpch.tables import KEYS, mirror, padded, schemas

_Values = dict[str, object]


class Merges:
    """Applies changes to tables. It stores only rows near changed ones, and reads the others from the base."""

    def __init__(self, base: Mapping[str, pa.Table]) -> None:
        self._batches = {table: base[table].to_batches() for table in KEYS}
        self._starts = {
            table: [0, *accumulate(batch.num_rows for batch in batches)] for table, batches in self._batches.items()
        }
        self._first_keys = {table: base[table][names[0]].to_numpy() for table, names in KEYS.items()}
        self._groups: dict[tuple[str, object], dict[Row, _Values]] = {}

    def merge(self, transactions: Iterable[Transaction]) -> dict[str, pa.Table]:
        """Apply transactions in their order. Returns the net changes per mirror: full rows, and `_deleted`.

        A key appears once. A deleted row has its last values. Rows that end as they began are left out.
        """
        before: dict[tuple[str, Row], _Values | None] = {}
        for transaction in transactions:
            for change in transaction:
                self._apply(change, before)
        found: dict[str, list[_Values]] = {}
        for (table, key), old in before.items():
            new = self._rows(table, key[0]).get(key)
            values = old if new is None else new
            if values is not None and new != old:
                found.setdefault(table, []).append({**values, DELETED: new is None})
        return {
            mirror(table): pa.Table.from_pylist(rows, schemas()[table].append(pa.field(DELETED, pa.bool_())))
            for table, rows in found.items()
        }

    def _apply(self, change: Change, before: dict[tuple[str, Row], _Values | None]) -> None:
        """Apply a change to the stored rows, and add rows to `before` that it is the first to change."""
        table = change.table
        if isinstance(change, Insert):
            row = dict(zip(schemas()[table].names, change.row, strict=True))
            key = tuple(row[name] for name in KEYS[table])
            written: dict[Row, _Values | None] = {key: padded(table, row)}
        else:
            rows = self._rows(table, change.key[0])
            keys = [key for key in rows if key[: len(change.key)] == change.key]
            values = None if isinstance(change, Delete) else padded(table, change.values)
            written = {key: None if values is None else {**rows[key], **values} for key in keys}
        for key, new in written.items():
            rows = self._rows(table, key[0])
            before.setdefault((table, key), rows.get(key))
            if new is None:
                del rows[key]
            else:
                rows[key] = new

    def _rows(self, table: str, first: Any) -> dict[Row, _Values]:
        """Return the current rows by key that have this value in the first column of the key."""
        if (table, first) not in self._groups:
            keys = self._first_keys[table]
            rows = self._stored(table, bisect_left(keys, first), bisect_right(keys, first))
            self._groups[table, first] = {tuple(row[name] for name in KEYS[table]): row for row in rows}
        return self._groups[table, first]

    def _stored(self, table: str, begin: int, end: int) -> Iterator[_Values]:
        """Yield rows of the base by position. It opens the batch that has them: slicing a table opens all."""
        starts = self._starts[table]
        while begin < end:
            number = bisect_right(starts, begin) - 1
            part = min(end, starts[number + 1])
            yield from self._batches[table][number].slice(begin - starts[number], part - begin).to_pylist()
            begin = part
