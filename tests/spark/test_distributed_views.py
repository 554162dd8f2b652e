"""Views of a distributed lake: the tests of views that are kept by keys, with all rows in the executors."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from cdc.errors import ViewRefused
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.lake.committer import Txn
from sinks.warehouse.lake.location import Location
from sinks.warehouse.views.frame_diff import FrameVersions
from sinks.warehouse.views.version_diff import Pin
from sinks.warehouse.views.view_keys import check_stored_key
from tests.fixtures.lake.running_lake import COMMITTER
from tests.spark.test_kept_views import (  # noqa: F401 - they run here again
    test_every_view_is_what_its_query_gives_after_each_cut,
    test_view_is_right_whatever_the_attempt_after_a_kill_does,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLE = "views/v/g1"
KEYED = pa.schema([("rows", pa.int64()), ("k0", pa.string())])
KINDS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(10, 2))])


@pytest.fixture(autouse=True)
def distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMITTER, "distributed")


def _rows(prices: dict[int, int], year_us: int = 0) -> pa.Table:
    rows = [{"id": one, "at": year_us + one, "price": price} for one, price in prices.items()]
    return pa.Table.from_pylist(rows, schema=KINDS)


def _versions(spark: SparkSession, folder: Path, old: Pin | None, new: Pin) -> FrameVersions:
    return FrameVersions(Location.of(folder), "shop", "v", ("id",), old, new, spark)


def test_executors_find_each_key_that_is_new_changed_or_gone_in_order_of_the_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of several files, of which some are in both versions."""
    lake = DeltaRs(tmp_path)
    one = lake.overwrite(TABLE, _rows({n: n for n in range(100)}), base=None, txn=Txn("v", 1))
    two = lake.append(TABLE, _rows({n: n for n in range(100, 130)}), base=one, txn=Txn("v", 2))
    keys = pa.table({"id": pa.array([3, 4, 5, -5], pa.int64())})
    three = lake.replace_keys(TABLE, keys, _rows({3: 7, 4: 4, -5: 1}), base=two, txn=Txn("v", 3))

    versions = _versions(spark, tmp_path, Pin(TABLE, two), Pin(TABLE, three))
    found = list(versions.differences())
    assert len(versions.shared_files) == 1
    assert [(one.op, msgspec.json.decode(one.key)) for one in found] == [
        ("c", {"id": -5}),
        ("u", {"id": 3}),
        ("d", {"id": 5}),
    ]
    rows: list[Any] = [None if one.row is None else msgspec.json.decode(one.row) for one in found]
    assert rows[1] == {"id": 3, "at": "1970-01-01T00:00:00.000003+00:00", "price": "7.00"}
    assert rows[2] is None
    assert list(versions.differences()) == found
    versions.release()

    first = _versions(spark, tmp_path, None, Pin(TABLE, one))
    assert sorted(msgspec.json.decode(each.key)["id"] for each in first.differences()) == list(range(100))
    first.release()


def test_a_value_that_a_topic_cannot_have_refuses_the_view_before_a_difference_is_sent(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = pa.concat_tables([_rows({1: 1}), _rows({2: 2}, year_us=400_000_000_000_000_000)])
    version = DeltaRs(tmp_path).overwrite(TABLE, rows, base=None, txn=Txn("v", 1))
    versions = _versions(spark, tmp_path, None, Pin(TABLE, version))
    with pytest.raises(ViewRefused, match="has a value that a topic cannot have"):
        next(versions.differences())
    versions.release()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(1, "a"), (1, "b"), (2, "a")], ""),
        ([], ""),
        ([(1, "a"), (1, "a"), (2, "b")], "3 rows have 2 keys"),
        ([(1, None), (1, None), (2, "b")], "k0 is null in 2 rows"),
    ],
)
def test_executors_refuse_a_key_that_is_null_or_not_unique(
    spark: SparkSession, tmp_path: Path, rows: list[tuple[int, str | None]], said: str
) -> None:
    """The key has names of our own columns, in the other order."""
    table = pa.table({"rows": [one for one, _ in rows], "k0": [two for _, two in rows]}, schema=KEYED)
    pin = Pin(TABLE, DeltaRs(tmp_path).overwrite(TABLE, table, base=None, txn=Txn("v", 1)))

    with nullcontext() if not said else pytest.raises(ViewRefused, match=said):
        check_stored_key(spark, Location.of(tmp_path), "v", pin, ["k0", "rows"])
