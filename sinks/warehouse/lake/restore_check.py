"""Checks that the newest cut is the newest state of its tables. It is not if only one of them was restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.errors import LakeDamaged
from sinks.warehouse.lake import layout

if TYPE_CHECKING:
    from sinks.warehouse.lake.committer import TableReads
    from sinks.warehouse.lake.manifest import Manifest


def check_newest(manifest: Manifest, tables: TableReads) -> None:
    """Check that every table is at the version that the manifest names. Reads the log of each table.

    With an older pointer the driver would apply the log again to tables that have it, and readers would go back in
    time.

    Raises:
        LakeDamaged: a table is newer or older than the cut, or missing.
    """
    named = {table: state.version for table, state in manifest.tables.items()}
    named |= {layout.view(view, state.generation): state.version for view, state in manifest.views.items()}
    for table, version in sorted(named.items()):
        newest = tables.version(table)
        if newest != version:
            there = "is gone" if newest is None else f"is at version {newest}"
            raise LakeDamaged(
                f"{table} {there}, but the newest cut {manifest.cut} needs version {version}",
                hint="cuts and tables were not restored together, or another program writes to the lake: restore all "
                "of it from one copy, or rebuild it in another folder",
                table=table,
                cut=manifest.cut,
            )
