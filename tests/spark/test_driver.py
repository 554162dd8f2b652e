"""The lake end to end: PostgreSQL, capture, Kafka, Spark, Delta."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from cdc.errors import SinkUnfit
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.log.cut_reader import read_schemas
from tests.fixtures.capture.snapshot_waits import SMALL_CHUNKS, complete
from tests.fixtures.lake.running_lake import LakeSite, lake_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.fixtures.servers.daemon import CaptureSite


@pytest.fixture
def lake(capture: CaptureSite, spark: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    views = tmp_path / "views"
    views.mkdir()
    yield from lake_site(capture, spark, tmp_path, views=str(views), history=("public.*",))


def test_mirror_is_the_table_after_inserts_updates_deletes_and_key_changes(lake: LakeSite) -> None:
    site = lake.capture
    site.sql(
        "create table t (id int primary key, name text, total numeric(12,2), at timestamptz, day date, ok boolean, "
        "big bigint, ratio double precision, raw bytea)"
    )
    daemon = site.running()
    driver = lake.driver()
    columns = ["id", "name", "total", "at", "day", "ok", "big", "ratio", "raw"]

    site.sql(
        "insert into t select n, 'row ' || n, n * 1.25, timestamptz '2026-11-21 10:00:00.12345+02' + n * interval '1s',"
        " date '2026-01-01' + n, n % 2 = 0, 9007199254740993 + n, n / 3.0, decode('00ff', 'hex')"
        " from generate_series(1, 50) n",
        "insert into t (id) values (1000)",
    )
    lake.settle(daemon, driver)
    assert lake.differs("public.t", columns) == ""

    site.sql(
        "update t set name = 'other', total = null where id % 3 = 0",
        "delete from t where id % 7 = 0",
        "update t set id = id + 500 where id % 11 = 0",
        "insert into t (id, name) values (7, 'back')",
    )
    lake.settle(daemon, driver)

    assert lake.differs("public.t", columns) == ""


def test_truncate_empties_the_mirror_and_ends_every_version(lake: LakeSite) -> None:
    site = lake.capture
    site.sql("create table t (id int primary key, name text)")
    daemon = site.running({"capture": {"batch_rows_max": 10}})
    driver = lake.driver()
    site.sql("insert into t select n, 'before' from generate_series(1, 60) n")
    lake.settle(daemon, driver)

    site.transaction("insert into t values (100, 'short')", "truncate t", "insert into t values (1, 'after')")
    site.sql("update t set name = 'last'")
    manifest = lake.settle(daemon, driver)

    assert lake.differs("public.t", ["id", "name"]) == ""
    found = lake.rows("history/public.t", ["id", "name", "_valid_to_lsn"], manifest)
    assert len(found) == 63
    assert [row[:2] for row in found if row[2] is None] == [(1, "last")]


def test_history_has_every_version_with_where_it_begins_and_ends(lake: LakeSite) -> None:
    site = lake.capture
    site.sql("create table t (id int primary key, name text)")
    daemon = site.running()
    driver = lake.driver()

    for statement in ("insert into t values (1, 'a')", "update t set name = 'b'"):
        site.sql(statement)
    lake.settle(daemon, driver)
    for statement in ("update t set name = 'c'", "delete from t", "insert into t values (1, 'd')"):
        site.sql(statement)
    manifest = lake.settle(daemon, driver)
    found = lake.rows("history/public.t", ["_valid_from_lsn", "_valid_to_lsn", "id", "name"], manifest)

    found.sort()
    assert [row[3] for row in found] == ["a", "b", "c", "d"]
    assert [row[1] for row in found[:2]] == [row[0] for row in found[1:3]], "one ends where the next begins"
    assert found[2][1] is not None
    assert found[2][1] < found[3][0], "between delete and insert there is no version"
    assert found[3][1] is None


def test_view_is_published_with_the_cut_and_equals_the_query_in_postgresql(lake: LakeSite, tmp_path: Path) -> None:
    site = lake.capture
    site.sql(
        "create table customers (id int primary key, country text)",
        "create table orders (id int primary key, customer_id int, total numeric(10,2))",
    )
    query = (
        "select country, count(*) as n, sum(total) as total"
        " from orders join customers on customers.id = customer_id group by country"
    )
    (tmp_path / "views" / "revenue.sql").write_text(f"{query}\n")
    daemon = site.running()
    driver = lake.driver()

    site.sql(
        "insert into customers values (1, 'CH'), (2, 'FR')",
        "insert into orders select n, n % 2 + 1, n from generate_series(1, 20) n",
    )
    lake.settle(daemon, driver)
    site.sql("delete from orders where id < 5", "update customers set country = 'IT' where id = 2")
    manifest = lake.settle(daemon, driver)
    state = manifest.views["revenue"]
    found = pinned(lake.path, "views/revenue/g1", state.version).to_pyarrow_table().to_pylist()

    assert state.cut == manifest.cut
    wanted = site.query(query)
    assert sorted((row["country"], row["n"], row["total"]) for row in found) == sorted(wanted)


def test_view_in_sql_of_postgresql_has_the_types_of_the_captured_tables(lake: LakeSite, tmp_path: Path) -> None:
    site = lake.capture
    site.sql(
        "create type mood as enum ('good', 'bad')",
        "create table goods (id int primary key, code char(5), kind varchar(9), price numeric(10,2), mood mood)",
    )
    query = (
        "select code, kind, avg(price) as mean, sum(id) / 2 as half, count(*) as n"
        " from goods where code in ('ab', 'c') and mood <> 'bad' group by code, kind"
    )
    (tmp_path / "views" / "prices.sql").write_text(f"-- dialect: postgres\n{query}\n")
    (tmp_path / "views" / "refused.sql").write_text("-- dialect: postgres\nselect max(kind) as most from goods\n")
    daemon = site.running()
    driver = lake.driver()

    site.sql("insert into goods values (1, 'ab', 'x ', 1.00, 'good'), (2, 'ab', 'x ', 2.00, null)")
    site.sql("insert into goods values (3, 'c', 'y', 5.55, 'good'), (4, 'ab', 'x ', 9.99, 'bad')")
    site.sql("insert into goods values (5, 'ab', 'x ', 3.01, 'good')")
    manifest = lake.settle(daemon, driver)

    assert sorted(lake.view_rows("prices", manifest)) == sorted(site.query(query))
    assert "collation of the database" in manifest.unbuilt["refused"].reason


def test_rows_of_a_snapshot_are_in_mirror_history_and_views(lake: LakeSite, tmp_path: Path) -> None:
    site = lake.capture
    site.sql(
        "create table t (id int primary key, n int)",
        "insert into t select n, n from generate_series(1, 500) n",
        "create table never_read (id int primary key)",
    )
    (tmp_path / "views" / "total.sql").write_text("select sum(n) as total from t", encoding="utf-8")
    daemon = site.running(SMALL_CHUNKS, mutant="slow_chunks:50")
    driver = lake.driver()
    site.sql(
        "update t set n = n + 1000 where id % 5 = 0", "delete from t where id % 7 = 0", "insert into t values (0, 0)"
    )
    complete(site, daemon, "public.t")

    manifest = lake.settle(daemon, driver)

    assert lake.differs("public.t", ["id", "n"]) == ""
    found = lake.rows("history/public.t", ["id", "_valid_to_lsn"], manifest)
    assert sorted(row[0] for row in found if row[1] is None) == [n for n in range(501) if n % 7 or not n]
    view = pinned(lake.path, "views/total/g1", manifest.views["total"].version).to_pyarrow_table().to_pylist()
    assert [(row["total"],) for row in view] == site.query("select sum(n) from t")


def test_unchanged_large_value_keeps_what_the_row_had(lake: LakeSite) -> None:
    site = lake.capture
    site.sql(
        "create table t (id int primary key, note text, doc text)",
        "alter table t alter column doc set storage external",
    )
    daemon = site.running()
    driver = lake.driver()

    site.sql("insert into t select n, 'x', repeat(chr(64 + n), 9000) from generate_series(1, 3) n")
    lake.settle(daemon, driver)
    site.sql(
        "update t set note = 'y' where id = 1",
        "update t set doc = null where id = 2",
        "update t set note = 'z' where id = 2",
    )
    lake.settle(daemon, driver)

    assert lake.differs("public.t", ["id", "note", "doc"]) == ""


def test_columns_that_come_and_go_and_change_their_type_or_name_are_followed(lake: LakeSite) -> None:
    site = lake.capture
    site.sql("create table t (id int primary key, a int, b text)")
    daemon = site.running()
    driver = lake.driver()
    site.sql("insert into t select n, n, 'b' || n from generate_series(1, 10) n")
    lake.settle(daemon, driver)

    site.sql("alter table t add column c text", "insert into t values (11, 11, 'b', 'c')")
    lake.settle(daemon, driver)
    assert lake.differs("public.t", ["id", "a", "b", "c"]) == ""
    site.sql("alter table t rename column b to bb", "update t set a = a + 1 where id < 3")
    lake.settle(daemon, driver)
    assert lake.differs("public.t", ["id", "a", "bb", "c"]) == ""
    site.sql(
        "alter table t alter column a type bigint",
        "alter table t drop column c",
        "insert into t values (12, 1 << 30, 'x')",
    )
    lake.settle(daemon, driver)

    assert lake.differs("public.t", ["id", "a", "bb"]) == ""
    assert lake.columns("mirror/public.t") == ["id", "a", "bb"]


def test_schema_that_came_without_a_row_is_found_with_its_first_row(lake: LakeSite) -> None:
    """A TRUNCATE that is passed over writes its table's new schema, and nothing else."""
    site = lake.capture
    site.sql("create table t (id int primary key, a text)")
    daemon = site.running({"source": {"on_truncate": "ignore"}})
    driver = lake.driver()
    site.sql("insert into t values (1, 'x')")
    lake.settle(daemon, driver)
    before = len(read_schemas(driver._parts.reader, site.name))
    site.sql("delete from t", "alter table t add column c text", "truncate t")
    lake.settle(daemon, driver)
    assert len(read_schemas(driver._parts.reader, site.name)) == before + 1, "the test is weaker than it says"

    site.sql("insert into t values (2, 'y', 'new')")
    lake.settle(daemon, driver)

    assert lake.differs("public.t", ["id", "a", "c"]) == ""


