"""What runs in executors, without Spark: one file in, new files and a report out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc.errors import InvariantError, LakeDamaged
from sinks.warehouse.delta.key_ranges import FileRange
from sinks.warehouse.delta.table_files import SMALL_BYTES
from sinks.warehouse.distributed.file_tasks import (
    Report,
    TableFiles,
    close_file,
    merge_file,
    reported,
    reported_parts,
    write_new,
    write_versions,
)
from sinks.warehouse.lake.location import Location
from tests.fixtures.lake.lake_tables import batch, closing, kv, versions_rows

if TYPE_CHECKING:
    from pathlib import Path


def table(folder: Path, rows: pa.Table, file_rows: int = 1000) -> TableFiles:
    return TableFiles(
        location=Location.of(folder),
        table="t",
        schema=rows.schema,
        key=("k",),
        file_bytes=1 << 20,
        file_rows=file_rows,
        indexed=32,
        small_bytes=SMALL_BYTES,
    )


def begun(files: TableFiles, rows: pa.Table, *, versions: bool = False) -> FileRange:
    """Write a file, and return it as the log has it."""
    (added,) = (write_versions if versions else write_new)(files, rows).added
    return FileRange(added.path, added.size, rows.num_rows, None, None)


def found(files: TableFiles, report: Report) -> list[dict[str, Any]]:
    folder = files.location.folder
    assert folder is not None
    return [
        row for one in report.added for row in pq.read_table(folder / "t" / one.path, partitioning=None).to_pylist()
    ]


def ends(closes: pa.Table, versions: pa.Table, *new: int) -> pa.Table:
    """What a file of a history gets: versions to end, and those of `versions` at these positions to add."""
    closed = [{"key": one, "new": None} for one in closes.to_pylist()]
    added = [{"key": None, "new": versions.slice(at, 1).to_pylist()[0]} for at in new]
    kinds = [("key", pa.struct(list(closes.schema))), ("new", pa.struct(list(versions.schema)))]
    return pa.Table.from_pylist(closed + added, schema=pa.schema(kinds))


def test_file_takes_updates_deletes_and_new_keys_in_order_of_its_key(tmp_path: Path) -> None:
    rows = kv({1: "a", 3: "c", 5: "e"})
    files = table(tmp_path, rows)

    report = merge_file(files, begun(files, rows), batch({3: "new", 4: "d", 5: None, 9: None}))

    assert [(row["k"], row["v"]) for row in found(files, report)] == [(1, "a"), (3, "new"), (4, "d")]
    assert report.columns is None, "rows were added and deleted"


def test_report_of_updates_names_the_columns_that_changed(tmp_path: Path) -> None:
    rows = kv({1: "a", 3: "c"})
    files = table(tmp_path, rows)
    file = begun(files, rows)

    assert merge_file(files, file, batch({3: "new"})).columns == ("v",)
    assert merge_file(files, file, batch({3: "c"})).columns == ()


def test_version_that_ends_moves_to_a_file_of_ended_ones(tmp_path: Path) -> None:
    rows = versions_rows((1, "a", 10, None), (2, "b", 20, None))
    files = table(tmp_path, rows)

    report = close_file(files, begun(files, rows, versions=True), ends(closing(30, 2, 7), rows))

    by_state = {one.partition["_open"]: one for one in report.added}
    assert all(one.path.startswith(f"_open={value}/") for value, one in by_state.items())
    assert [(row["k"], row["_valid_to_lsn"]) for row in found(files, Report((by_state["true"],)))] == [(1, None)]
    (ended,) = found(files, Report((by_state["false"],)))
    assert (ended["k"], ended["v"], ended["_valid_from_lsn"], ended["_valid_to_lsn"]) == (2, "b", 20, 30)
    assert ended["_valid_to"].timestamp() == 30


def test_new_version_takes_its_place_in_the_file_of_the_ended_one(tmp_path: Path) -> None:
    rows = versions_rows((1, "a", 10, None), (3, "c", 20, None), (1, "new", 30, None), (2, "b", 30, None))
    files = table(tmp_path, rows)

    report = close_file(files, begun(files, rows.slice(0, 2), versions=True), ends(closing(30, 1), rows, 2, 3))

    (opens,) = [one for one in report.added if one.partition["_open"] == "true"]
    assert [(row["k"], row["v"]) for row in found(files, Report((opens,)))] == [(1, "new"), (2, "b"), (3, "c")]


def test_file_that_is_not_small_and_has_none_of_the_keys_stays_and_leaves_new_rows(tmp_path: Path) -> None:
    mirrored, versions = kv({1: "a", 9: "z"}), versions_rows((1, "a", 10, None), (5, "e", 20, None))
    mirror, history = (replace(table(tmp_path, one), small_bytes=0) for one in (mirrored, versions))

    merge = merge_file(mirror, begun(mirror, mirrored), batch({3: "c", 4: None, 5: "e"}))
    file = begun(history, versions.slice(0, 1), versions=True)
    close = close_file(history, file, ends(closing(30, 7), versions, 1))

    assert (merge, close) == (Report(left=2), Report(left=1))


def test_rows_of_a_partition_are_written_in_files_of_bounded_size_and_reported_once(tmp_path: Path) -> None:
    files = table(tmp_path, kv({}), file_rows=10)
    parts = [kv(dict.fromkeys(range(at, at + 25), "x")).to_struct_array().combine_chunks() for at in range(0, 100, 25)]

    answers = list(reported_parts("t", partial(write_new, files), iter(parts), 10, bytes_max=1 << 20))

    assert [len(one) for one in answers] == [25] * 4
    (text,) = [value for one in answers for value in one.to_pylist() if value is not None]
    reports = msgspec.json.decode(text, type=list[Report])
    assert sorted(row["k"] for one in reports for row in found(files, one)) == list(range(100))
    assert max(len(found(files, Report((added,)))) for one in reports for added in one.added) <= 15


def test_large_rows_are_held_up_to_a_number_of_bytes_and_refused_by_a_task_that_needs_all(tmp_path: Path) -> None:
    files = table(tmp_path, kv({}))
    parts = [kv(dict.fromkeys(range(at, at + 5), "x" * 100)).to_struct_array().combine_chunks() for at in (0, 5, 10)]
    bytes_max = 2 * parts[0].nbytes

    def reports(rows_max: int | None) -> list[Report]:
        answers = list(reported_parts("t", partial(write_new, files), iter(parts), rows_max, bytes_max=bytes_max))
        assert [len(one) for one in answers] == [5] * len(parts)
        (text,) = [value for one in answers for value in one.to_pylist() if value is not None]
        return msgspec.json.decode(text, type=list[Report])

    assert [len(found(files, one)) for one in reports(1000)] == [10, 5]
    assert reports(None) == [Report(left=15)]
    parts.pop()
    assert [len(found(files, one)) for one in reports(None)] == [10]


def test_error_of_a_task_reaches_the_driver_with_its_class(tmp_path: Path) -> None:
    files = table(tmp_path, kv({}))
    twice = pa.concat_tables([batch({1: "a"}), batch({1: "b"})]).combine_chunks().to_struct_array().combine_chunks()
    lost = FileRange("part-lost.parquet", 1, 1, None, None)

    def done(file: FileRange, rows: pa.StructArray) -> Report:
        return msgspec.json.decode(reported("t", partial(merge_file, files, file), rows), type=Report)

    with pytest.raises(InvariantError, match="contains a key twice"):
        done(lost, twice).check("t")
    with pytest.raises(LakeDamaged, match="lost or corrupt"):
        done(lost, twice.slice(0, 1)).check("t")
