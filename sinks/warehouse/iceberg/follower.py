"""Brings Iceberg metadata up to the manifest after each cut. If that fails, the lake continues without it.

The order, which no crash can break:

1. The lake's tables and its manifest are published, as without Iceberg.
2. Each table whose version changed gets a snapshot with exactly the files of that version.
3. The file of the cut is written, and then the pointer to it. Readers begin there, and see all tables move together.

A follower begins at the newest cut with a file, and writes the manifest's. Cuts in between may be skipped. A repeated
attempt replaces the files of the interrupted one (`sinks.warehouse.iceberg.table_metadata`).

When cuts are pruned, `expire` removes snapshots, and then the files of the cuts. Vacuum keeps what these files still
name (`needed`). So a reader that finds a cut finds its data files, also while Iceberg is behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from msgspec import structs
from pyiceberg.conversions import to_bytes
from pyiceberg.types import DateType, LongType, PrimitiveType

from cdc.errors import TailraceError
from cdc.lsn import Lsn
from cdc.telemetry import log
from sinks.warehouse.delta.pinned_version import pinned, schema_json
from sinks.warehouse.iceberg.cut_files import IcebergCut, IcebergCuts, IcebergTable
from sinks.warehouse.iceberg.metadata_files import MetadataFiles
from sinks.warehouse.iceberg.table_metadata import FileFacts, Stamp, TableFiles, TableVersion
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.manifest import disk_of

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.table.metadata import TableMetadataV2

    from sinks.warehouse.lake.local_disk import Disk
    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import Manifest

_FAILURES: Final = (TailraceError, ValueError, TypeError, LookupError, ArithmeticError, OSError)
"""What pyiceberg and the storage raise."""
_NOT_REPRESENTED: Final = (ValueError, TypeError, LookupError, ArithmeticError)
_BOUNDED: Final[Mapping[str, PrimitiveType]] = {"long": LongType(), "date": DateType()}
"""Types whose bounds in a Delta log are exact in every release of its writers, and fit Iceberg's form of the type."""


class IcebergFollower:
    """The Iceberg metadata of one lake. Single-threaded.

    Args:
        location: of the lake.
        disks: opens a folder of it; tests pass one that fails between two steps.
    """

    def __init__(self, location: Location, disks: Callable[[Location, str], Disk] = disk_of) -> None:
        self._location = location
        self._disks = disks
        self._cuts = IcebergCuts(disks(location, layout.ICEBERG_FOLDER))
        self._last: IcebergCut | None = None
        self._opened = False
        self._reason = ""

    @property
    def cut(self) -> int:
        """The newest cut that Iceberg readers see; 0 if there is none, or none is known yet."""
        return 0 if self._last is None else self._last.cut

    def follow(self, manifest: Manifest) -> str:
        """Bring the metadata up to a manifest. Returns what Iceberg readers miss; "" if nothing."""
        try:
            last = self._newest()
            if last is None or last.cut < manifest.cut:
                self._publish(manifest, last)
        except _FAILURES as error:
            reason = f"Iceberg is at cut {self.cut}: {error}"
        else:
            left_out = {} if self._last is None else self._last.left_out
            reason = "; ".join(f"{table} is left out: {why}" for table, why in sorted(left_out.items()))
        if reason != self._reason:
            self._reason = reason
            if reason:
                log.get().warning("iceberg_behind", cut=manifest.cut, reason=reason)
            else:
                log.get().info("iceberg_caught_up", cut=manifest.cut)
        return reason

    def expire(self, kept: Collection[int]) -> None:
        """Remove what only cuts outside of `kept` show. What fails stays, and is tried again with the next call."""
        try:
            last = self._newest()
            if last is not None:
                self._expire(last, set(kept) | {last.cut})
        except _FAILURES as error:
            log.get().warning("iceberg_not_expired", reason=str(error))

    def needed(self, kept: Collection[int]) -> dict[str, set[int]]:
        """Return the versions that cuts outside of `kept` still show to Iceberg readers: vacuum must keep them."""
        found: dict[str, set[int]] = {}
        for cut in self._cuts.cuts():
            shown = None if cut in kept else self._cuts.at(cut)
            for table in () if shown is None else shown.tables.values():
                found.setdefault(table.table, set()).add(table.version)
        return found

    def _newest(self) -> IcebergCut | None:
        if not self._opened:
            self._last = self._cuts.current()
            self._opened = True
        return self._last

    def _publish(self, manifest: Manifest, last: IcebergCut | None) -> None:
        lsn = str(Lsn(manifest.end_lsn))
        stamp = Stamp(cut=manifest.cut, lsn=lsn, published_us=manifest.committed_at_us)
        # By the Delta table: a view's name moves to another one when another version of the view becomes active.
        before = {} if last is None else {known.table: known for known in last.tables.values()}
        tables: dict[str, IcebergTable] = {}
        left_out: dict[str, str] = {}
        for name, (table, version) in sorted(_wanted(manifest).items()):
            known = before.get(table)
            if known is not None and known.version == version:
                tables[name] = known
                continue
            found = pinned(self._location, table, version)
            try:
                tables[name] = self._table(table, _read(self._location, table, found), stamp, known, version)
            except _NOT_REPRESENTED as error:
                left_out[name] = str(error)
        cut = IcebergCut(cut=manifest.cut, epoch=manifest.position.epoch, lsn=lsn, tables=tables, left_out=left_out)
        self._cuts.publish(cut)
        self._last = cut

    def _table(
        self, table: str, found: TableVersion, stamp: Stamp, known: IcebergTable | None, version: int
    ) -> IcebergTable:
        files = self._files(table)
        base: TableMetadataV2 | None = None
        try:
            base = None if known is None else files.load(known.metadata)
            metadata = files.add(stamp, found, base, None if known is None else known.metadata)
        except (FileNotFoundError, ValueError) as error:
            if known is None:
                raise
            log.get().warning("iceberg_table_begun_again", table=table, reason=str(error))
            metadata = files.add(stamp, found, None, None)
        return IcebergTable(
            location=self._uri(table), metadata=metadata, snapshot=stamp.cut, table=table, version=version
        )

    def _expire(self, last: IcebergCut, kept: Collection[int]) -> None:
        with_file = self._cuts.cuts()
        gone = [cut for cut in with_file if cut not in kept]
        if not gone:
            return
        shown = [cut for cut in with_file if cut in kept]
        tables: dict[str, IcebergTable] = {}
        for name, known in last.tables.items():
            files = self._files(known.table)
            metadata = files.expire(last.cut, shown, files.load(known.metadata), known.metadata)
            tables[name] = structs.replace(known, metadata=metadata)
        if tables != last.tables:
            self._last = structs.replace(last, tables=tables)
            self._cuts.publish(self._last)
        left = _tables(self._cuts.at(cut) for cut in gone) - _tables([last])
        if left:  # rare, so other cuts are read only then
            for table in sorted(left - _tables(self._cuts.at(cut) for cut in shown)):
                self._files(table).drop()
        for cut in gone:
            self._cuts.remove(cut)

    def _files(self, table: str) -> TableFiles:
        disk = self._disks(self._location, f"{layout.ICEBERG_FOLDER}/{table}/metadata")
        uri = self._uri(table)
        return TableFiles(MetadataFiles(disk, f"{uri}/metadata"), uri)

    def _uri(self, table: str) -> str:
        return _reader_uri(self._location, layout.ICEBERG_FOLDER, table)


