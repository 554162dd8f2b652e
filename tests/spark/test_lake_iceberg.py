"""Iceberg readers of a running lake: every cut is one LSN of all tables, under DDL, with history and a view."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sinks.warehouse import driver as of_driver
from sinks.warehouse.lake import layout
from sinks.warehouse.lake_observer import Unobserved
from tests.fixtures.lake.iceberg_reader import IcebergReader
from tests.fixtures.lake.running_lake import LakeSite, lake_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sinks.warehouse.lake.manifest import Manifest
    from tests.fixtures.servers.daemon import CaptureSite


@pytest.fixture
def lake(capture: CaptureSite, spark: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    views = tmp_path / "views"
    views.mkdir()
    (views / "per_name.sql").write_text("select name, count(*) as n from public.t group by name")
    yield from lake_site(
        capture, spark, tmp_path, views=str(views), history=("public.*",), iceberg=True, keep_cuts=2, interval_s=0
    )


class _Seen(Unobserved):
    def __init__(self) -> None:
        self.iceberg_at: list[tuple[int, str]] = []

    def iceberg(self, cut: int, behind: str) -> None:
        self.iceberg_at.append((cut, behind))


def differs(lake: LakeSite, reader: IcebergReader, manifest: Manifest) -> str:
    tables = {table: (table, state.version) for table, state in manifest.tables.items()}
    views = manifest.views.items()
    tables |= {f"views/{name}": (layout.view(name, state.generation), state.version) for name, state in views}
    return reader.differs(reader.cut(manifest.cut), tables)


def test_iceberg_readers_see_each_cut_under_ddl_with_history_and_a_view(
    lake: LakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_driver, "_PRUNE_EVERY", 1 << 30)  # first all cuts, then few
    site, seen = lake.capture, _Seen()
    site.sql("create table t (id int primary key, name text, total int)")
    daemon = site.running()
    driver, reader = lake.driver(seen), IcebergReader(lake.location)
    manifests: list[Manifest] = []
    for statements in (
        ["insert into t select n, 'row ' || n % 3, n from generate_series(1, 50) n"],
        ["alter table t add column more numeric(12,2)", "insert into t values (100, 'added', 1, 1.5)"],
        ["alter table t drop column total", "update t set name = 'dropped' where id < 5"],
        ["alter table t alter column more type text", "update t set more = 'text' where id = 100"],
        ["alter table t alter column id type bigint", "insert into t values (5000000000, 'wide', null)"],
        ["delete from t where id % 2 = 0", "alter table t add column total boolean", "update t set total = true"],
        ["truncate t", "insert into t values (1, 'last', 'x', false)"],
    ):
        site.transaction(*statements)
        manifests.append(lake.settle(daemon, driver))

    assert [differs(lake, reader, manifest) for manifest in manifests] == [""] * len(manifests)
    assert seen.iceberg_at[-1] == (manifests[-1].cut, "")
    newest = reader.cut()
    assert [row["name"] for row in reader.rows(newest, "mirror/public.t").to_pylist()] == ["last"]
    opened = reader.table(newest, "history/public.t").scan(row_filter="_open = true").to_arrow()
    assert [(row["id"], row["name"], row["_valid_to_lsn"]) for row in opened.to_pylist()] == [(1, "last", None)]
    assert reader.rows(newest, "views/per_name").to_pylist() == [{"name": "last", "n": 1}]

    monkeypatch.setattr(of_driver, "_PRUNE_EVERY", 1)
    site.sql("insert into t (id, name) values (2, 'after')")
    manifests.append(lake.settle(daemon, driver))
    kept = [manifest for manifest in manifests if manifest.cut in driver._parts.store.cuts()]

    files = {path.name for path in (lake.path / "_iceberg").glob("0*.json")}
    assert len(files) == 2
    assert len(kept) >= 1
    assert [differs(lake, reader, manifest) for manifest in kept] == [""] * len(kept), "vacuum removed a needed file"


def test_lake_that_gets_iceberg_later_or_stopped_before_it_catches_up_without_a_new_cut(lake: LakeSite) -> None:
    site = lake.capture
    site.sql("create table t (id int primary key, name text)", "insert into t values (1, 'a')")
    daemon = site.running()
    driver = lake.driver()
    driver._parts.iceberg = None
    manifest = lake.settle(daemon, driver)
    driver.close()

    seen = _Seen()
    after = lake.driver(seen)
    after._resume()

    assert seen.iceberg_at == [(manifest.cut, "")]
    assert differs(lake, IcebergReader(lake.location), manifest) == ""
