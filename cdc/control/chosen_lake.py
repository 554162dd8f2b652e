"""A lake as a command or a request selects it, and its views' SQL files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cdc.errors import UsageError

if TYPE_CHECKING:
    from cdc.config.settings import Warehouse
    from sinks.warehouse.lake.location import Location


@dataclass(frozen=True, slots=True)
class LakeChoice:
    """A lake, and the folder of its views' SQL files if known."""

    location: Location
    views: Path | None

    @classmethod
    def of(cls, sink: Warehouse) -> LakeChoice:
        """Return the lake of a sink."""
        from sinks.warehouse.lake.location import Location

        return cls(Location.configured(sink), Path(sink.views) if sink.views else None)


def check_file(found: LakeChoice, name: str) -> None:
    """Raise the reason if a view is not in the lake although it has a file; its file may be one that cannot be used."""
    from sinks.warehouse.views.definition import read_views

    if found.views is None:
        return
    files = read_views(found.views)
    if name in files.refused:
        raise files.refused[name]
    if any(view.name == name for view in files.views):
        raise UsageError(
            f"the view {name} has no rows yet: the sink has not computed its file",
            hint="the sink reads the files when it starts: restart it",
        )
