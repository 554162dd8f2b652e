"""Checks a lake before its sink starts: its location, its owner and its views. Changes nothing and starts no Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cdc.config.settings import Config, Warehouse
from cdc.lsn import Lsn
from cdc.model import units
from sinks.store_findings import StoreFinding
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import ManifestStore, check_owner
from sinks.warehouse.views.definition import views_of


def checkup(config: Config, settings: Warehouse) -> Iterator[StoreFinding]:
    """Yield one finding per check. Raises what `start.start` raises for a lake it cannot use; ViewRefused."""
    location = Location.configured(settings)
    if location.folder is not None:
        yield from _folder(location.folder)
    store = ManifestStore(location)
    current = store.current()
    check_owner(current, config.name, location)
    at = f"cut {current.cut}, as of {Lsn(current.end_lsn)}" if current is not None else "no cut yet"
    yield StoreFinding("ok", "lake", f"lake in {location}: {at}")
    for view, state in sorted(current.views.items()) if current is not None else ():
        if state.reason and not layout.is_beside(view):
            yield StoreFinding("warning", "view", f"view {view} is left behind: {state.reason}", "cdc views list")
    for view, failure in sorted(current.unbuilt.items()) if current is not None else ():
        yield StoreFinding("warning", "view", f"view {view} has no rows yet: {failure.reason}", "cdc views list")
    files = views_of(settings)
    for error in files.refused.values():
        yield StoreFinding("error", "view", f"{error.reason}; other views go on", "cdc views list")
    if files.views:
        sent = sum(view.header.publish for view in files.views)
        yield StoreFinding(
            "ok", "views", f"{units.count(len(files.views), 'view')} in {settings.views}, {sent} published as topics"
        )


def has_views(settings: Warehouse) -> bool:
    """Return whether the newest cut has a view."""
    current = ManifestStore(Location.configured(settings)).current()
    return current is not None and bool(current.views)


def published(settings: Warehouse) -> list[str]:
    """Return the names of the views that are published as topics. Raises ViewRefused."""
    return [view.name for view in views_of(settings).views if view.header.publish]


def _folder(folder: Path) -> Iterator[StoreFinding]:
    """Check that the folder, or its nearest existing parent, is a writable directory."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        yield StoreFinding(
            "error", "lake", f"cannot create a lake in {folder}: {there} is not a directory", f"ls -ld {there}"
        )
    elif not os.access(there, os.W_OK | os.X_OK):
        yield StoreFinding(
            "error", "lake", f"cannot create a lake in {folder}: {there} is not writable", f"ls -ld {there}"
        )
