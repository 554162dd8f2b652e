"""Deletes tables that earlier releases kept beside views: sums and counts, the state of a plan that was removed.

Their manifests name these tables in a field that this release does not read, and no reader ever used them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.warehouse.lake import layout

if TYPE_CHECKING:
    from sinks.warehouse.lake.committer import TableUpkeep
    from sinks.warehouse.lake.manifest import Manifest


def drop_old_sums(manifest: Manifest, tables: TableUpkeep) -> None:
    """Delete the sums of every generation that the views of a cut ever had; missing tables are ignored."""
    found = {
        layout.old_sums(layout.split_beside(name)[0], number)
        for name, view in manifest.views.items()
        for number in range(1, max(view.generation, view.newest) + 1)
    }
    for table in sorted(found):
        tables.drop(table)
