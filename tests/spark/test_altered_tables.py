"""Tables that are altered under running views: a view waits with its reason, and recovers when the table does."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc.errors import EXIT_FAILED, EXIT_OK, EXIT_OPERATOR
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.read.lake_reader import Lake
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.http_probe import metric
from tests.fixtures.servers.supervised_run import supervised
from tests.fixtures.servers.waiting import until
from tests.spark.conftest import QUICK, SHORT_LIVED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Sections
    from tests.fixtures.servers.supervised_run import Supervised

_VIEWS: Final = {
    "by_kind": "select kind, sum(n) as n from t group by kind",
    "by_kind_pg": "-- dialect: postgres\nselect kind, sum(n) as n from t group by kind",
    "over": "select count(*) as kinds from by_kind",
    "ids": "-- dialect: postgres\nselect id from t",
    "of_other": "select id, v from other",
    "typo": "select idd from t",
}
_HEALTHY: Final = ("ids", "of_other")
_BY_KIND: Final = ("by_kind", "by_kind_pg", "over")


class _Site:
    """The daemon with its lake, and what each surface says of its views."""

    def __init__(self, capture: CaptureSite, daemon: Supervised, lake: Path) -> None:
        self.capture, self.daemon, self.lake = capture, daemon, lake

    def applied(self, *statements: str) -> dict[str, str]:
        """Run statements, wait until the lake has them, and return view -> why it is behind."""
        lsn = self.capture.sql(*statements)
        until(lambda: self.daemon.wait_for("lake", lsn, 30)[0] == 200, f"the lake at {lsn}", within_s=150)
        listed = json.loads(cdc("views", "list", "--json", "-c", self.daemon._config).out)
        behind = {view["name"]: view["reason"] for view in listed if view["reason"]}
        status = json.loads(self.daemon.ask("/status", sink="lake")[1])
        assert status["views_behind"] == behind
        assert metric(self.daemon.ask("/metrics", sink="lake")[1], "cdc_sink_views_behind") == len(behind)
        return behind

    def rows(self, view: str) -> list[tuple[Any, ...]]:
        found = Lake(self.lake)
        table, state = found.view(view, found.manifest())
        rows = pinned(found.location, table, state.version).to_pyarrow_table().to_pylist()
        return sorted((tuple(row.values()) for row in rows), key=repr)


@pytest.mark.timeout(500)
def test_a_view_waits_for_its_column_and_all_others_go_on(capture: CaptureSite, tmp_path: Path) -> None:
    folder = tmp_path / "views"
    folder.mkdir()
    for name, sql in _VIEWS.items():
        (folder / f"{name}.sql").write_text(sql)
    (folder / "broken.sql").write_text("select id, from where t")
    capture.sql(
        "create table t (id int primary key, n int, kind text)",
        "create table other (id int primary key, v int)",
    )
    with supervised(capture, _sections(tmp_path), "altered") as daemon:
        until(lambda: daemon.events("lake_opened"), "the lake is open", within_s=120)
        site = _Site(capture, daemon, tmp_path / "lake")
        behind = site.applied("insert into t values (1, 10, 'a'), (2, 20, 'b')", "insert into other values (1, 1)")
        always = {"typo", "broken"}
        assert behind.keys() == always
        assert re.search(r"typo\.sql, line 1, column 8: .*`idd` cannot be resolved", behind["typo"])
        assert re.search(r"broken\.sql, line 1, column \d+: is not valid SQL", behind["broken"])
        _commands_name_them(daemon, behind)

        behind = site.applied(
            "alter table t rename kind to sort", "insert into t values (3, 30, 'b')", "insert into other values (2, 2)"
        )
        assert behind.keys() == {*always, *_BY_KIND}
        assert re.search(r"by_kind\.sql, line 1, column 8: .*`kind` cannot be resolved", behind["by_kind"])
        assert re.search(r"by_kind_pg\.sql, line 2, column \d+: column kind does not exist", behind["by_kind_pg"])
        assert behind["over"] == "the view by_kind is left behind"
        assert site.rows("by_kind") == site.rows("by_kind_pg") == [("a", 10), ("b", 20)], "its last rows stay readable"
        assert (site.rows("ids"), site.rows("of_other")) == ([(1,), (2,), (3,)], [(1, 1), (2, 2)])

        behind = site.applied("alter table t rename sort to kind", "insert into t values (4, 40, 'c')")
        assert behind.keys() == always, "a view recovers by itself"
        assert site.rows("by_kind") == site.rows("by_kind_pg") == [("a", 10), ("b", 50), ("c", 40)]
        assert site.rows("over") == [(3,)]

        behind = site.applied("alter table t drop n", "insert into t values (5, 'c')")
        assert behind.keys() == {*always, *_BY_KIND}
        behind = site.applied("alter table t add n bigint", "insert into t values (6, 'c', 60)")
        assert behind.keys() == always
        assert ("c", 60) in site.rows("by_kind")
        assert site.rows("ids") == [(number,) for number in range(1, 7)]

        behind = site.applied("alter table t alter n type text using n::text", "insert into t values (7, 'd', 'x')")
        assert behind.keys() >= {*always, "by_kind_pg"}, "sum(text) has no meaning in PostgreSQL"
        assert site.rows("ids") == [(number,) for number in range(1, 8)]

        behind = site.applied("drop table t", "insert into other values (3, 3)")
        assert not behind.keys() & set(_HEALTHY)
        assert site.rows("of_other") == [(1, 1), (2, 2), (3, 3)]

        # The reason names the columns that there are, so it changes with them.
        reasons = [event["reason"] for event in daemon.events("view_left_behind") if event["view"] == "typo"]
        assert reasons
        assert all(one != other for one, other in pairwise(reasons)), "a reason is logged once"
        assert [event["view"] for event in daemon.events("view_refused")] == ["broken"]
        assert daemon.events("sink_ended") == []
        assert daemon.stop() == 0


def _sections(tmp_path: Path) -> Sections:
    sink: dict[str, Any] = {"kind": "warehouse", "path": str(tmp_path / "lake"), "views": str(tmp_path / "views")}
    sink |= {"interval_s": 0.2, "listen": "127.0.0.1:0", "master": "local[2]", "memory": "1g"}
    return {"sinks.lake": sink | {"spark": SHORT_LIVED | QUICK}}


def _commands_name_them(daemon: Supervised, behind: dict[str, str]) -> None:
    status = cdc("status", "-c", daemon._config)
    shown = " ".join((status.out + status.err).split())
    sinks = json.loads(cdc("sink", "status", "--json", "-c", daemon._config).out)["sinks"]
    assert sinks[0]["views_behind"] == behind
    assert all(f"view {name} is behind" in shown for name in behind)
    doctor = cdc("doctor", "--json", "-c", daemon._config)
    findings = [one for one in json.loads(doctor.out)["findings"] if one["check"] == "view"]
    assert {one["level"] for one in findings if "broken.sql" in one["message"]} >= {"error"}
    assert doctor.code == EXIT_OPERATOR
    assert cdc("views", "check", "ids", "--source", "-c", daemon._config).code == EXIT_OK
    for name in behind:
        check = cdc("views", "check", name, "--source", "-c", daemon._config)
        assert check.code != EXIT_OK
        assert f"{name}.sql" in check.err
    assert cdc("views", "check", "--all", "--source", "-c", daemon._config).code == EXIT_FAILED
