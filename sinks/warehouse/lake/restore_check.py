"""Is the newest cut the newest state of its tables? Not when one was brought back without the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.errors import LakeDamaged
from sinks.warehouse.lake import layout

if TYPE_CHECKING:
    from sinks.warehouse.lake.committer import Committer
    from sinks.warehouse.lake.manifest import Manifest


def check_newest(manifest: Manifest, committer: Committer) -> None:
    """Between two cuts every table is at the version the manifest names. Opens the log of each.

    An older pointer would make the driver apply the log again to tables that have it, and readers go back in time.

    Raises:
        LakeDamaged: a table is newer or older than the cut, or gone.
    """
    named = {table: state.version for table, state in manifest.tables.items()}
    named |= {layout.view(view, state.generation): state.version for view, state in manifest.views.items()}
    for table, version in sorted(named.items()):
        newest = committer.version(table)
        if newest != version:
            there = "is gone" if newest is None else f"is at version {newest}"
            raise LakeDamaged(
                f"{table} {there}, and the newest cut {manifest.cut} is of version {version}",
                hint="cuts and tables were not brought back together, or somebody else writes to the lake: bring all "
                "of it back from one copy, or build it anew in another folder",
                table=table,
                cut=manifest.cut,
            )
