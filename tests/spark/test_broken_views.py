"""Views with every defect beside healthy ones: each broken view is left behind alone, with its reason."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc.clock import SystemClock
from cdc.config.load import load
from cdc.lsn import Lsn
from cdc.telemetry.capture_status import Status
from cdc.telemetry.lake_status import LakeStatus
from cdc.telemetry.metrics import LakeMetrics, Metrics
from cdc.telemetry.spans import Sampler, SinkTracing, Span
from sinks.state.report_sender import heartbeats
from sinks.warehouse.cut_spans import CutSpans
from sinks.warehouse.lake_observer import published_cut
from sinks.warehouse.read.lake_reader import Lake
from sinks.warehouse.read.view_check import check_views
from sinks.warehouse.views.definition import views_of
from sinks.warehouse.views.generations import TextStore, usable
from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.fixtures.servers.first_cause import first_cause
from tests.fixtures.servers.waiting import until
from tests.spark.test_view_topics import TopicLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sinks.warehouse.lake.manifest import Manifest
    from tests.fixtures.servers.daemon import CaptureSite

_HEALTHY: Final = {
    "totals": "select kind, sum(n) as n from t group by kind",
    "largest": "select max(n) as n from totals",
    "in_postgres": "-- dialect: postgres\nselect id, n / 2 as half from t where kind = 'a'",
}
_BROKEN: Final = {
    "no_query": ("-- nothing\n", r"no_query\.sql: contains no query"),
    "no_select": ("create table x (a int)", r"line 1, column 1: begins with 'create'"),
    "two_queries": ("select id from t;\nselect n from t", r"line 2, column 8: contains 2 statements"),
    "syntax": ("select id\nfrom t\nwhere (n > 1", r"line 3, column 12: is not valid SQL"),
    "open_text": ("select id\nfrom t where kind = 'a", r"line 2: is not valid SQL: a text in quotes"),
    "setting": ("-- publsih: topic\nselect id from t", r"line 1: unknown setting publsih; did you mean publish\?"),
    "value": ("-- plan: quick\nselect id from t", r"line 1: unknown plan: quick; expected auto"),
    "nested": (f"select {'(' * 3000}1{')' * 3000} as x", r"nested\.sql: is nested too deeply"),
    "nested_later": (f"-- dialect: postgres\nselect {'+'.join(['id'] * 3000)} as x from t", r"is nested too deeply"),
    "nested_in_spark": (f"select {'+'.join(['id'] * 3000)} as x from t", r"nested_in_spark\.sql"),
    "clock": ("select id, now() as at from t", r"line 1, column 12: now\(\) is the time of the computation"),
    "no_table": ("select id\nfrom tt", r"line 2, column 6: table tt does not exist; did you mean public\.t\?"),
    "no_column": ("select id,\n  m from t", r"line 2, column 3: .*`m` cannot be resolved.*`n`"),
    "no_pg_column": (
        "-- dialect: postgres\nselect id,\n  m from t",
        r"line 3, column 3: column m does not exist; known",
    ),
    "no_pg_behind": (
        "-- dialect: postgres\nselect a.id from public.t a join public.u b on a.id = b.id where a.m > 1",
        r"line 2, column 66: column a\.m does not exist",
    ),
    "no_function": ("select no_such(id) as x from t", r"line 1, column 8: .*no_such"),
    "ambiguous": ("select id from t join u on t.id = u.id", r"line 1, column 8: .*`id` is ambiguous"),
    "ambiguous_pg": (
        "-- dialect: postgres\nselect id from t join u on t.id = u.id",
        r"line 2, column 8: column id is ambiguous; write alias\.column",
    ),
    "ambiguous_table": ("select id from twin", r"line 1, column 16: twin is ambiguous: other\.twin, public\.twin"),
    "reserved": ("-- dialect: postgres\nselect order from t", r"line 2, column 8"),
    "kept_apart": ("-- dialect: postgres\nselect soundex(kind) as x from t", r"line 2, column \d+: "),
    "many_rows": ("select id, (select n from t) as x from t", r"SCALAR_SUBQUERY_TOO_MANY_ROWS; a subquery in place"),
    "no_number": ("select cast(kind as int) as x from t", r"CAST_INVALID_INPUT; a value does not fit"),
    "twice_keyed": ("-- key: kind\nselect kind, n from t", r"twice_keyed cannot have the key kind: 3 rows have 2 keys"),
    "no_key": ("-- key: id\n-- publish: topic\nselect n from t", r"id"),
    "pair": ("select id from t", r"defines the same view as Pair\.sql"),
    "Pair": ("select id from t", r"defines the same view as pair\.sql"),
    "round": ("select id from trip", r"line 1, column 16: views read each other in a cycle: round -> trip -> round"),
    "trip": ("select id from round", r"views read each other in a cycle: trip -> round -> trip"),
    "itself": ("select id from itself", r"views read each other in a cycle: itself -> itself"),
    "over_cycle": ("select id from trip", r"^the view trip is left behind$"),
    "over_syntax": ("select id from syntax", r"^the view syntax is left behind$"),
    "over_over": ("-- dialect: postgres\nselect id from over_syntax", r"^the view over_syntax is left behind$"),
    "over_value": ("select x from no_number", r"^the view no_number is left behind$"),
    "bad name": ("select id from t", r"invalid view name 'bad name'"),
}

_SLOW: Final = """
select id, sum(length(sha2(cast(x * y + n as string), 512))) as n
from (select id, n, explode(sequence(1, 600)) as x from t) lateral view explode(sequence(1, 600)) as y
group by id
"""


@pytest.fixture
def lake(capture: CaptureSite, quick: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    (tmp_path / "views").mkdir()
    capture.sql(
        "create schema other",
        "create table t (id int primary key, n int, kind text)",
        "create table u (id int primary key)",
        "create table twin (id int primary key)",
        "create table other.twin (id int primary key)",
    )
    yield from lake_site(capture, quick, tmp_path, views=str(tmp_path / "views"))


def _write(folder: Path, **views: str) -> None:
    for name, sql in views.items():
        (folder / "views" / f"{name}.sql").write_text(sql)


def _are_right(lake: LakeSite) -> bool:
    site = lake.capture
    wanted = {
        "totals": site.query("select kind, sum(n) from t group by kind"),
        "largest": site.query("select max(n) from (select sum(n) as n from t group by kind) totals"),
        "in_postgres": site.query("select id, n / 2 from t where kind = 'a'"),
    }
    return all(lake.view_rows(name) == sorted(rows, key=repr) for name, rows in wanted.items())


def test_each_broken_view_is_left_behind_alone_and_the_others_go_on(lake: LakeSite, tmp_path: Path) -> None:
    _write(tmp_path, **_HEALTHY, **{name: sql for name, (sql, _) in _BROKEN.items()})
    (tmp_path / "views" / "in_latin.sql").write_bytes("select 'é' as x".encode("latin-1"))
    (tmp_path / "views" / "folder.sql").mkdir()
    broken = {name: reason for name, (_, reason) in _BROKEN.items()}
    broken |= {"in_latin": r"line 1: is not text in UTF-8", "folder": r"cannot be read: Is a directory"}
    site = lake.capture
    daemon = site.running({"source": {"tables": ["public.*", "other.*"]}})
    driver = lake.driver()
    site.sql("insert into t values (1, 10, 'a'), (2, 20, 'a'), (3, 30, 'b')")
    manifest = lake.settle(daemon, driver)

    wrong = {
        name: manifest.unbuilt[name].reason if name in manifest.unbuilt else "has no reason"
        for name, reason in broken.items()
        if name not in manifest.unbuilt or not re.search(reason, manifest.unbuilt[name].reason)
    }
    assert wrong == {}
    assert manifest.unbuilt.keys() == broken.keys()
    assert manifest.views.keys() == _HEALTHY.keys()
    assert published_cut(manifest).views_behind.keys() == broken.keys()

    for number in (4, 5):
        site.sql(f"insert into t values ({number}, {number}, 'a')")
        assert lake.settle(daemon, driver).views.keys() == _HEALTHY.keys()
        assert _are_right(lake)
    assert not driver._views.is_due(lake.manifest()), "nothing is left to report"

    files = views_of(lake.settings)
    seen = usable(files, manifest.views, TextStore(lake.location))
    reports = check_views(
        lake.spark, Lake(lake.location), lake.manifest(), files.views, [], seen.problems(manifest.views)
    )
    assert {report.name for report in reports if report.ok} == _HEALTHY.keys()
    assert {report.name for report in reports if not report.ok} == broken.keys()


def test_broken_text_leaves_the_active_version_running_until_it_is_fixed(lake: LakeSite, tmp_path: Path) -> None:
    _write(tmp_path, **_HEALTHY)
    _write(tmp_path, one="-- key: id\n-- publish: topic\nselect id, n from t", two="select count(*) as n from one")
    site, log = lake.capture, TopicLog(lake)
    daemon = site.running()
    site.sql("insert into t values (1, 10, 'a'), (2, 20, 'b')")
    driver = lake.driver()
    lake.settle(daemon, driver)
    driver.close()

    broken = {
        "one": ("-- key: id\n-- publish: topic\nselect id, n, from where t", "one~2", r"one\.sql, line 3"),
        "two": ("select count(*) as n from twos", "two~2", r"line 1, column 27: table twos does not exist"),
        "largest": ("-- plann: auto\nselect max(n) as n from totals", "largest~2", r"unknown setting plann"),
        "totals": ("select kind, sum(n) as n from largest, t group by kind", "totals~2", r"`n` is ambiguous"),
    }
    _write(tmp_path, **{name: sql for name, (sql, _, _) in broken.items()})
    driver = lake.driver()
    assert driver._views.is_due(lake.manifest()), "the source is idle, but the failed versions must be reported"
    driver.step()
    assert not driver._views.is_due(lake.manifest())
    for number in (3, 4):
        site.sql(f"insert into t values ({number}, {number}, 'a')")
        manifest = lake.settle(daemon, driver)
        assert _are_right(lake)
        assert lake.view_rows("one") == sorted(site.query("select id, n from t"), key=repr)
        assert lake.view_rows("two") == [(number,)]
        assert {state.reason for state in manifest.views.values()} == {""}
        for _, candidate, reason in broken.values():
            assert re.search(reason, manifest.unbuilt[candidate].reason)
    assert {value["after"]["id"] for _, value in log.view("one") if value} == {1, 2, 3, 4}
    driver.close()

    _write(tmp_path, **_HEALTHY, two="select count(*) as n, max(id) as id from one")
    _write(tmp_path, one="-- key: id\n-- publish: topic\nselect id, n + 1 as n from t")
    driver = lake.driver()
    for number in (5, 6, 7):
        site.sql(f"insert into t values ({number}, {number}, 'a')")
        manifest = lake.settle(daemon, driver)
    assert manifest.unbuilt == {}
    assert manifest.views["one"].generation == 2
    assert manifest.views["two"].generation == 3, "another text failed as two~2"
    assert lake.view_rows("one") == sorted(site.query("select id, n + 1 from t"), key=repr)
    assert lake.view_rows("two") == [(7, 7)]
    assert _are_right(lake)


def test_new_texts_in_a_cycle_leave_the_active_versions_running(lake: LakeSite, tmp_path: Path) -> None:
    _write(tmp_path, **_HEALTHY, first="select id from t", second="select id from first")
    site = lake.capture
    daemon = site.running()
    site.sql("insert into t values (1, 10, 'a')")
    driver = lake.driver()
    lake.settle(daemon, driver)
    driver.close()

    _write(tmp_path, first="select id from second")
    (tmp_path / "views" / "in_postgres.sql").unlink()
    driver = lake.driver()
    site.sql("insert into t values (2, 20, 'b')")
    manifest = lake.settle(daemon, driver)

    assert manifest.unbuilt.keys() == {"first~2", "second~2"}
    assert "in a cycle: first -> second -> first" in manifest.unbuilt["first~2"].reason
    assert lake.view_rows("first") == lake.view_rows("second") == [(1,), (2,)]
    assert "in_postgres" not in manifest.views, "the view of a deleted file is removed"
    driver.close()

    # The two exchange their parts: meanwhile the text of one and the other's earlier one would be a cycle.
    _write(tmp_path, first="-- swap: manual\nselect id from second", second="select id + 0 as id from t")
    driver = lake.driver()
    for number in (3, 4, 5):
        site.sql(f"insert into t values ({number}, 20, 'b')")
        manifest = lake.settle(daemon, driver)
    assert lake.view_rows("second") == [(number,) for number in range(1, 6)]
    assert manifest.views["largest"].reason == ""


def test_broken_view_is_the_first_cause_that_cdc_why_names(lake: LakeSite, tmp_path: Path) -> None:
    _write(tmp_path, largest=_HEALTHY["totals"], broken="select id\nfrom tt")
    site = lake.capture
    daemon = site.running()
    site.sql("insert into t values (1, 10, 'a')")
    lake.settle(daemon, lake.driver())
    sink = {"kind": "warehouse", "path": str(lake.path), "views": str(tmp_path / "views")}
    path = site.write_config({"sinks.lake": sink})

    def named() -> dict[str, Any]:
        found = first_cause(path, "lake")
        return found if found["code"] == "view-behind" else {}

    # The driver is in this process, so its report is sent from here.
    with heartbeats(load(path, {}), "lake", lambda: {"state": "RUNNING"}, SystemClock(), worker="driver"):
        found = until(named, "it is named, as soon as the report is there")

    assert found["part"] == "lake lake"
    assert "view broken of lake lake" in found["says"]
    assert "table tt does not exist" in found["says"]


class _Kept(list[Span]):
    """An outlet that keeps spans."""

    def emit(self, span: Span) -> None:
        self.append(span)


def test_slow_view_is_the_first_cause_that_cdc_why_names_and_a_long_span(lake: LakeSite, tmp_path: Path) -> None:
    """Here the lake counts as behind after a second, else after half a minute."""
    _write(tmp_path, slow=_SLOW)
    site, clock, stop = lake.capture, SystemClock(), threading.Event()
    daemon = site.running()
    metrics = Metrics(site.name)
    state = Status(f"{site.name}.lake", clock, metrics, catching_up_s=1.0)
    status = LakeStatus(state, LakeMetrics(metrics, "lake"), clock)
    sampler, spans = Sampler(site.name, 1.0), _Kept()
    driver = lake.driver(status, CutSpans(SinkTracing(site.name, "lake", sampler, spans, clock)))
    site.sql("insert into t values (1, 10, 'a')")
    lake.settle(daemon, driver)
    path = site.write_config(
        {"sinks.lake": {"kind": "warehouse", "path": str(lake.path), "views": str(tmp_path / "views")}}
    )
    state.works()
    applying = threading.Thread(target=driver.run, args=(stop,))

    def named() -> dict[str, Any]:
        site.sql("update t set n = n + 1")
        found = first_cause(path, "lake")
        return found if found["code"] == "view-slow" else {}

    with heartbeats(load(path, {}), "lake", status.snapshot, clock, worker="driver"):
        applying.start()
        try:
            found = until(named, "it is named", within_s=90)
        finally:
            stop.set()
            applying.join()

    assert found["part"] == "lake lake"
    assert found["says"] == "view slow makes the cuts of lake lake slow"
    assert found["command"] == "cdc views explain slow"
    _are_the_spans_of_cuts(lake.manifest(), spans)


def _are_the_spans_of_cuts(newest: Manifest, spans: list[Span]) -> None:
    """Cuts follow each other without a gap, the view is below its cut, and updates have spans in their own traces."""
    cuts = [span for span in spans if span.name == "tailrace cut lake"]
    views = [span for span in spans if span.name == "tailrace view slow"]
    updates = [span for span in spans if span.name == "tailrace sink lake"]
    ends = [span.attributes["tailrace.lsn.end"] for span in cuts]
    assert [span.attributes["tailrace.lsn.after"] for span in cuts] == ["0/0", *ends[:-1]]
    assert ends[-1] == str(Lsn(newest.end_lsn))
    assert {span.parent_id for span in views} <= {span.span_id for span in cuts}
    assert views[-1].attributes["tailrace.rows"] == 1
    assert views[-1].end_ns - views[-1].start_ns > 0.5 * (cuts[-1].end_ns - cuts[-1].start_ns)
    assert updates
    assert {link for span in cuts for link in span.links} == {(span.trace_id, span.parent_id) for span in updates}
    assert not {span.trace_id for span in updates} & {span.trace_id for span in cuts}
