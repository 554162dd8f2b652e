"""Joins in time: as of an event's position, inside a window, and independent of how the log was cut."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.fixtures.views.doc_examples import example_views

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.fixtures.servers.daemon import CaptureSite

_VIEWS: Final = {
    # Stream and table: what was valid when the order was committed, and what is valid at the cut.
    "taxed": "select o.id, r.rate from archive.orders o"
    " join history.rates r on r.country = o.country and valid_at(r, o) where o._op = 'c'",
    "taxed_now": "select o.id, r.rate from orders o join rates r on r.country = o.country",
    # Stream and stream: a click within ten minutes, or none, said when the window has closed.
    "clicked": "select s.id, c.id as click from archive.searches s left join archive.clicks c on c.search_id = s.id"
    " and c.at between s.at and s.at + interval 10 minutes where c.id is not null"
    " or s.at + interval 10 minutes < greatest(watermark(archive.clicks, at, interval '1' minute),"
    " watermark(archive.searches, at, interval '1' minute))",
    # A stream and itself: the same person searches again within five minutes.
    "again": "select a.id, b.id as next from archive.searches a join archive.searches b on b.person = a.person"
    " and b.at > a.at and b.at <= a.at + interval 5 minutes",
    # What came later than the watermark of its place in the log is dropped, the same in every replay.
    "punctual": "select id from in_log_order(archive.clicks, at) c where c.at >= c._seen_until - interval 20 minutes",
    **{
        name: text
        for name, text in example_views("howto/views-time.md").items()
        if name in {"late_clicks", "clicks_by_hour"}
    },
    # Nothing of an hour before the hour has closed; what was late by then is in it.
    "hourly": "select date_trunc('hour', at) as hour, count(*) as n from archive.clicks where _op = 'c'"
    " and date_trunc('hour', at) + interval 1 hour < watermark(archive.clicks, at, interval '1' minute)"
    " group by date_trunc('hour', at)",
}


def _rows(lake: LakeSite) -> dict[str, list[tuple[object, ...]]]:
    return {name: lake.view_rows(name) for name in _VIEWS}


def test_joins_in_time_say_what_was_valid_and_the_same_in_any_number_of_cuts(
    capture: CaptureSite, spark: SparkSession, tmp_path: Path
) -> None:
    views = tmp_path / "views"
    views.mkdir()
    for name, sql in _VIEWS.items():
        (views / f"{name}.sql").write_text(sql)
    site = capture
    site.sql(
        "create table rates (country text primary key, rate int)",
        "create table orders (id int primary key, country text)",
        "create table searches (id int primary key, person int, at timestamp)",
        "create table clicks (id int primary key, search_id int, at timestamp)",
    )
    settings = {"views": str(views), "history": ("public.rates",)}
    daemon = site.running()

    with contextmanager(lake_site)(site, spark, tmp_path / "often", **settings) as often:
        driver = often.driver()
        site.sql("insert into rates values ('CH', 7)", "insert into orders values (1, 'CH')")
        often.settle(daemon, driver)
        site.sql("insert into searches values (1, 1, '2026-01-01 10:00'), (2, 1, '2026-01-01 10:04')")
        site.transaction(
            "update rates set rate = 8", "insert into orders values (2, 'CH')", "update rates set rate = 9"
        )
        site.sql("insert into orders values (3, 'CH')", "insert into clicks values (1, 1, '2026-01-01 10:09')")
        often.settle(daemon, driver)
        assert often.view_rows("clicked") == [(1, 1)], "the window of search 2 is open"
        assert often.view_rows("hourly") == [], "the hour has not closed"
        site.sql(
            "update orders set country = 'CH' where id = 1",
            "delete from rates",
            "insert into orders values (4, 'CH')",
            "insert into rates values ('CH', 10)",
            "insert into searches values (3, 2, '2026-01-01 10:30')",
            "insert into clicks values (2, 2, '2026-01-01 10:05')",
            "insert into searches values (4, 2, '2026-01-01 11:30')",
        )
        often.settle(daemon, driver)
        site.sql("insert into clicks values (3, 4, '2026-01-01 11:31'), (4, 3, '2026-01-01 10:35')")
        often.settle(daemon, driver)
        found = _rows(often)

    assert found["taxed"] == [(1, 7), (2, 9), (3, 9)]
    assert found["taxed_now"] == [(1, 10), (2, 10), (3, 10), (4, 10)]
    assert found["clicked"] == [(1, 1), (2, 2), (3, 4), (4, 3)]
    assert found["again"] == [(1, 2)]
    assert found["hourly"] == [(datetime(2026, 1, 1, 10, tzinfo=UTC), 3)]
    assert found["punctual"] == [(1,), (2,), (3,)], "click 4 came an hour late"
    assert [(one, late) for one, _, late in found["late_clicks"]] == [(4, 56 * 60)]
    hours = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (10, 11)]
    assert found["clicks_by_hour"] == [(hours[0], 3, 2), (hours[1], 1, 1)]
    with contextmanager(lake_site)(site, spark, tmp_path / "once", **settings) as once:
        once.settle(daemon, once.driver())
        assert once.manifest().cut < 4, "the test is weaker than it says"
        assert _rows(once) == found
