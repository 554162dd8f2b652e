"""What changed between two versions of a view, by key: both are pinned, so asking twice gives the same, in order.

A file that both versions have holds rows that did not change, so it is not read: after an incremental plan the cost is
that of the files it touched. Of the old rows the driver holds key and a digest, 200 bytes each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from sinks.warehouse.pinned import pinned
from sinks.warehouse.viewrows import Difference, RowForm, row_form

if TYPE_CHECKING:
    from sinks.warehouse.location import Location

_DIGEST_BYTES: Final = 16  # of a row; two different rows of one key agree once in 2^64 changes


class Pin(NamedTuple):
    """A version of a generation's table, as ``views/revenue/g2``."""

    table: str
    version: int


@dataclass(frozen=True, slots=True)
class Versions:
    """Two versions of a view to be compared: `old` is None before the first."""

    location: Location
    name: str
    view: str
    key: Sequence[str]
    old: Pin | None
    new: Pin

    def form(self) -> RowForm:
        """Of the new version's rows. Raises ViewRefused."""
        return row_form(self.name, self.view, _Pinned(self.location, self.new).schema, self.key)

    def differences(self) -> Iterator[Difference]:
        """Keys that are new or have another row, then those that are gone. Raises ViewRefused, LakeDamaged."""
        new = _Pinned(self.location, self.new)
        before: dict[bytes, bytes] = {}
        shared: set[str] = set()
        if self.old is not None:
            old = _Pinned(self.location, self.old)
            shared = old.files & new.files if self.old.table == self.new.table and old.schema == new.schema else set()
            form = row_form(self.name, self.view, old.schema, self.key)
            for table in old.parts(without=shared):
                before.update((key, digest(row)) for key, row in form.rows(table))
        form = row_form(self.name, self.view, new.schema, self.key)
        for table in new.parts(without=shared):
            for key, row in form.rows(table):
                held = before.pop(key, None)
                if held is None:
                    yield Difference("c", key, row)
                elif held != digest(row):
                    yield Difference("u", key, row)
        for key in before:
            yield Difference("d", key, None)


class _Pinned:
    def __init__(self, location: Location, pin: Pin) -> None:
        found = pinned(location, pin.table, pin.version)
        self._data = found.to_pyarrow_dataset()
        self._fragments: dict[str, Any] = {unquote(one.path): one for one in self._data.get_fragments()}
        self.files: set[str] = set(self._fragments)
        self.schema: pa.Schema = self._data.schema

    def parts(self, *, without: set[str]) -> Iterator[pa.Table]:
        """Rows by file, in the order of the files' names."""
        for path in sorted(self.files - without):
            yield self._fragments[path].to_table(schema=self.schema)


def digest(row: bytes) -> bytes:
    """What a row is told from others by."""
    return blake2b(row, digest_size=_DIGEST_BYTES).digest()
