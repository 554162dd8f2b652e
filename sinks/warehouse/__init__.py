"""Builds and reads a lake: Delta tables and views that Spark makes from the log, all consistent at one LSN.

As a library for any Spark program: `read_cut`, `read_changes`, `read_history`, `read_sql`, `view_at`, `frame_of`.
`Lake` lists cuts, tables and views. Modules are imported on first use, so `Lake` works without Spark installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sinks.warehouse.delta.version_frame import frame_of
    from sinks.warehouse.read.data_frames import read_changes, read_cut, read_history, read_sql, view_at
    from sinks.warehouse.read.lake_reader import Lake

__all__ = ["Lake", "frame_of", "read_changes", "read_cut", "read_history", "read_sql", "view_at"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sinks.warehouse.read import data_frames

    return getattr(data_frames, name)
