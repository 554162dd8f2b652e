"""`cdc views query`, `compare`, `swap` and `rollback`, and how long a cut stays readable; without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs

from cdc.cli.main import run
from cdc.config.load import parse
from cdc.control.action_record import ActionRecord, Actor
from cdc.control.perform import Outcome, perform
from cdc.control.requests import ViewRollback, ViewSwap
from cdc.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UsageError
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import ViewState
from sinks.warehouse.read.lake_reader import Lake
from sinks.warehouse.views.generations import REPLACED, TextStore
from tests.fixtures.lake.small_lakes import SmallLake

_CONFIG = """
name = "shop"
[source]
dsn = "postgresql://db/shop"
[kafka]
bootstrap = "localhost:9092"
[sinks.lake]
kind = "warehouse"
path = "{path}"
"""
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command; (exit code, stdout, stderr)."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    """Two cuts of orders, and a view v with another generation beside it."""
    made = SmallLake(tmp_path / "lake")
    made.write("mirror/public.orders", pa.table({"id": [1, 2], "status": ["new", "new"]}), mode="overwrite")
    made.view("v", pa.table({"id": [1, 2], "n": [1, 2]}))
    made.publish()
    made.write("mirror/public.orders", pa.table({"id": [1, 2, 3], "status": ["new", "paid", "new"]}), mode="overwrite")
    made.write("history/public.orders", pa.table({"id": [1, 2, 2, 3]}), mode="overwrite")
    version = made.write(layout.view("v", 2), pa.table({"id": [1, 3], "n": [1, 3], "m": [0, 0]}), mode="overwrite")
    made.views["v~2"] = ViewState(version=version, generation=2, reason="", cut=2, sql_sha="")
    made.publish()
    return made


def test_query_reads_all_tables_and_views_as_of_one_cut(lake: SmallLake, call: Call) -> None:
    sql = (
        "select o.id, v.n, count(h.id) as versions from Orders o join v on v.id = o.id"
        " join history.orders h on h.id = o.id group by 1, 2 order by 1"
    )

    code, out, _ = call("views", "query", sql, "--lake", lake.path, "--json")

    assert code == EXIT_OK
    assert json.loads(out) == {
        "cut": 2,
        "lsn": "0/200",
        "rows": [{"id": 1, "n": 1, "versions": 1}, {"id": 2, "n": 2, "versions": 2}],
    }


def test_query_at_an_older_place_sees_the_lake_of_then(lake: SmallLake, call: Call) -> None:
    sql = "with o as (select * from public.orders) select status, count(*) as n from o group by status order by status"

    for at in ("1", "0/1FF"):
        _, out, _ = call("views", "query", sql, "--at", at, "--lake", lake.path, "--json")
        assert json.loads(out)["rows"] == [{"status": "new", "n": 2}]
    _, out, err = call("views", "query", sql, "--lake", lake.path)
    assert "paid" in out
    assert "2 rows as of cut 2, 0/200" in err


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select * from ordres", "table ordres does not exist"),
        ("drop table orders", "not a SELECT"),
        ("select id from orders; select 1", "not a SELECT"),
        ("select nothing from orders", "cannot run"),
        ("selec id", "not a SELECT"),
    ],
)
def test_what_is_no_query_over_the_lake_is_said(lake: SmallLake, call: Call, sql: str, said: str) -> None:
    code, _, err = call("views", "query", sql, "--lake", lake.path)

    assert code == EXIT_USAGE
    assert said in err


def test_value_that_does_not_fit_is_not_shown(lake: SmallLake, call: Call) -> None:
    _, _, err = call("views", "query", "select cast(status as int) from orders", "--lake", lake.path)

    assert "cannot run" in err
    assert "paid" not in err
    assert "new" not in err.replace("newest", "")


def test_comparison_says_what_differs_between_the_generations(lake: SmallLake, call: Call) -> None:
    code, out, _ = call("views", "compare", "v", "--key", "id", "--lake", lake.path, "--json")

    assert code == EXIT_FAILED
    assert json.loads(out) == {
        "name": "v",
        "generation": 2,
        "same": False,
        "old_rows": 2,
        "new_rows": 2,
        "removed_columns": [],
        "added_columns": ["m"],
        "changed": 0,
        "gone": 1,
        "new": 1,
        "examples": ['{"id":2}', '{"id":3}'],
    }


def test_swap_is_a_wish_that_the_sink_grants(lake: SmallLake, call: Call) -> None:
    code, _, err = call("views", "swap", "v", "--yes", "--wait", "0", "--lake", lake.path)
    assert code == EXIT_FAILED
    assert "will do so with its next cut" in err
    assert "this action is not recorded: the configuration has no sink for this lake" in err
    assert TextStore(Location.of(lake.path)).requests() == {"v": 2}

    lake.views = {
        "v": lake.views["v~2"],
        "v~1": structs.replace(lake.views["v"], reason=REPLACED),
    }
    lake.publish()
    code, out, _ = call("views", "rollback", "v", "--yes", "--wait", "0", "--lake", lake.path, "--json")
    assert (code, json.loads(out)["done"]) == (EXIT_FAILED, False)
    assert TextStore(Location.of(lake.path)).requests() == {"v": 1}


def test_swap_and_rollback_over_http_are_requests_too_and_are_recorded(lake: SmallLake) -> None:
    config, records = parse(_CONFIG.format(path=lake.path), {}), list[ActionRecord]()
    actor = Actor("token", "10.0.0.7:4711", "http")

    def act(request: ViewSwap | ViewRollback) -> Outcome:
        return perform(config, request, actor, write=lambda _, record: records.append(record))

    swap, missing = act(ViewSwap(lake="lake", view="v")), act(ViewSwap(lake="lake", view="w"))
    refused = act(ViewRollback(lake="lake", view="v"))

    assert (swap.result, swap.facts) == ("requested", {"version": 2})
    assert TextStore(Location.of(lake.path)).requests() == {"v": 2}
    assert [(one.result, type(one.error)) for one in (missing, refused)] == [("refused", UsageError)] * 2
    assert [(one.action, one.arguments, one.result) for one in records] == [
        ("view.swap", {"lake": "lake", "view": "v"}, "requested"),
        ("view.swap", {"lake": "lake", "view": "w"}, "refused"),
        ("view.rollback", {"lake": "lake", "view": "v"}, "refused"),
    ]


def test_nothing_to_swap_or_to_roll_back_to_is_said(lake: SmallLake, call: Call) -> None:
    assert "v has no previous version to roll back to" in call("views", "rollback", "v", "-y", "--lake", lake.path)[2]
    lake.views["v~2"] = structs.replace(lake.views["v~2"], reason="a value does not fit")
    lake.publish()
    assert "is behind: a value does not fit" in call("views", "swap", "v", "-y", "--lake", lake.path)[2]
    del lake.views["v~2"]
    lake.publish()

    code, _, err = call("views", "swap", "v", "-y", "--lake", lake.path)

    assert code == EXIT_USAGE
    assert "v has no new version to swap to" in err


def test_of_old_cuts_one_a_minute_stays_and_the_others_are_reported(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake")
    for _ in range(200):
        lake.publish()

    gone = lake.store.prune(20, since_us=50_000_000).cuts

    assert lake.store.cuts() == [50, 60, 120, *range(180, 201)]
    assert len(gone) == 200 - 24
    assert lake.store.prune(20, since_us=50_000_000).cuts == []
    with pytest.raises(UsageError, match=r"cut 130 is not in the lake.* one per minute; the one before is 120"):
        Lake(lake.path).manifest(130)
    assert Lake(lake.path).store.at_lsn(130 * 0x100) == lake.store.at(120)
