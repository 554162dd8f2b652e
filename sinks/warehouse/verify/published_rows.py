"""Reads the published rows of a view and its text at a cut, for `cdc views check --source`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.manifest import disk_of
from sinks.warehouse.read.lake_reader import Lake, columns_of, stream_query
from sinks.warehouse.verify.row_multiset import Row
from sinks.warehouse.verify.value_forms import lake_form
from sinks.warehouse.verify.view_text import quoted

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from sinks.warehouse.lake.manifest import Manifest

_LAKE_COLUMNS: Final = frozenset({"_epoch", "_commit_lsn", "_ordinal", "_committed_at"})
"""Columns of every mirror, which ``select *`` publishes and PostgreSQL does not have."""
_LARGE: Final = {"large_string": "string", "string_view": "string", "large_binary": "binary"}


@dataclass(frozen=True, slots=True)
class PublishedRows:
    """The rows of a view at a cut; `names` and `types` (as Arrow prints them) are without the lake's own columns."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    version: DeltaTable

    def rows(self, kinds: Sequence[str]) -> Callable[[], Iterator[Row]]:
        """Return a function that reads the rows and yields them in the common form. It raises LakeDamaged.

        `kinds`: PostgreSQL's types of the columns.
        """
        forms = [lake_form(kind, lake) for kind, lake in zip(kinds, self.types, strict=True)]

        def found() -> Iterator[Row]:
            _, batches = stream_query(self.version, _query(self.names))
            for batch in batches:
                columns = [_formed(column.to_pylist(), form) for column, form in zip(batch.columns, forms, strict=True)]
                yield from zip(*columns, strict=True)

        return found


def published_rows(lake: Lake, manifest: Manifest, name: str) -> PublishedRows:
    """Read a view at a cut. Raises UsageError for an unknown view, LakeDamaged."""
    table, state = lake.view(name, manifest)
    version = pinned(lake.location, table, state.version)
    names = tuple(column for column in columns_of(version) if column not in _LAKE_COLUMNS)
    schema, _ = stream_query(version, _query(names))
    types = [str(kind) for kind in schema.types]
    return PublishedRows(names, tuple(_LARGE.get(kind, kind) for kind in types), version)


def _query(names: Sequence[str]) -> str:
    return f"select {', '.join(map(quoted, names))} from t"  # noqa: S608 - quoted names


def published_text(lake: Lake, manifest: Manifest, name: str) -> str | None:
    """Return the text that the view's rows were computed with; None if an older release did not store it."""
    sha = manifest.views[name].text
    data = disk_of(lake.location).read(layout.sql_file(sha)) if sha else None
    return None if data is None else data.decode()


def _formed(values: Sequence[Any], form: Callable[[Any], str]) -> list[str | None]:
    return [None if value is None else form(value) for value in values]
