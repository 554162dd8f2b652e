"""Stores which Iceberg snapshots belong to a cut, so that a reader of several tables sees one cut.

The files in ``<lake>/_iceberg`` are JSON on one line, one for each cut that Iceberg readers can read, and a copy of the
newest one as ``current.json``. They are written after the metadata of all tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from cdc.errors import LakeDamaged
from cdc.telemetry import log
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.local_disk import Disk

_VERSION: Final = 1
_Number = Annotated[int, msgspec.Meta(ge=1)]


class IcebergTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table at a cut.

    Attributes:
        location: of the Iceberg table, whose ``metadata`` folder has ``version-hint.text``.
        metadata: the newest metadata file when the cut was written. A few newer ones later it is deleted.
        snapshot: the id of the snapshot, which is the cut that last changed the table.
        table: path of the Delta table below the lake.
        version: of the Delta table.
    """

    location: str
    metadata: str
    snapshot: _Number
    table: str
    version: int


class IcebergCut(msgspec.Struct, frozen=True, kw_only=True):
    """A cut of the lake as Iceberg readers see it.

    Attributes:
        cut: its number.
        epoch, lsn: where it ends; a repair of the log begins a new epoch, whose LSNs may be lower.
        tables: ``mirror/<schema>.<table>``, ``views/<view>`` ... -> the table.
        left_out: name of a table that Iceberg cannot represent -> why.
    """

    version: int = _VERSION
    cut: _Number
    epoch: int
    lsn: str
    tables: dict[str, IcebergTable]
    left_out: Mapping[str, str] = {}


class IcebergCuts:
    """The folder of these files. One writer."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def current(self) -> IcebergCut | None:
        """Return the newest cut with an intact file; None without any. Raises LakeDamaged for a newer release's."""
        found = self._read(layout.CURRENT_FILE)
        return found or next(filter(None, map(self.at, reversed(self.cuts()))), None)

    def at(self, cut: int) -> IcebergCut | None:
        """Return a cut; None without an intact file. Raises LakeDamaged for a newer release's."""
        return self._read(layout.cut_file(cut))

    def cuts(self) -> list[int]:
        """Return the cuts that have a file, ascending."""
        return sorted(cut for cut in map(layout.cut_of, self._disk.names()) if cut is not None)

    def publish(self, cut: IcebergCut) -> None:
        """Make a cut the newest one, or replace it."""
        data = msgspec.json.encode(cut) + b"\n"
        self._disk.replace(layout.cut_file(cut.cut), data)
        self._disk.replace(layout.CURRENT_FILE, data)

    def remove(self, cut: int) -> None:
        """Remove the file of a cut."""
        self._disk.remove(layout.cut_file(cut))

    def _read(self, name: str) -> IcebergCut | None:
        data = self._disk.read(name)
        try:
            found = None if data is None else msgspec.json.decode(data, type=IcebergCut)
        except msgspec.MsgspecError as error:
            log.get().warning("iceberg_cut_damaged", file=name, reason=str(error))
            return None
        if found is not None and found.version != _VERSION:
            raise LakeDamaged.of_newer_release(name, found.version, _VERSION, file=name, version=found.version)
        return found
