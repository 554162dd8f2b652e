"""Writes one table's Iceberg metadata: a snapshot for a cut, and the removal of snapshots of cuts that are not kept.

The files of a table, in ``_iceberg/<table>/metadata``, are those of Iceberg's Hadoop layout:

- ``m<cut>.avro``: the data files of the cut's snapshot, with those that it added and removed. Each snapshot has its
  own manifest, so both are removed together.
- ``snap-<cut>.avro``: the list of manifests, which names this one.
- ``v<cut>.metadata.json``: the table as of the cut.
- ``version-hint.text``: the number of the newest metadata file.

All names and contents follow from the cut and the metadata before it. So a repeated attempt replaces the files of the
interrupted one. The number of a snapshot is that of its cut. Data files are those of the Delta table; no file is read.
"""

from __future__ import annotations

import uuid
import zlib
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.exceptions import ValidationError
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from sinks.warehouse.iceberg.column_types import FieldIds, schema_of

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from sinks.warehouse.iceberg.metadata_files import MetadataFiles

_FORMAT: Final = 2
_HINT: Final = "version-hint.text"
_MAPPING: Final = "schema.name-mapping.default"
_PARTITION_FIELD: Final = 1000  # where Iceberg's own writers begin
_METADATA_FILES_MAX: Final = 20  # besides the newest; a reader opens the one that a cut names at once
_COMPRESSION: Final = "deflate"
# Its decoder has no errors of its own: SystemError is a negative length, MemoryError a very large one.
_DAMAGED: Final = (
    *(ValidationError, ValueError, TypeError, LookupError, ArithmeticError, EOFError, zlib.error),
    *(SystemError, MemoryError, AssertionError),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """A version of a Delta table.

    Attributes:
        columns: in Delta's JSON.
        partitioned: its partition columns, which its files do not contain.
        files: location -> a data file.
    """

    columns: Mapping[str, Any]
    partitioned: tuple[str, ...]
    files: Mapping[str, FileFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A file of a Delta table, from its log: size, rows, partition values, nulls and integer bounds by column."""

    size: int
    rows: int
    values: tuple[Any, ...]
    nulls: Mapping[str, int]
    lows: Mapping[str, bytes]
    highs: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The cut that a snapshot is of."""

    cut: int
    lsn: str
    published_us: int


class TableFiles:
    """The metadata files of one table. One writer.

    Args:
        files: its folder.
        location: of the Iceberg table: the folder above.
    """

    def __init__(self, files: MetadataFiles, location: str) -> None:
        self._files = files
        self._location = location

    def load(self, metadata: str) -> TableMetadataV2:
        """Read a metadata file. Raises FileNotFoundError, ValueError if it is damaged."""
        with _naming_damage(metadata):
            found = FromInputFile.table_metadata(self._files.new_input(metadata))
            if not isinstance(found, TableMetadataV2):
                raise TypeError(f"format version {found.format_version} rather than {_FORMAT}")
        return found

    def add(self, stamp: Stamp, version: TableVersion, base: TableMetadataV2 | None, at: str | None) -> str:
        """Write a snapshot with the files of a version. Returns the location of the new metadata file.

        Args:
            stamp: the cut, newer than all snapshots of `base`.
            version: of the Delta table.
            base: the metadata before; None for a new table.
            at: the location of `base`.
        """
        ids = FieldIds(None if base is None else base.name_mapping())
        schema = _schema(version, ids, base)
        spec = _spec(version, schema)
        number = (0 if base is None else base.last_sequence_number) + 1
        parent = None if base is None else base.current_snapshot()
        manifest, counts = self._manifest(stamp.cut, spec, schema, version, parent)
        snapshots = self._files.location(f"snap-{stamp.cut}.avro")
        with write_manifest_list(
            _FORMAT, self._files.new_output(snapshots), stamp.cut, _id_of(parent), number, _COMPRESSION
        ) as listing:
            if manifest is not None:
                listing.add_manifests([manifest])
        at_ms = max(stamp.published_us // 1000, 0 if base is None else base.last_updated_ms + 1)
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": stamp.cut,
                "parent-snapshot-id": _id_of(parent),
                "sequence-number": number,
                "timestamp-ms": at_ms,
                "manifest-list": snapshots,
                "summary": {
                    "operation": "overwrite" if int(counts["deleted-data-files"]) else "append",
                    **counts,
                    "tailrace.cut": str(stamp.cut),
                    "tailrace.lsn": stamp.lsn,
                },
                "schema-id": schema.schema_id,
            }
        )
        shown = [*(() if base is None else base.snapshots), snapshot]
        metadata = TableMetadataV2.model_validate(
            {
                "location": self._location,
                "table-uuid": uuid.uuid5(uuid.NAMESPACE_URL, self._location) if base is None else base.table_uuid,
                "last-updated-ms": at_ms,
                "last-column-id": ids.last,
                "schemas": _needed_schemas([*(() if base is None else base.schemas), schema], schema, shown),
                "current-schema-id": schema.schema_id,
                "partition-specs": [spec],
                "default-spec-id": spec.spec_id,
                "last-partition-id": _PARTITION_FIELD + len(version.partitioned) - 1,
                "properties": {
                    _MAPPING: ids.mapping().model_dump_json(),
                    "gc.enabled": "false",  # the lake removes files, which belong to Delta tables too
                },
                "current-snapshot-id": stamp.cut,
                "snapshots": shown,
                "snapshot-log": [
                    *(() if base is None else base.snapshot_log),
                    {"snapshot-id": stamp.cut, "timestamp-ms": at_ms},
                ],
                "sort-orders": [UNSORTED_SORT_ORDER],
                "default-sort-order-id": UNSORTED_SORT_ORDER.order_id,
                "refs": {"main": {"snapshot-id": stamp.cut, "type": "branch"}},
                "last-sequence-number": number,
            }
        )
        return self._write(metadata, stamp.cut, base, at)

    def expire(self, cut: int, kept: Collection[int], base: TableMetadataV2, at: str) -> str:
        """Remove the snapshots that no kept cut shows. Returns the location of the metadata, a new one if it changed.

        The avro files go first: if that is interrupted, the next call finds the same snapshots in the metadata.
        """
        current = base.current_snapshot_id
        shown = _shown([snapshot.snapshot_id for snapshot in base.snapshots], sorted(kept)) | {current}
        gone = [snapshot.snapshot_id for snapshot in base.snapshots if snapshot.snapshot_id not in shown]
        if not gone:
            return at
        for number in gone:
            self._files.disk.remove(f"m{number}.avro")
            self._files.disk.remove(f"snap-{number}.avro")
        snapshots = [snapshot for snapshot in base.snapshots if snapshot.snapshot_id in shown]
        known = {snapshot.snapshot_id for snapshot in snapshots}
        left = base.model_copy(
            update={
                "snapshots": [
                    one if one.parent_snapshot_id in known else one.model_copy(update={"parent_snapshot_id": None})
                    for one in snapshots
                ],
                "snapshot_log": [entry for entry in base.snapshot_log if entry.snapshot_id in known],
            }
        )
        left = left.model_copy(update={"schemas": _needed_schemas(left.schemas, left.schema(), snapshots)})
        return self._write(left, cut, base, at)

    def drop(self) -> None:
        """Delete all files."""
        for name in sorted(self._files.disk.names()):
            self._files.disk.remove(name)

    def _write(self, metadata: TableMetadataV2, cut: int, base: TableMetadataV2 | None, at: str | None) -> str:
        location = self._files.location(f"v{cut}.metadata.json")
        log = [] if base is None else list(base.metadata_log)
        if base is not None and at is not None and at != location:
            log.append(MetadataLogEntry.model_validate({"metadata-file": at, "timestamp-ms": base.last_updated_ms}))
        whole = metadata.model_copy(update={"metadata_log": log[-_METADATA_FILES_MAX:]})
        ToOutputFile.table_metadata(whole, self._files.new_output(location), overwrite=True)
        self._files.disk.replace(_HINT, str(cut).encode())
        for entry in log[:-_METADATA_FILES_MAX]:
            self._files.delete(entry.metadata_file)
        return location

    def _manifest(
        self, cut: int, spec: PartitionSpec, schema: Schema, version: TableVersion, parent: Snapshot | None
    ) -> tuple[ManifestFile | None, dict[str, str]]:
        """Write the manifest of a snapshot; None without files. Returns it and the counts of the summary."""
        ids = {field.name: field.field_id for field in schema.fields}
        before = {} if parent is None else dict(self._live(parent))
        added = version.files.keys() - before.keys()
        removed = before.keys() - version.files.keys()
        rows = {path: facts.rows for path, facts in version.files.items()}
        counts = {
            "added-data-files": str(len(added)),
            "deleted-data-files": str(len(removed)),
            "added-records": str(sum(rows[path] for path in added)),
            "deleted-records": str(sum(before[path].data_file.record_count for path in removed)),
            "total-data-files": str(len(rows)),
            "total-records": str(sum(rows.values())),
        }
        if not rows and not removed:
            return None, counts
        output = self._files.new_output(self._files.location(f"m{cut}.avro"))
        writer = write_manifest(_FORMAT, spec, schema, output, cut, _COMPRESSION)
        with writer:
            for path, facts in sorted(version.files.items()):
                own, file = before.get(path), _data_file(path, facts, spec, ids)
                if own is None:
                    writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file))
                else:
                    own.data_file = file
                    writer.existing(own)
            for path in sorted(removed):
                writer.delete(before[path])
        return writer.to_manifest_file(), counts

    def _live(self, snapshot: Snapshot) -> Iterator[tuple[str, ManifestEntry]]:
        with _naming_damage(snapshot.manifest_list):
            for manifest in list(read_manifest_list(self._files.new_input(snapshot.manifest_list))):
                for entry in manifest.fetch_manifest_entry(self._files):
                    yield entry.data_file.file_path, entry