def test_added_column_leaves_the_files_of_a_table_as_they_are(lake: LakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the new column is one that an update did not send."""
    for committer in ("delta.deltars", "distributed.spark_delta"):  # else a small file takes the new row
        monkeypatch.setattr(f"sinks.warehouse.{committer}.SMALL_BYTES", 0)
    site = lake.capture
    site.sql("create table t (id int primary key, a text)")
    daemon = site.running()
    driver = lake.driver()
    site.sql("insert into t select n, 'x' from generate_series(1, 10) n")
    manifest = lake.settle(daemon, driver)
    tables = DeltaRs(str(lake.path))
    before = tables.files("mirror/public.t", manifest.tables["mirror/public.t"].version)

    large = "(select string_agg(md5(n::text), '') from generate_series(1, 2000) n)"
    site.sql(
        "alter table t add column c text",
        "alter table t alter column c set storage external",
        f"insert into t values (11, 'y', {large})",
        "update t set a = 'z' where id = 11",
    )
    manifest = lake.settle(daemon, driver)
    site.sql("update t set a = 'zz' where id = 11")
    manifest = lake.settle(daemon, driver)

    assert lake.differs("public.t", ["id", "a", "c"]) == ""
    assert set(before) <= set(tables.files("mirror/public.t", manifest.tables["mirror/public.t"].version))
    assert tables.applied("mirror/public.t", "tailrace.reshape") is None


def test_table_that_joins_the_lake_later_is_read_from_its_beginning(lake: LakeSite) -> None:
    site = lake.capture
    site.sql("create table a (id int primary key)", "create table b (id int primary key, name text)")
    daemon = site.running()
    lake.settings = structs.replace(lake.settings, tables=("public.a",))
    driver = lake.driver()
    site.sql(
        "insert into a values (1)",
        "insert into b values (1, 'one'), (2, 'two')",
        "update b set name = 'II' where id = 2",
    )
    manifest = lake.settle(daemon, driver)
    assert "mirror/public.b" not in manifest.tables
    driver.close()

    lake.settings = structs.replace(lake.settings, tables=("public.*",))
    site.sql("insert into a values (2)")
    manifest = lake.settle(daemon, lake.driver())

    assert lake.differs("public.b", ["id", "name"]) == ""
    assert len(lake.rows("history/public.b", ["id", "name"], manifest)) == 3


def test_what_is_not_wanted_any_more_leaves_the_manifest(lake: LakeSite, tmp_path: Path) -> None:
    site = lake.capture
    site.sql("create table a (id int primary key)", "create table b (id int primary key)")
    (tmp_path / "views" / "n.sql").write_text("select count(*) as n from a group by id")
    daemon = site.running()
    driver = lake.driver()
    site.sql("insert into a values (1)", "insert into b values (1)")
    assert {"mirror/public.a", "mirror/public.b"} <= lake.settle(daemon, driver).tables.keys()
    driver.close()

    lake.settings = structs.replace(lake.settings, tables=("public.a",), views="")
    site.sql("insert into a values (2)", "insert into b values (2)")
    manifest = lake.settle(daemon, lake.driver())

    assert "mirror/public.b" not in manifest.tables
    assert manifest.views == {}
    assert lake.differs("public.a", ["id"]) == ""


def test_history_that_is_asked_for_too_late_is_refused(lake: LakeSite) -> None:
    site = lake.capture
    site.sql("create table a (id int primary key)")
    daemon = site.running()
    lake.settings = structs.replace(lake.settings, history=())
    driver = lake.driver()
    site.sql("insert into a values (1)")
    lake.settle(daemon, driver)
    driver.close()

    lake.settings = structs.replace(lake.settings, history=("public.*",))
    site.sql("insert into a values (2)")
    daemon.until_position(site.wal())

    with pytest.raises(SinkUnfit, match=r"history of public\.a"):
        lake.driver().step()