def _wanted(manifest: Manifest) -> dict[str, tuple[str, int]]:
    """Return name for readers -> the Delta table and its version."""
    tables = {table: (table, state.version) for table, state in manifest.tables.items()}
    views = manifest.views.items()
    return tables | {f"views/{name}": (layout.view(name, state.generation), state.version) for name, state in views}


def _tables(cuts: Iterable[IcebergCut | None]) -> set[str]:
    return {table.table for cut in cuts if cut is not None for table in cut.tables.values()}


def _reader_uri(location: Location, *parts: str) -> str:
    """Return a URI as Iceberg readers take it: Spark's, but ``s3://``, which all of them know."""
    uri = location.spark_uri(*parts)
    return f"s3://{uri.removeprefix('s3a://')}" if uri.startswith("s3a://") else uri


def _read(location: Location, table: str, found: DeltaTable) -> TableVersion:
    """Read the log of a Delta table's version."""
    import pyarrow as pa

    columns = schema_json(found)
    partitioned = tuple(found.metadata().partition_columns)
    types = {column["name"]: column["type"] for column in columns["fields"]}
    files: dict[str, FileFacts] = {}
    for action in pa.table(found.get_add_actions(flatten=False)).to_pylist():
        lows, highs = action.get("min") or {}, action.get("max") or {}
        # The log has paths as URIs, below the table.
        files[_reader_uri(location, table, unquote(action["path"]))] = FileFacts(
            size=action["size_bytes"],
            rows=action["num_records"],
            values=tuple(action["partition"][name] for name in partitioned),
            nulls={name: count for name, count in (action.get("null_count") or {}).items() if isinstance(count, int)},
            lows=_bounds(lows, types),
            highs=_bounds(highs, types),
        )
    return TableVersion(columns=columns, partitioned=partitioned, files=files)


def _bounds(values: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the bounds of whole numbers and dates in Iceberg's form."""
    found = {name: (_BOUNDED.get(str(types[name])), value) for name, value in values.items() if value is not None}
    return {name: to_bytes(kind, value) for name, (kind, value) in found.items() if kind is not None}
