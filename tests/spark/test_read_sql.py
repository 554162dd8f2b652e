"""A query over a cut, for programs: every table and view in it is as of one LSN, and no temporary view is left."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from cdc.errors import SinkBehind, UsageError, ViewRefused
from cdc.lsn import Lsn
from sinks.warehouse import read_sql
from tests.fixtures.lake.small_lakes import SmallLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS: Final = "mirror/public.orders"
JOINED: Final = "select count(o.id) as orders, max(b.n) as n from orders o cross join best b"


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    """Two cuts of a table and a view."""
    made = SmallLake(tmp_path)
    for cut in (1, 2):
        made.write(ORDERS, pa.table({"id": [cut], "total": [Decimal(f"{cut}.00")]}))
        made.view("best", pa.table({"n": [10 * cut]}), sql_sha="x")
        made.publish()
    return made


def rows(spark: SparkSession, lake: SmallLake, sql: str, at: int | str | None = None) -> list[dict[str, object]]:
    return [row.asDict() for row in read_sql(spark, lake.path, sql, at).collect()]


def test_tables_and_views_of_a_query_are_of_one_cut(spark: SparkSession, lake: SmallLake) -> None:
    newest, before = {"orders": 2, "n": 20}, {"orders": 1, "n": 10}

    assert rows(spark, lake, JOINED) == [newest]
    assert rows(spark, lake, JOINED, 1) == rows(spark, lake, JOINED, "0/1FF") == rows(spark, lake, JOINED, Lsn(0x100))
    assert rows(spark, lake, JOINED, 1) == [before]
    assert spark.catalog.listTables() == []


def test_a_frame_stays_at_its_cut_whatever_comes_after(spark: SparkSession, lake: SmallLake) -> None:
    first, other = (read_sql(spark, lake.path, JOINED, cut) for cut in (1, 2))
    lake.write(ORDERS, pa.table({"id": [3], "total": [Decimal("3.00")]}))
    lake.publish()

    assert [frame.collect()[0]["orders"] for frame in (first, other)] == [1, 2]


def test_sql_of_postgres_is_translated_and_what_is_none_is_refused(spark: SparkSession, lake: SmallLake) -> None:
    postgres = (
        "-- dialect: postgres\nselect array_agg(id order by id desc) as ids from orders where total::text like '%.00'"
    )

    assert rows(spark, lake, postgres) == [{"ids": [2, 1]}]
    for wrong in ("drop table orders", "select * from customers", "select wrong from orders", "selec"):
        with pytest.raises(ViewRefused) as caught:
            read_sql(spark, lake.path, wrong)
        assert "mirror_" not in caught.value.message
    with pytest.raises(SinkBehind):
        read_sql(spark, lake.path, JOINED, "0/300")
    with pytest.raises(UsageError):
        read_sql(spark, lake.path, JOINED, 7)
    assert spark.catalog.listTables() == []
