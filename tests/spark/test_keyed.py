"""Rows by key are exactly those of the whole table with such a key, and other files are not read."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.delta.key_rows import files_of_keys, rows_of_keys, stored_rows
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.lake.committer import Txn
from sinks.warehouse.spark.frames import frame_of_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_TABLE: Final = "mirror/public.lines"
_DAY: Final = dt.date(2026, 1, 1)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Ten files of ten keys each, `id` and `day` sorted; `of` is not sorted and has nulls."""
    path = tmp_path_factory.mktemp("keyed")
    committer, version = DeltaRs(path), None
    for cut in range(10):
        ids = range(cut * 10, cut * 10 + 10)
        rows = pa.table(
            {
                "id": pa.array(ids, pa.int32()),
                "of": pa.array([None if number % 9 == 0 else f"o`{number * 7 % 13}" for number in ids], pa.string()),
                "day": pa.array([_DAY + dt.timedelta(number) for number in ids]),
            }
        )
        version = committer.append(_TABLE, rows, base=version, txn=Txn("t", cut + 1))
    assert version is not None
    return path, version


@pytest.mark.parametrize(
    ("keys", "files"),
    [
        ({"id": pa.array([3, 57, 57, 1000], pa.int32())}, 2),
        ({"id": pa.array([], pa.int32())}, 0),
        ({"day": pa.array([_DAY + dt.timedelta(99)])}, 1),
        ({"of": pa.array(["o`1", None])}, 10),
        ({"of": pa.array(["z"])}, 0),
        ({"of": pa.array(["o`7", None]), "id": pa.array([1, 9], pa.int32())}, 1),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else str(value),
)
def test_rows_of_keys_are_those_of_the_whole_table(
    spark: SparkSession, lake: tuple[Path, int], keys: dict[str, pa.Array], files: int
) -> None:
    path, version = lake
    asked = pa.table(keys)
    wanted = {tuple(row.values()) for row in asked.to_pylist()}
    whole = frame_of(spark, path, _TABLE, version).toArrow().to_pylist()

    found = rows_of_keys(spark, path, _TABLE, version, list(keys), asked)

    key = [row for row in whole if tuple(row[name] for name in keys) in wanted]
    assert sorted(map(str, found.toArrow().to_pylist())) == sorted(map(str, key))
    held = stored_rows(path, _TABLE, version, asked, ["of", "id"])
    assert held is not None
    assert sorted(map(str, held.to_pylist())) == sorted(str({"of": row["of"], "id": row["id"]}) for row in key)
    assert len(files_of_keys(pinned(path, _TABLE, version), asked)) == files


def test_keys_may_be_a_frame_and_only_their_files_are_opened(spark: SparkSession, lake: tuple[Path, int]) -> None:
    path, version = lake
    keys = spark.range(42, 45).selectExpr("cast(id as int) as id", "'x' as other")

    found = rows_of_keys(spark, path, _TABLE, version, ["id"], keys)

    assert sorted(row["id"] for row in found.collect()) == [42, 43, 44]
    assert len(found.inputFiles()) == 1


def test_rows_behind_an_empty_chunk_are_in_a_frame(spark: SparkSession) -> None:
    one = pa.table({"n": [1]})
    rows = pa.concat_tables([one, one.slice(0, 0), one, one.slice(0, 0)])
    assert [chunk.num_rows for chunk in rows.to_batches()] == [1, 0, 1]

    assert frame_of_rows(spark, rows).count() == 2
    assert frame_of_rows(spark, rows.slice(0, 0)).count() == 0


def test_floats_are_compared_as_in_postgresql_and_keys_of_another_type_are_left_to_spark(tmp_path: Path) -> None:
    rows = pa.table({"x": [1.5, -0.0, float("nan"), 2.0], "n": pa.array([1, 2, 3, 4], pa.int32())})
    version = DeltaRs(tmp_path).append("views/v/g1", rows, base=None, txn=Txn("t", 1))

    keys = pa.table({"x": [1.5, 0.0, float("nan"), 7.0]})
    floats = stored_rows(tmp_path, "views/v/g1", version, keys, ["n"])
    assert floats is not None
    assert sorted(floats["n"].to_pylist()) == [1, 2, 3]
    assert stored_rows(tmp_path, "views/v/g1", version, pa.table({"n": ["1"]}), ["n"]) is None
    wide = stored_rows(tmp_path, "views/v/g1", version, pa.table({"n": pa.array([1, 1 << 40], pa.int64())}), ["x"])
    assert wide is not None
    assert wide.to_pylist() == [{"x": 1.5}]


def test_more_rows_than_the_driver_is_to_hold_or_read_are_left_to_spark(lake: tuple[Path, int]) -> None:
    path, version = lake
    keys = pa.table({"id": pa.array(range(25, 35), pa.int32())})

    def found(**limits: int) -> int | None:
        rows = stored_rows(path, _TABLE, version, keys, ["id"], **limits)
        return None if rows is None else rows.num_rows

    assert found(rows_max=10, read_max=20) == 10, "two files of ten rows can have them"
    assert found(rows_max=9) is None
    assert found(bytes_max=39) is None, "ten integers of four bytes"
    assert found(read_max=19) is None
