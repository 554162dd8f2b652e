"""Finds the changes between two versions of a view, by key. Both are pinned, so results and their order are repeatable.

A file that both versions have contains unchanged rows, so it is not read. The driver holds key and digest of each old
row, 200 bytes. If the cut itself replaced some keys and their rows are still available, only these keys are compared
(`Versions.among`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from cdc.errors import InvariantError
from sinks.warehouse.delta.key_rows import stored_rows
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.views.view_records import Difference, RowForm, row_form

if TYPE_CHECKING:
    from sinks.warehouse.lake.location import Location

AMONG_MAX: Final = 100_000
"""Limit of rows, old or new, for a comparison in memory: more than one Kafka transaction has."""
_DIGEST_BYTES: Final = 16  # of a row; two different rows of one key collide once in 2^64 changes


class Pin(NamedTuple):
    """A version of a generation's table, such as ``views/revenue/g2``."""

    table: str
    version: int


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """What a cut replaced in a view that it kept by keys: rows of other keys are the same in both versions.

    Held from the commit of the view until its topic has it; at most `AMONG_MAX` rows.

    Attributes:
        old, new: the previous version, and the one that the cut made.
        keys: the replaced keys: columns of the view, not always those of its own key.
        rows: their new rows.
    """

    old: Pin
    new: Pin
    keys: pa.Table
    rows: pa.Table


@dataclass(frozen=True)
class Versions:
    """Two versions of a view to compare; `old` is None for the first. Each is opened once."""

    location: Location
    name: str
    view: str
    key: Sequence[str]
    old: Pin | None
    new: Pin

    @cached_property
    def form(self) -> RowForm:
        """The form of the new version's rows. Raises ViewRefused."""
        return self._form(self._now)

    def differences(self) -> Iterator[Difference]:
        """Yield keys that are new or have another row, then keys that are gone. Raises ViewRefused, LakeDamaged."""
        before: dict[bytes, bytes] = {}
        shared = self.shared_files
        if self._before is not None:
            form = self.form_before
            for table in self._before.parts(without=shared):
                before.update((key, digest(row)) for key, row in form.rows(table))
        yield from differences(before, self.form, self._now.parts(without=shared))

    @cached_property
    def form_before(self) -> RowForm:
        """The form of the old version's rows, which must exist. Raises ViewRefused."""
        if self._before is None:
            raise InvariantError(f"view {self.view} has no old version")
        return self._form(self._before)

    @property
    def shared_files(self) -> set[str]:
        """The files whose rows are in both versions, so that they need not be read."""
        before = self._before
        return before.files & self._now.files if before is not None and self._is_alike else set()

    def files_of(self, pin: Pin) -> set[str]:
        """Return the files of one of the versions."""
        before = self._before
        return before.files if before is not None and pin == self.old else self._now.files

    def among(self, moved: ReplacedRows) -> list[Difference] | None:
        """Return the same from what a cut replaced, in an order of its own; None if that is not the whole difference.

        Raises as `differences` does.
        """
        if (moved.old, moved.new) != (self.old, self.new) or not self._is_alike:
            return None
        schema = self._now.schema
        found = stored_rows(self.location, *moved.old, moved.keys, schema.names, rows_max=AMONG_MAX)
        if found is None:
            return None
        before = {key: digest(row) for key, row in self.form.rows(found.cast(schema))}
        return list(differences(before, self.form, [moved.rows.select(schema.names).cast(schema)]))

    def release(self) -> None:
        """Free what the comparison holds."""

    @cached_property
    def _now(self) -> _Pinned:
        return _Pinned(self.location, self.new)

    @cached_property
    def _before(self) -> _Pinned | None:
        return None if self.old is None else _Pinned(self.location, self.old)

    @property
    def _is_alike(self) -> bool:
        """Whether rows and files have the same meaning in both versions."""
        before = self._before
        return (
            self.old is not None
            and before is not None
            and (self.old.table == self.new.table and before.schema == self._now.schema)
        )

    def _form(self, pinned: _Pinned) -> RowForm:
        return row_form(self.name, self.view, pinned.schema, self.key)


def differences(before: dict[bytes, bytes], form: RowForm, parts: Iterable[pa.Table]) -> Iterator[Difference]:
    """Compare new rows with the digests of old rows by key; matched digests are removed."""
    for table in parts:
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
        """Yield rows by file, in the order of file names."""
        for path in sorted(self.files - without):
            yield self._fragments[path].to_table(schema=self.schema)


def digest(row: bytes) -> bytes:
    """Return a digest that distinguishes rows."""
    return blake2b(row, digest_size=_DIGEST_BYTES).digest()