@contextmanager
def _naming_damage(location: str) -> Iterator[None]:
    """Raise ValueError for whatever pyiceberg raises on bytes that are not those of the file."""
    try:
        yield
    except _DAMAGED as error:
        raise ValueError(f"{location} is corrupt: {type(error).__name__}") from error


def _schema(version: TableVersion, ids: FieldIds, base: TableMetadataV2 | None) -> Schema:
    """Return the version's schema: one that the table has, or a new one."""
    known = [] if base is None else base.schemas
    number = max((schema.schema_id for schema in known), default=-1) + 1
    made = schema_of(version.columns, ids, number)
    return next((schema for schema in known if schema == made), made)


def _needed_schemas(schemas: Collection[Schema], current: Schema, snapshots: Collection[Snapshot]) -> list[Schema]:
    """Return the schemas of snapshots, and the current one; each once."""
    used = {current.schema_id, *(snapshot.schema_id for snapshot in snapshots)}
    return list({schema.schema_id: schema for schema in schemas if schema.schema_id in used}.values())


def _spec(version: TableVersion, schema: Schema) -> PartitionSpec:
    """Return identity partitions: a reader takes the value of a column that files lack from the partition."""
    fields = (
        PartitionField(
            source_id=schema.find_field(name).field_id,
            field_id=_PARTITION_FIELD + number,
            transform=IdentityTransform(),
            name=name,
        )
        for number, name in enumerate(version.partitioned)
    )
    return PartitionSpec(*fields, spec_id=0)


def _data_file(path: str, facts: FileFacts, spec: PartitionSpec, ids: Mapping[str, int]) -> DataFile:
    nulls = {ids[name]: count for name, count in facts.nulls.items()}
    return DataFile.from_args(
        _table_format_version=_FORMAT,
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*facts.values),
        record_count=facts.rows,
        file_size_in_bytes=facts.size,
        value_counts=dict.fromkeys(nulls, facts.rows),
        null_value_counts=nulls,
        lower_bounds={ids[name]: value for name, value in facts.lows.items()},
        upper_bounds={ids[name]: value for name, value in facts.highs.items()},
        spec_id=spec.spec_id,
    )


def _id_of(snapshot: Snapshot | None) -> int | None:
    return None if snapshot is None else snapshot.snapshot_id


def _shown(snapshots: list[int], kept: list[int]) -> set[int]:
    """Return the snapshots that a kept cut shows: of each cut, the newest one that is not newer than the cut."""
    ordered = sorted(snapshots)
    following = [*ordered[1:], None]
    return {
        number
        for number, after in zip(ordered, following, strict=True)
        for first in [bisect_left(kept, number)]
        if first < len(kept) and (after is None or kept[first] < after)
    }
