"""A history with an event time: what was valid when, as known at any LSN."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs

from cdc.errors import SinkBehind, SinkUnfit, UsageError
from sinks.warehouse import read_history
from sinks.warehouse.read.bitemporal import known_versions, valid_versions
from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.fixtures.lake.small_lakes import SmallLake

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.fixtures.servers.daemon import CaptureSite

HISTORY: Final = "history/public.t"
BEGIN: Final = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
HOUR: Final = dt.timedelta(hours=1)

Event = tuple[int, int | None, int]
"""Hours until the commit; the event time in hours, None: unknown, -1: a delete; 1: in the transaction before."""
events = st.lists(
    st.tuples(st.integers(0, 2), st.one_of(st.none(), st.just(-1), st.integers(0, 9)), st.integers(0, 1)), max_size=7
)


@dataclass(slots=True)
class Version:
    """A version of one key as the log has it; times in hours, LSNs are 10 times the transaction's number."""

    begins_lsn: int
    ordinal: int
    committed: int
    effective: int | None
    op: str
    ends_lsn: int | None = None
    ended: int | None = None


def versions_of(happened: Sequence[Event]) -> list[Version]:
    """Return the history of a key after these events."""
    found: list[Version] = []
    lsn, hour, ordinal = 0, 0, 1
    for later, effective, same in happened:
        if same and lsn:
            ordinal += 1
        else:
            lsn, hour, ordinal = lsn + 10, hour + later, 1
        is_open = bool(found) and found[-1].ends_lsn is None
        if is_open:
            found[-1].ends_lsn, found[-1].ended = lsn, hour
        if effective != -1:
            found.append(Version(lsn, ordinal, hour, effective, "u" if is_open else "c"))
    return found


def valid(versions: Sequence[Version], known_at: int, hour: int) -> Version | None:
    """Return what was valid at an hour, as known then: searched life by life, the newest first."""
    lives: list[list[Version]] = []
    for version in versions:
        if version.begins_lsn < known_at:
            lives += [[]] if version.op == "c" else []
            lives[-1].append(version)
    for life in reversed(lives):
        begun = [version for version in life if since(version) <= hour]
        if begun:
            last = life[-1]
            gone = last.ends_lsn is not None and last.ends_lsn < known_at and last.ended is not None
            if gone and last.ended is not None and last.ended <= hour:
                return None
            return max(begun, key=lambda version: (since(version), version.begins_lsn, version.ordinal))
    return None


def since(version: Version) -> int:
    return version.committed if version.effective is None else version.effective


def table_of(keys: Sequence[Sequence[Version]], kind: pa.DataType, unit: dt.timedelta = HOUR) -> pa.Table:
    """Return the rows of a history; an hour of the model is a `unit`."""

    def time(hour: int | None) -> dt.datetime | None:
        return None if hour is None else BEGIN + hour * unit

    rows = [(key, version) for key, versions in enumerate(keys) for version in versions]
    stamp = pa.timestamp("us", "UTC")
    at = pa.array([time(row.effective) for _, row in rows], stamp)
    return pa.table(
        {
            "tenant": pa.array([key % 2 for key, _ in rows], pa.int32()),
            "the `key`": pa.array([str(key) for key, _ in rows], pa.string()),
            "at.it": at if kind == stamp else at.cast(pa.timestamp("us")).cast(kind),
            "_valid_from_lsn": pa.array([row.begins_lsn for _, row in rows], pa.int64()),
            "_valid_from_ordinal": pa.array([row.ordinal for _, row in rows], pa.int32()),
            "_valid_from": pa.array([time(row.committed) for _, row in rows], stamp),
            "_valid_to_lsn": pa.array([row.ends_lsn for _, row in rows], pa.int64()),
            "_valid_to": pa.array([time(row.ended) for _, row in rows], stamp),
            "_epoch": pa.array([1] * len(rows), pa.int32()),
            "_op": pa.array([row.op for _, row in rows], pa.string()),
            "_open": pa.array([row.ends_lsn is None for _, row in rows], pa.bool_()),
        }
    )


def test_version_that_a_repair_ended_is_valid_until_then_and_again_once_it_was_read(spark: SparkSession) -> None:
    """The restored database continues at a lower LSN, and the row is read at the very end of what is known."""
    rows = table_of([[Version(10, 1, 1, 1, "c", 25, 3), Version(5, 1, 6, 1, "r")]], pa.timestamp("us", "UTC"))
    rows = rows.set_column(rows.schema.get_field_index("_epoch"), "_epoch", pa.array([1, 2], pa.int32()))
    history = spark.createDataFrame(rows)

    def known(at: int, epoch: int) -> list[tuple[int, bool]]:
        found = known_versions(history, ("tenant", "the `key`"), "at.it", at, epoch=epoch).toArrow().to_pylist()
        return sorted((row["_epoch"], row["_effective_to"] is None) for row in found)

    assert known(20, 1) == [(1, True)]
    assert known(4, 2) == [(1, False)]
    assert (2, True) in known(5, 2)


