"""The wrong source (restored from an older copy, or another cluster) is detected: DIVERGED (A12)."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.servers.daemon import CaptureSite, capture_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack, PostgresServer


@pytest.fixture
def source(make_stack: MakeStack) -> PostgresServer:
    """A PostgreSQL server of the test's own."""
    return make_stack("postgres").postgres


@pytest.fixture
def own_capture(source: PostgresServer, kafka: KafkaServer, topic_prefix: str, tmp_path: Path) -> Iterator[CaptureSite]:
    """A capture of database `shop` of that server, which has run once: one row is in the log."""
    with capture_site(topic_prefix, source.dsn, kafka.bootstrap, tmp_path) as site:
        site.sql("create table t (id int primary key)")
        daemon = site.running()
        daemon.until_position(site.sql("insert into t values (1)"))
        assert daemon.stop() == 0
        yield site


def test_source_restored_from_an_older_copy_is_refused(
    source: PostgresServer, own_capture: CaptureSite, tmp_path: Path
) -> None:
    data = getattr(source, "data", None)
    if data is None:
        pytest.skip("the data folder of a container is not ours to copy")
    source.stop()
    shutil.copytree(data, tmp_path / "copy", symlinks=True)
    source.start()
    daemon = own_capture.running()
    daemon.until_position(own_capture.sql("insert into t select generate_series(2, 1000)"))
    assert daemon.stop() == 0

    source.stop()
    restore(tmp_path / "copy", data)
    source.start()
    stop = own_capture.daemon().stopped_with()

    assert_diverged(stop)
    assert "older copy" in stop["message"] + stop["hint"]
    assert len(own_capture.log().events) == 1000, "nothing was written after the refusal"


def test_another_cluster_with_the_same_names_is_refused(
    own_capture: CaptureSite, make_stack: MakeStack, tmp_path: Path
) -> None:
    other = make_stack("postgres").postgres
    with capture_site(own_capture.name, other.dsn, own_capture.bootstrap, tmp_path) as site:
        site.sql(
            "create table t (id int primary key)",
            f"create publication {site.slot} for table t with (publish_via_partition_root = true)",
            f"select pg_create_logical_replication_slot('{site.slot}', 'pgoutput')",
        )
        stop = site.daemon().stopped_with()

        assert_diverged(stop)
        assert "system_identifier" in stop["message"]


def test_another_cluster_without_our_slot_is_refused_and_gets_none(
    own_capture: CaptureSite, make_stack: MakeStack, tmp_path: Path
) -> None:
    other = make_stack("postgres").postgres
    with capture_site(own_capture.name, other.dsn, own_capture.bootstrap, tmp_path) as site:
        site.sql("create table t (id int primary key)")
        stop = site.daemon().stopped_with()

        assert_diverged(stop)
        assert site.query("select count(*) from pg_replication_slots") == [(0,)]
        assert site.query("select count(*) from pg_publication") == [(0,)]


def test_another_database_of_the_same_cluster_is_refused(own_capture: CaptureSite, tmp_path: Path) -> None:
    own_capture.sql("create database other")
    with capture_site(
        own_capture.name, own_capture.dsn.rpartition("/")[0] + "/other", own_capture.bootstrap, tmp_path
    ) as site:
        site.sql("create table t (id int primary key)")
        stop = site.daemon().stopped_with()

        assert stop["exit_code"] == 3
        assert stop["state"] in {"DIVERGED", "MISCONFIGURED"}


def assert_diverged(stop: dict[str, Any]) -> None:
    """State and exit code."""
    assert stop["state"] == "DIVERGED"
    assert stop["exit_code"] == 3


def restore(copy: Path, data: Path) -> None:
    """Put the copy in place of the data folder, owner and rights as they were."""
    stat = data.stat()
    shutil.rmtree(data)
    shutil.copytree(copy, data, symlinks=True)
    for path in [data, *data.rglob("*")]:
        shutil.chown(path, stat.st_uid, stat.st_gid)
