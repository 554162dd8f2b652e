"""A repair of the log seen by topics of views and by Iceberg readers, by a lake that begins later, and a lost topic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import structs

from cdc.errors import SinkGap
from tests.fixtures.capture.repair_scenes import repaired
from tests.fixtures.capture.snapshot_waits import INITIAL, complete
from tests.fixtures.faults.patience_mutants import HASTY
from tests.fixtures.lake.iceberg_reader import IcebergReader
from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.fixtures.servers.waiting import until
from tests.integration.test_lost_topics import delete
from tests.spark.test_lake_iceberg import differs
from tests.spark.test_view_topics import TopicLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sinks.warehouse.driver import LakeDriver
    from sinks.warehouse.lake.manifest import Manifest
    from tests.fixtures.servers.daemon import CaptureSite, Daemon

_VIEW: Final = """-- key: id
-- publish: topic
select o.id, o.note, count(*) as lines, sum(l.price) as total
from orders o join lines l on l.order_id = o.id group by o.id, o.note
"""
_TABLES: Final = (
    "create table orders (id int primary key, note text)",
    "create table lines (order_id int, line int, price int, primary key (order_id, line))",
    "insert into orders select n, 'n' || n from generate_series(1, 20) n",
    "insert into lines select n, l, n + l from generate_series(1, 20) n, generate_series(1, 3) l",
)
_UNSEEN: Final = (
    "delete from orders where id % 5 = 0",
    "update orders set note = 'unseen' where id % 4 = 1",
    "insert into orders values (100, 'new')",
    "insert into lines values (100, 1, 7), (1, 9, 70)",
)
_NAMES: Final = ("public.orders", "public.lines")


@pytest.fixture
def lake(capture: CaptureSite, spark: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    views = tmp_path / "views"
    views.mkdir()
    (views / "documents.sql").write_text(_VIEW)
    capture.sql(*_TABLES)
    yield from lake_site(capture, spark, tmp_path, views=str(views), history=("public.*",), iceberg=True)


def _begun(lake: LakeSite) -> Daemon:
    daemon = lake.capture.running(INITIAL)
    complete(lake.capture, daemon, *_NAMES)
    return daemon


def _folded(lake: LakeSite) -> dict[int, Any]:
    """The newest row of every key in the view's topic."""
    newest = dict(TopicLog(lake).view("documents"))
    return {json.loads(key or b"")["id"]: value["after"] for key, value in newest.items() if value is not None}


def _wanted(lake: LakeSite) -> dict[int, Any]:
    rows = lake.capture.query(
        "select o.id, o.note, count(*), sum(l.price) from orders o join lines l on l.order_id = o.id group by 1, 2"
    )
    return {row[0]: {"id": row[0], "note": row[1], "lines": row[2], "total": int(row[3])} for row in rows}


def _reached(lake: LakeSite, driver: LakeDriver, epoch: int) -> Manifest:
    """Apply the log until the lake has everything that is committed now, in this epoch."""
    lsn = lake.capture.wal()

    def level() -> bool:
        driver.step()
        at = lake.manifest().position
        return at.epoch == epoch and at.end_lsn >= lsn

    until(level, f"the lake at {lsn} in epoch {epoch}", within_s=240)
    return lake.manifest()


def test_topics_of_views_and_iceberg_follow_a_repair_and_never_show_half_of_it(lake: LakeSite) -> None:
    site, reader = lake.capture, IcebergReader(lake.location)
    daemon, driver = _begun(lake), lake.driver()
    before = lake.settle(daemon, driver)
    assert _folded(lake) == _wanted(lake)
    sent = len(TopicLog(lake).view("documents"))
    assert daemon.stop() == 0
    site.sql(f"select pg_drop_replication_slot('{site.slot}')", *_UNSEEN)
    stop = site.daemon(INITIAL).stopped_with()
    repaired(site, stop["command"])
    driver.step()
    assert len(TopicLog(lake).view("documents")) == sent, "the lake waits, and so does its topic"
    assert differs(lake, reader, before) == ""

    daemon = site.running(INITIAL)
    complete(site, daemon, *_NAMES)
    daemon.until_position(site.wal())
    manifest = _reached(lake, driver, 2)

    assert _folded(lake) == _wanted(lake)
    changed = [json.loads(key or b"")["id"] for key, _ in TopicLog(lake).view("documents")[sent:]]
    assert 2 not in changed, "a row that did not change was sent again"
    last = TopicLog(lake).cuts()[-1]
    assert (last.epoch, last.end_lsn, last.cut) == (2, manifest.end_lsn, manifest.cut)
    assert differs(lake, reader, manifest) == ""
    assert differs(lake, reader, before) == "", "the cut before the repair can still be read"


def test_lake_that_begins_after_a_repair_is_exact_and_knows_of_no_gap(lake: LakeSite) -> None:
    site = lake.capture
    daemon = _begun(lake)
    site.sql("update orders set note = 'early' where id = 3")
    daemon.until_position(site.wal())
    assert daemon.stop() == 0
    site.sql(f"select pg_drop_replication_slot('{site.slot}')", *_UNSEEN)
    repaired(site, site.daemon(INITIAL).stopped_with()["command"])
    driver = lake.driver()
    driver.step()
    daemon = site.running(INITIAL)
    complete(site, daemon, *_NAMES)
    site.sql("delete from lines where order_id = 7", "insert into orders values (200, 'late')")
    daemon.until_position(site.wal())

    manifest = _reached(lake, driver, 2)

    assert [lake.differs("public.orders", ["id", "note"]), lake.differs("public.lines", ["order_id", "line"])] == [
        "",
        "",
    ]
    assert all(report.ok for report in lake.verified(manifest))
    assert _folded(lake) == _wanted(lake)
    opened = [row for row in lake.rows("history/public.orders", ["id", "note", "_valid_to_lsn"]) if row[-1] is None]
    assert sorted(row[:-1] for row in opened) == sorted(site.query("select id, note from orders"))


def test_lake_whose_topic_was_lost_keeps_its_cut_and_says_so_and_a_new_one_is_exact(
    lake: LakeSite, spark: SparkSession, tmp_path: Path
) -> None:
    site = lake.capture
    daemon, driver = _begun(lake), lake.driver()
    before = lake.settle(daemon, driver)
    kept = lake.rows("mirror/public.lines", ["order_id", "line", "price"])
    assert daemon.stop() == 0
    delete(site, site.topic("lines"))
    site.sql(*_UNSEEN)
    repaired(site, site.daemon(INITIAL, mutant=HASTY).stopped_with()["command"])
    daemon = site.running(INITIAL)
    complete(site, daemon, *_NAMES)
    daemon.until_position(site.wal())

    with pytest.raises(SinkGap) as stopped:
        _reached(lake, driver, 2)
    driver.close()
    lake.settings = structs.replace(lake.settings, path=str(tmp_path / "other"))
    again = _reached(lake, lake.driver(), 2)

    assert "a repair of the log found a topic deleted" in stopped.value.hint
    assert "another folder" in stopped.value.hint
    assert lake.differs("public.lines", ["order_id", "line", "price"]) == ""
    assert all(report.ok for report in lake.verified(again))
    assert _folded(lake) == _wanted(lake)
    lake.settings = structs.replace(lake.settings, path=str(tmp_path / "lake"))
    assert lake.manifest().cut == before.cut
    assert lake.rows("mirror/public.lines", ["order_id", "line", "price"]) == kept
