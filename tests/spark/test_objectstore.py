"""The lake in an object store, end to end: written by deltalake, read by Spark through Hadoop's S3A."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import pytest

from cdc.config.secret import Secret
from cdc.errors import LakeDamaged, SinkUnfit
from sinks.warehouse import read_changes, read_cut, view_at
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import ManifestStore
from sinks.warehouse.lake.object_disk import ObjectDisk
from sinks.warehouse.spark.storage_options import check_connector, read_options
from tests.fixtures.lake.edges import Killed, listen
from tests.fixtures.lake.lake_tables import kv
from tests.fixtures.lake.lake_truth import TableTruth, Truth
from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.fixtures.lake.small_lakes import SmallLake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sinks.warehouse.driver import LakeDriver
    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.object_store import ObjectStore

VIEW: Final = "select count(*) as n, sum(a) as a from t"


@pytest.fixture
def lake(capture: CaptureSite, spark: SparkSession, tmp_path: Path, object_store: ObjectStore) -> Iterator[LakeSite]:
    """With the table `t`, which has large values, its history, and a view of it."""
    capture.sql(
        "create table t (id int primary key, a int, doc text)", "alter table t alter column doc set storage external"
    )
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "sums.sql").write_text(f"{VIEW}\n")
    storage = {name: Secret(value) for name, value in object_store.options.items()}
    place = {"path": object_store.url(), "storage": storage}
    yield from lake_site(capture, spark, tmp_path, **place, views=str(tmp_path / "views"), history=("public.t",))


def test_lake_in_an_object_store_is_exact_after_a_dead_driver_and_spark_reads_it(
    lake: LakeSite, object_store: ObjectStore
) -> None:
    site, spark, url, storage = lake.capture, lake.spark, lake.settings.path, object_store.options
    oracle, daemon = site.oracle(), site.running()
    site.sql("insert into t select n, n, repeat(chr(64 + n), 9000) from generate_series(1, 20) n")
    first = lake.settle(daemon, lake.driver())

    # The large value of row 7 is not sent again, so the driver reads the mirror by Spark.
    site.sql("update t set a = 100 where id = 7", "delete from t where id > 15")
    daemon.until_position(site.sql("insert into t values (99, 9, 'x')"))
    die_before("merge", lake.driver())
    resume(lake.driver())
    store = ManifestStore(lake.location)
    last = lake.manifest()

    assert (store.cuts(), store.pending()) == ([1, 2], None)
    truth = Truth([TableTruth("public.t", ("id",), large=("doc",))], oracle.transactions(["public.t"]))
    assert [fault for cut in store.cuts() for fault in truth.faults(lake.location, store.at(cut))] == []
    frame = read_cut(spark, url, "t", storage=storage)
    found = sorted((tuple(row) for row in frame.select("id", "a", "doc").collect()), key=repr)
    assert found == lake.source_rows("t", ["id", "a", "doc"])
    assert read_cut(spark, url, "t", first.end_lsn, storage=storage).count() == 20
    assert read_cut(spark, url, "history.t", storage=storage).count() == 22
    assert read_changes(spark, url, "t", first.end_lsn, last.end_lsn, storage=storage).count() == 7
    sums = view_at(spark, url, "sums", storage=storage).select("n", "a").collect()
    assert [tuple(row) for row in sums] == site.query(VIEW)
    plan = frame._jdf.queryExecution().toString()
    assert not [value for value in (object_store.key, object_store.secret) if value in plan]


def die_before(edge: str, driver: LakeDriver) -> None:
    """Let a driver begin the next cut, and fail there."""

    def die(name: str) -> None:
        if name.startswith(edge):
            raise Killed(name)

    dying = listen(driver, die)
    with pytest.raises(Killed):
        dying.step()
    dying.close()


def resume(driver: LakeDriver) -> None:
    """Let a driver finish the open cut, and no more."""
    stop = threading.Event()
    stop.set()
    driver.run(stop)
    driver.close()


def test_objects_that_are_gone_are_damage(spark: SparkSession, object_store: ObjectStore) -> None:
    place = object_store.lake()
    small = SmallLake(place)
    version = small.write("mirror/public.t", kv({1: "a"}))
    assert frame_of(spark, place, "mirror/public.t", version).count() == 1

    disk = ObjectDisk(place, "mirror/public.t")
    for name in disk.names():
        disk.remove(name)
    with pytest.raises(LakeDamaged, match="files of the lake are gone: PATH_NOT_FOUND"):
        frame_of(spark, place, "mirror/public.t", version)


def test_missing_connector_is_named_with_the_version_of_this_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SinkUnfit, match="no connector for gs://") as raised:
        check_connector(spark, Location.of("gs://bucket/lake"))

    hadoop = spark.sparkContext._jvm.org.apache.hadoop.util.VersionInfo.getVersion()  # type: ignore[union-attr]
    assert f'"spark.jars.packages" = "org.apache.hadoop:hadoop-gcp:{hadoop}"' in str(raised.value.hint)
    check_connector(spark, Location.of("s3://bucket/lake"))
    check_connector(spark, Location.of(tmp_path))


def test_settings_of_the_session_win(spark: SparkSession, object_store: ObjectStore) -> None:
    place = object_store.lake()
    ours = read_options(spark, place)
    assert {"fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.endpoint"} <= ours.keys()

    spark.conf.set("spark.hadoop.fs.s3a.endpoint", "http://theirs:9000")
    try:
        assert read_options(spark, place).keys() == ours.keys() - {"fs.s3a.endpoint"}
    finally:
        spark.conf.unset("spark.hadoop.fs.s3a.endpoint")