# Shrinking would take minutes: a job an example.
@settings(max_examples=4, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(st.lists(events, min_size=30, max_size=60), st.integers(5, 80))
def test_what_is_valid_is_what_a_search_life_by_life_finds(
    spark: SparkSession, happened: list[list[Event]], known_at: int
) -> None:
    keys = [versions_of(one) for one in happened]
    history = spark.createDataFrame(table_of(keys, pa.timestamp("us", "UTC")))

    found = known_versions(history, ("tenant", "the `key`"), "at.it", known_at, epoch=1).toArrow().to_pylist()

    for key, versions in enumerate(keys):
        own = [row for row in found if row["the `key`"] == str(key)]
        for hour in range(-1, 20):
            at = BEGIN + hour * HOUR
            shown = [
                (row["_valid_from_lsn"], row["_valid_from_ordinal"])
                for row in own
                if row["_effective_from"] <= at and (row["_effective_to"] is None or at < row["_effective_to"])
            ]
            wanted = valid(versions, known_at, hour)
            assert shown == ([] if wanted is None else [(wanted.begins_lsn, wanted.ordinal)]), (key, hour)
        assert all(row["_valid_to_lsn"] is None or row["_valid_to_lsn"] < known_at for row in own)
        assert all((row["_valid_to"] is None) == (row["_valid_to_lsn"] is None) for row in own)


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()])
def test_times_with_a_zone_without_one_and_dates_are_compared_in_utc(spark: SparkSession, kind: pa.DataType) -> None:
    happened: list[Event] = [(3, 1, 0), (1, 5, 0), (1, None, 0), (2, -1, 0)]
    history = spark.createDataFrame(table_of([versions_of(happened)], kind, dt.timedelta(days=1)))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    try:
        versions = known_versions(history, ("tenant", "the `key`"), "at.it", 100, epoch=1)
        rows = versions.toArrow().to_pylist()
        at_noon = valid_versions(versions, "2026-11-24T23:00:00-12:00").toArrow().num_rows
        named = valid_versions(versions, dt.date(2026, 11, 22)).toArrow().to_pylist()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")

    def day(value: Any) -> int:
        return int(value.day) - BEGIN.day

    # The third has no event time and was committed on the 5th, when the second says it began: the later one counts.
    assert sorted((day(row["_effective_from"]), day(row["_effective_to"])) for row in rows) == [(1, 5), (5, 7)]
    assert at_noon == 1
    assert [row["_valid_from_lsn"] for row in named] == [10]


@pytest.fixture
def lake(capture: CaptureSite, spark: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    yield from lake_site(capture, spark, tmp_path, history=("public.*",), event_time={"public.prices": "since"})


def test_a_late_event_splits_what_was_there_and_what_was_known_stays(lake: LakeSite) -> None:
    site = lake.capture
    site.sql("create table prices (price int, since timestamptz, item text, shop int, primary key (shop, item))")
    daemon = site.running()
    driver = lake.driver()

    def prices(valid_at: str | None = None, known_at: int | None = None) -> list[tuple[int, int, int | None]]:
        rows = read_history(lake.spark, lake.path, "prices", known_at=known_at, valid_at=valid_at).toArrow()
        days = [(row["price"], row["_effective_from"], row["_effective_to"]) for row in rows.to_pylist()]
        return sorted((price, begin.day, end and end.day) for price, begin, end in days)

    site.sql(
        "insert into prices values (100, '2026-01-01Z', 'a', 1)", "update prices set price = 120, since = '2026-01-20Z'"
    )
    lake.settle(daemon, driver)
    before = site.wal()
    assert prices() == [(100, 1, 20), (120, 20, None)]
    site.sql("update prices set price = 110, since = '2026-01-10Z'")
    lake.settle(daemon, driver)
    split = site.wal()
    site.sql("delete from prices")
    manifest = lake.settle(daemon, driver)

    assert prices(known_at=split) == [(100, 1, 10), (110, 10, 20), (120, 20, None)]
    assert prices(known_at=before) == [(100, 1, 20), (120, 20, None)]
    assert prices("2026-01-15", split) == [(110, 10, 20)]
    assert prices("2026-01-15", before) == [(100, 1, 20)]
    assert prices("2026-01-15") == [(110, 10, 20)]
    assert prices("2100-01-01") == [], "the delete ended it"
    state = manifest.tables["history/public.prices"]
    assert (state.key, state.event_time) == (("item", "shop"), "since")
    assert manifest.tables["mirror/public.prices"].key == ("item", "shop")


def test_a_history_without_an_event_time_says_so_until_one_is_named(lake: LakeSite) -> None:
    site = lake.capture
    site.sql("create table prices (id int primary key, since date, note text)")
    daemon = site.running()
    named = lake.settings
    lake.settings = structs.replace(named, event_time={})
    driver = lake.driver()
    site.sql("insert into prices values (1, '2026-01-01', 'a')")
    lake.settle(daemon, driver)
    with pytest.raises(UsageError, match="no known event-time column"):
        read_history(lake.spark, lake.path, "prices")
    driver.close()

    site.sql("create table other (id int primary key)", "insert into other values (1)")
    lake.settings = named
    lake.settle(daemon, lake.driver())

    assert read_history(lake.spark, lake.path, "prices").count() == 1
    with pytest.raises(SinkBehind):
        read_history(lake.spark, lake.path, "prices", known_at=1 << 60)
    with pytest.raises(UsageError, match="invalid time"):
        read_history(lake.spark, lake.path, "prices", valid_at="soon")
    lake.settings = structs.replace(named, event_time={"public.prices": "note"})
    site.sql("insert into other values (2)")
    daemon.until_position(site.wal())
    with pytest.raises(SinkUnfit, match=r"event_time of public\.prices names column 'note', which is string"):
        lake.driver().step()


def test_a_manifest_of_before_there_were_event_times_is_read(spark: SparkSession, tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.write(HISTORY, table_of([versions_of([(1, 1, 0)])], pa.date32()), partition_by=["_open"])
    lake.publish()

    with pytest.raises(UsageError, match="no known event-time column"):
        read_history(spark, tmp_path, "t")
