"""Tables that differ only in their schemas, and keys other than the first columns, from PostgreSQL to a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc.config.settings import Kafka
from cdc.errors import UsageError
from cdc.kafka.log_reader import LogReader
from sinks.warehouse.log.java_kafka_options import spark_options
from sinks.warehouse.read.lake_reader import Lake
from sinks.warehouse.read.row_history import history_of
from sinks.warehouse.verify.mirror_check import Verification, verify_mirrors
from tests.fixtures.lake.running_lake import LakeSite, lake_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.fixtures.servers.daemon import CaptureSite


@pytest.fixture
def lake(capture: CaptureSite, spark: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    yield from lake_site(capture, spark, tmp_path)


def test_tables_whose_names_read_the_same_have_mirrors_of_their_own(lake: LakeSite) -> None:
    site = lake.capture
    site.sql(
        'create schema "a.b"',
        "create schema a",
        'create table "a.b".c (id int primary key, one text)',
        'create table a."b.c" (id int primary key, other text)',
    )
    daemon = site.running({"source": {"tables": ["a*.*"]}})
    site.sql("""insert into "a.b".c values (1, 'x')""", """insert into a."b.c" values (2, 'y'), (3, 'z')""")
    manifest = lake.settle(daemon, lake.driver())
    kafka = Kafka(bootstrap=site.bootstrap)
    wanted = Verification(
        spark=lake.spark,
        location=lake.location,
        name=site.name,
        kafka_options=lambda: spark_options(kafka),
        tables=("*",),
        types={},
    )

    assert lake.rows("mirror/a-2eb.c", ["id", "one"]) == [(1, "x")]
    assert lake.rows("mirror/a.b-2ec", ["id", "other"]) == [(2, "y"), (3, "z")]
    with LogReader(kafka, client_id=f"{site.name}.verify") as reader:
        reports = verify_mirrors(wanted, manifest, reader)
    assert sorted((report.compared, report.ok) for report in reports) == [(1, True), (2, True)]


def test_a_row_is_found_by_its_key_wherever_the_columns_of_it_stand(lake: LakeSite) -> None:
    site = lake.capture
    site.sql("create table lines (note text, item int, shop text, primary key (shop, item))")
    daemon = site.running()
    site.sql(
        "insert into lines values ('a', 7, 'x'), ('b', 7, 'y'), ('c', 8, 'x')",
        "update lines set note = 'd' where item = 7",
    )
    manifest = lake.settle(daemon, lake.driver())

    found = history_of(Lake(lake.path), manifest, "lines", ["7", "y"])

    assert (found.key, found.guessed) == ({"item": "7", "shop": "y"}, False)
    assert [change.after and change.after["note"] for change in found.changes] == ["b", "d"]
    with pytest.raises(UsageError, match="the key has 1 values, but it needs 2"):
        history_of(Lake(lake.path), manifest, "lines", ["7"])


def test_column_that_comes_back_with_another_type_sets_the_former_values_aside(lake: LakeSite) -> None:
    site = lake.capture
    site.sql("create table t (id int primary key, n int, v text)")
    daemon = site.running()
    driver = lake.driver()
    site.sql("insert into t values (1, 10, 'a')")
    lake.settle(daemon, driver)
    for number, kind in enumerate(("text", "bool", "int", "text"), start=2):
        site.sql("alter table t drop n", f"insert into t values ({number}, 'b')")
        lake.settle(daemon, driver)
        value = {"text": "'x'", "bool": "true", "int": "77"}[kind]
        site.sql(f"alter table t add n {kind}", f"insert into t values ({number * 10}, 'c', {value})")
        manifest = lake.settle(daemon, driver)

    archive = next(name for name in manifest.tables if name.startswith("archive/"))
    kept = ["id", "n", "_dropped_n_int32", "_dropped_n_bool", "_dropped_n_string"]
    found = {row[0]: row[1:] for row in lake.rows(archive, kept)}
    assert found[1] == (None, 10, None, None)
    assert found[20] == (None, None, None, "x")
    assert found[30] == (None, None, True, None)
    assert found[40] == (None, 77, None, None), "dropped twice with that type: one column"
    assert found[50] == ("x", None, None, None)
    rows = sorted(lake.rows("mirror/public.t", ["id", "n"]))
    assert rows == sorted(site.query("select id, n from t"))


def test_column_renamed_in_case_only_stays_one_column(lake: LakeSite) -> None:
    site = lake.capture
    site.sql("create table t (id int primary key, n int)")
    daemon = site.running()
    driver = lake.driver()
    site.sql("insert into t values (1, 10)")
    lake.settle(daemon, driver)
    site.sql('alter table t rename n to "N"', "insert into t values (2, 20)")
    manifest = lake.settle(daemon, driver)

    archive = next(name for name in manifest.tables if name.startswith("archive/"))
    assert sorted(lake.rows(archive, ["id", "N"])) == [(1, 10), (2, 20)]
    assert lake.rows("mirror/public.t", ["id", "N"]) == [(1, 10), (2, 20)]
