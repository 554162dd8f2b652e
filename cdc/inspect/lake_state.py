"""Reads what a lake has published, from its manifest alone: no Spark, and the sink's process need not run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cdc.config.settings import Warehouse
from cdc.lsn import Lsn

if TYPE_CHECKING:
    from sinks.warehouse.lake.manifest import Manifest


def current_cut(settings: Warehouse) -> Manifest | None:
    """Return the newest cut of a lake; None before the first. Raises LakeDamaged, LakeUnready."""
    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import ManifestStore

    return ManifestStore(Location.configured(settings)).current()


def lake_document(settings: Warehouse) -> dict[str, Any]:
    """Return the newest cut as `cdc sink status` shows it."""
    current = current_cut(settings)
    return {
        "path": settings.path,
        "cut": current.cut if current else 0,
        "lsn": str(Lsn(current.end_lsn)) if current else None,
        "published_at": time_text(current.committed_at_us) if current else None,
        "tables": len(current.tables) if current else 0,
        "views": len(current.views) if current else 0,
        "views_behind": behind_of(current),
        **({"iceberg_cut": _iceberg_cut(settings)} if settings.iceberg else {}),
    }


def views_behind(settings: Warehouse) -> dict[str, str]:
    """Return view -> why it is behind the newest cut of a lake, as its sink recorded it."""
    return behind_of(current_cut(settings))


def behind_of(current: Manifest | None) -> dict[str, str]:
    """Return `views_behind` of a cut; empty without one."""
    from sinks.warehouse.lake_observer import published_cut

    return {} if current is None else dict(published_cut(current).views_behind)


def _iceberg_cut(settings: Warehouse) -> int:
    """Return the cut that Iceberg readers see; 0 if there is none."""
    from sinks.warehouse.iceberg.cut_files import IcebergCuts
    from sinks.warehouse.lake.layout import ICEBERG_FOLDER
    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import disk_of

    current = IcebergCuts(disk_of(Location.configured(settings), ICEBERG_FOLDER)).current()
    return current.cut if current else 0


def time_text(us: int) -> str:
    """Return microseconds since 1970 as ISO 8601."""
    return datetime.fromtimestamp(us / 1_000_000, UTC).isoformat(timespec="seconds")
