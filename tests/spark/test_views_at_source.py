"""`cdc views check --source` under load: equal views are found equal, and a changed row is found."""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from cdc.clock import SystemClock
from cdc.config.load import load
from cdc.errors import CutNotReached, UsageError
from cdc.verify.source_views import Limits, SourceViewReport, check_views_at_source
from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.fixtures.lake.wrong_row import alter_row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cdc.config.settings import Config
    from tests.fixtures.servers.daemon import CaptureSite

_PG: Final = "-- dialect: postgres\n"
_VIEWS: Final = {
    # Not written during the load, so a row that is changed in the lake stays changed.
    "names": f"{_PG}-- key: id\nselect id, code, name, born, doc, tags, span from customers",
    "detail": f"{_PG}-- key: id\nselect id, customer_id, amount, placed, big from public.orders where amount > 5;",
    "totals": f"{_PG}-- key: customer_id\nselect customer_id, count(*) as n, sum(amount) as total, max(placed) as last"
    " from orders group by customer_id",
    "named": f"{_PG}with big as (select customer_id, n, total from totals where n > 1)"
    " select c.name, b.n, b.total from big b join customers c on c.id = b.customer_id",
    "weights": f"{_PG}select id, customer_id, weight from orders",
    "in_spark": "select id from orders",
    "past": f"{_PG}select id from history.customers",
    "over_spark": f"{_PG}select id from in_spark",
}
_CHECKABLE: Final = ("names", "detail", "totals", "named", "weights")
_TABLES: Final = """
create table customers (
    id int primary key, code char(4), name text, born date, doc jsonb, tags text[], span interval, secret text
);
create table orders (
    id bigint primary key, customer_id int, amount numeric(12,2), placed timestamptz, note varchar(40), big text,
    weight float8
)
"""
_ROWS: Final = """
insert into customers
select i, 'c' || i, 'name ''%s'' $1 ' || i, date '1999-12-31' + i, jsonb_build_object('a', i, 'b', null),
       array['x', null, i::text], make_interval(days => i)
from generate_series(1, 40) i;
insert into orders
select i, 1 + i % 40, i % 97 + 0.25, timestamptz '2026-03-29 00:30:00+00' + i * interval '1 min', 'note ' || i,
       repeat(md5(i::text), 100), i / 7.0
from generate_series(1, 2000) i
"""
_WRITES: Final = """
insert into orders values (%(id)s, %(customer)s, %(amount)s, clock_timestamp(), 'ü', 'b', %(weight)s)
on conflict (id) do update set amount = excluded.amount;
update orders set amount = %(amount)s, customer_id = %(customer)s where id = %(id)s;
delete from orders where id = %(id)s;
update orders set id = %(other)s where id = %(id)s and not exists (select from orders where id = %(other)s)
"""


class _Load:
    """The lake's driver and two writers, or none, until `stop`."""

    def __init__(self, site: CaptureSite, lake: LakeSite, writers: int = 2) -> None:
        self._site = site
        self._lake = lake
        self._stop = threading.Event()
        self.errors: list[BaseException] = []
        self.transactions = 0
        self._threads = [threading.Thread(target=self._guarded, args=(self._write, seed)) for seed in range(writers)]
        self._threads.append(threading.Thread(target=self._guarded, args=(self._drive, 0)))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self.errors, self.errors

    def _guarded(self, run: Any, seed: int) -> None:
        try:
            run(seed)
        except BaseException as error:
            self.errors.append(error)
            raise

    def _drive(self, _: int) -> None:
        driver = self._lake.driver()
        while not self._stop.is_set():
            driver.step()

    def _write(self, seed: int) -> None:
        """Write its own half of the keys: inserts, updates, deletes and moved keys, sometimes rolled back."""
        rng = random.Random(seed)
        with psycopg.connect(self._site.dsn) as session:
            session.execute("set synchronous_commit = off")
            while not self._stop.is_set():
                for _ in range(rng.randint(1, 4)):
                    one, other = (rng.randrange(1, 1500) * 2 + seed % 2 for _ in range(2))
                    session.execute(*_statement(rng, one, other))
                if rng.random() < 0.1:
                    session.rollback()
                else:
                    session.commit()
                self.transactions += 1
                self._stop.wait(0.005)


def _statement(rng: random.Random, one: int, other: int) -> tuple[Any, dict[str, Any]]:
    about = {
        "id": one,
        "other": other,
        "customer": rng.randint(1, 40),
        "amount": Decimal(rng.randint(0, 20_000)) / 100,
        "weight": rng.random(),
    }
    return rng.choice(_WRITES.split(";")), about


@pytest.fixture
def lake(capture: CaptureSite, spark: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    views = tmp_path / "views"
    views.mkdir()
    for name, sql in _VIEWS.items():
        (views / f"{name}.sql").write_text(sql)
    capture.sql(_TABLES)
    with contextmanager(lake_site)(capture, spark, tmp_path, views=str(views), history=("public.customers",)) as site:
        yield site


def _checked(config: Config, lake: LakeSite, *names: str, wait_s: float = 60) -> dict[str, SourceViewReport]:
    found = check_views_at_source(
        config, lake.location, names, clock=SystemClock(), limits=Limits(wait_s=wait_s, statement_s=60), say=print
    )
    return {report.name: report for report in found.reports}


def test_views_equal_postgresql_under_load_and_a_changed_row_is_found(
    capture: CaptureSite, lake: LakeSite, quick: SparkSession
) -> None:
    daemon = capture.running()
    driver = lake.driver()
    capture.sql(_ROWS)
    lake.settle(daemon, driver)
    config = load(capture.write_config(), {})
    capture.sql("insert into orders values (0, 1, 9, now(), 'n', 'b', 1)")
    with pytest.raises(CutNotReached, match="did not catch up"):
        _checked(config, lake, "totals", wait_s=1)
    with pytest.raises(UsageError, match="namez does not exist"):
        _checked(config, lake, "namez")

    load_on = _Load(capture, lake)
    try:
        began_s, rounds, from_log = time.monotonic(), 0, 0
        while rounds < 4 or (time.monotonic() - began_s < 20 and not from_log):
            reports = _checked(config, lake)
            for name in _CHECKABLE:
                assert reports[name].ok, reports[name]
            assert {reports[name].state for name in _VIEWS if name not in _CHECKABLE} == {"not_checkable"}
            from_log += sum(report.replaced for report in reports.values())
            rounds += 1
        with capture.connect() as session:
            session.execute("begin; insert into customers values (99)")  # an open transaction does not block the check
            assert _checked(config, lake, "detail")["detail"].ok
            session.execute("rollback")
    finally:
        load_on.stop()
    assert from_log, "no row changed between a snapshot and its cut"
    assert load_on.transactions > 100

    alter_row(lake.location, "names", {"name": "'changed'"}, "id = 7")
    load_on = _Load(capture, lake, writers=0)
    try:
        reports = _checked(config, lake, *_CHECKABLE)
    finally:
        load_on.stop()
    wrong = reports.pop("names")
    assert (wrong.state, wrong.found.missing, wrong.found.extra) == ("different", 1, 1)
    assert [wrong.columns[at] for at in wrong.found.columns] == ["name"]
    assert all(row[0] == "7" for _, row in wrong.found.examples)
    assert all(report.ok for report in reports.values()), reports
