"""Reading a lake without Spark: `cdc views`, `cdc history` and the code below them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from cdc.cli.main import run
from cdc.config.load import parse
from cdc.errors import EXIT_FAILED, EXIT_OK, EXIT_OPERATOR, EXIT_USAGE, LakeDamaged, SinkBehind, UsageError
from cdc.lsn import Lsn
from cdc.overview.lake_pages import LakePages
from sinks.warehouse.lake.manifest import Unbuilt, ViewState
from sinks.warehouse.read.lake_reader import Lake, condition, parse_at, read
from sinks.warehouse.read.row_history import history_of
from tests.browser import documents
from tests.fixtures.lake.small_lakes import SmallLake

ARCHIVE = "archive/shop.public.orders"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command; (exit code, stdout, stderr)."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def revenue(*rows: tuple[int, str | None]) -> pa.Table:
    return pa.table(
        {
            "day": pa.array([date(2026, 11, row[0]) for row in rows], pa.date32()),
            "Revenue": pa.array([None if row[1] is None else Decimal(row[1]) for row in rows], pa.decimal128(31, 2)),
        }
    )


def changes(*rows: tuple[str, int, dict[str, Any]], nested: bool = False) -> pa.Table:
    """Archive rows of public.orders: (op, commit_lsn, what differs from an empty row); a minute between two."""
    empty = {"id": 7, "status": None, "total": None, "note": None}
    types = {"id": pa.int64(), "status": pa.string(), "total": pa.decimal128(10, 2), "note": pa.string()}
    images = [{**empty, **{name: value for name, value in row.items() if name != "_unchanged"}} for _, _, row in rows]
    columns: dict[str, Any] = {name: pa.array([image[name] for image in images], kind) for name, kind in types.items()}
    if nested:
        columns = {"row": pa.array(images, pa.struct(list(types.items())))}
    return pa.table(
        {
            "_op": [op for op, _, _ in rows],
            **columns,
            "_unchanged": pa.array([row.get("_unchanged", []) for _, _, row in rows], pa.list_(pa.string())),
            "_epoch": pa.array([1] * len(rows), pa.int32()),
            "_commit_lsn": [lsn for _, lsn, _ in rows],
            "_ordinal": pa.array([1] * len(rows), pa.int32()),
            "_committed_at": pa.array(
                [datetime(2026, 11, 21, 12, minute, tzinfo=UTC) for minute in range(len(rows))],
                pa.timestamp("us", "UTC"),
            ),
        }
    )


def orders_lake(path: Path, *, nested: bool = False) -> SmallLake:
    lake = SmallLake(path)
    lake.complete = {"public.orders": "complete"}
    new, paid = (
        {"status": "new", "total": Decimal("3.00"), "note": "x" * 5},
        {"status": "paid", "total": Decimal("4.00")},
    )
    # In no order, as a table has its rows.
    lake.write(ARCHIVE, changes(("u", 0x20, paid | {"_unchanged": ["note"]}), nested=nested))
    lake.write(
        ARCHIVE, changes(("c", 0x10, new), ("d", 0x30, {}), ("c", 0x18, {"id": 8, "status": "it's"}), nested=nested)
    )
    lake.publish()
    return lake


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    """Two cuts: of the second the view is left behind."""
    made = SmallLake(tmp_path / "lake")
    made.view("daily_revenue", revenue((21, "12.50"), (20, None)))
    made.view("total", pa.table({"n": [2]}))
    made.publish()
    made.view("daily_revenue", revenue((21, "12.50"), (20, "7.00"), (22, "0.10")))
    made.publish()
    behind = ViewState(version=0, generation=1, reason="public.orders is being snapshotted", cut=1, sql_sha="")
    made.views["total"] = behind
    made.publish()
    return made


def test_lakes_of_the_page_have_their_cuts_and_the_form_of_the_browser_tests(lake: SmallLake) -> None:
    config = parse(
        'name = "shop"\n[source]\ndsn = "postgresql://db.invalid/shop"\n[kafka]\nbootstrap = "kafka.invalid:9"\n'
        f'[sinks.lake]\nkind = "warehouse"\npath = "{lake.path}"',
        {},
    )
    (real,) = LakePages(config).lakes()["lakes"]
    (drawn,) = documents.lakes()["lakes"]

    assert [(cut["cut"], cut["views"], cut["computed"]) for cut in real["cuts"]] == [(3, 2, 0), (2, 2, 0), (1, 2, 0)]
    assert [(view["name"], view["cut"], view["lsn"]) for view in real["views"]] == [
        ("daily_revenue", 3, "0/300"), ("total", 1, "0/100"),
    ]  # fmt: skip
    assert set(drawn) == set(real)
    for part in ("cuts", "views"):
        assert {key for one in drawn[part] for key in one} == {key for one in real[part] for key in one}, part


def test_views_are_listed_with_place_rows_and_reason(lake: SmallLake, call: Call) -> None:
    code, out, _ = call("views", "list", "--lake", lake.path, "--json")

    daily, total = json.loads(out)
    assert code == EXIT_OK
    assert daily == daily | {"name": "daily_revenue", "cut": 3, "lsn": "0/300", "rows": 3, "reason": None}
    assert daily["committed_at"] == "1970-01-01T00:00:03+00:00"
    assert daily["age_seconds"] > 1e9
    assert total == total | {"cut": 1, "lsn": "0/100", "rows": 1, "reason": "public.orders is being snapshotted"}


def test_the_list_is_a_table_for_people(lake: SmallLake, call: Call) -> None:
    _, out, _ = call("views", "list", "--lake", lake.path)

    head, daily, total = (line.split() for line in out.splitlines())
    assert head == ["view", "lsn", "cut", "rows", "age"]
    assert daily[:4] == ["daily_revenue", "0/300", "3", "3"]
    assert total[-4:] == ["public.orders", "is", "being", "snapshotted"]


def test_a_view_is_shown_in_order_and_as_of_its_cut(lake: SmallLake, call: Call) -> None:
    code, out, err = call("views", "show", "daily_revenue", "--lake", lake.path)

    assert code == EXIT_OK
    assert [line.split() for line in out.splitlines()] == [
        ["day", "Revenue"],
        ["2026-11-20", "7.00"],
        ["2026-11-21", "12.50"],
        ["2026-11-22", "0.10"],
    ]
    assert err.strip() == "3 of 3 rows of daily_revenue as of cut 3, 0/300"


def test_rows_are_limited_and_chosen(lake: SmallLake, call: Call) -> None:
    def days(*arguments: str) -> list[str]:
        _, out, _ = call("views", "show", "daily_revenue", "--json", "--lake", lake.path, *arguments)
        return [row["day"][-2:] for row in json.loads(out)["shown"]]

    assert days() == ["20", "21", "22"]
    assert days("--limit", "2") == ["20", "21"]
    assert days("--where", "revenue > 1 and day <> '2026-11-20'") == ["21"]
    assert days("--where", '"Revenue" is null') == []


def test_a_view_is_shown_at_an_older_cut_by_lsn_and_number(lake: SmallLake, call: Call) -> None:
    for at in ("1", "0/100", "0/1ff"):
        code, out, _ = call("views", "at", at, "daily_revenue", "--lake", lake.path, "--json")

        shown = json.loads(out)
        assert code == EXIT_OK
        assert (shown["cut"], shown["lsn"], shown["rows"]) == (1, "0/100", 2)
        assert shown["shown"] == [{"day": "2026-11-20", "Revenue": None}, {"day": "2026-11-21", "Revenue": "12.50"}]


def test_a_view_that_is_behind_says_so_when_it_is_shown(lake: SmallLake, call: Call) -> None:
    _, _, err = call("views", "show", "total", "--lake", lake.path)

    assert "as of cut 1, 0/100; behind the newest cut: public.orders is being snapshotted" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("show", "daily_revenu"), EXIT_USAGE, "did you mean daily_revenue? known names: daily_revenue, total"),
        (("at", "9", "total"), EXIT_USAGE, "cut 9 is not in the lake: cuts 1 to 3 are kept"),
        (("at", "0/301", "total"), EXIT_FAILED, "does not reach 0/301: its newest cut 3 ends at 0/300"),
        (("at", "0/ff", "total"), EXIT_USAGE, "keeps no cut from 0/FF or before"),
        (("at", "now", "total"), EXIT_USAGE, "invalid LSN or cut 'now'"),
        (("show", "total", "--where", "n ="), EXIT_USAGE, "invalid condition"),
        (("show", "total", "--where", "m = 1"), EXIT_USAGE, "column m does not exist"),
        (("show", "total", "--where", "n = 'x'"), EXIT_USAGE, "its columns are n long"),
        (("show", "total", "--where", "n in (select 1)"), EXIT_USAGE, "invalid condition"),
        (("show", "total", "--where", "1=1 limit 1"), EXIT_USAGE, "invalid condition"),
    ],
)
def test_what_is_not_there_is_said_with_what_there_is(
    lake: SmallLake, call: Call, arguments: tuple[str, ...], code: int, message: str
) -> None:
    found, _, err = call("views", *arguments, "--lake", lake.path)

    assert found == code
    assert message in err


def test_a_missing_lake_and_a_lake_without_a_cut_have_different_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no lake at"):
        Lake(tmp_path / "none").manifest()
    with pytest.raises(SinkBehind, match="has no cut yet"):
        Lake(tmp_path).manifest()


def test_files_that_are_gone_are_damage(lake: SmallLake, call: Call) -> None:
    for file in (lake.path / "views/total/g1").glob("*.parquet"):
        file.unlink()
    assert call("views", "show", "total", "--lake", lake.path)[0] == EXIT_OPERATOR
    with pytest.raises(LakeDamaged, match="has no version 9"):
        read(Lake(lake.path), "views/total/g1", 9)


def test_a_condition_names_columns_without_regard_to_case_unless_two_differ_by_it() -> None:
    columns = {"id": "long", "Total": "double", "total": "double"}

    assert condition("ID = 1 and Total > 2", columns) == '"id" = 1 AND "Total" > 2'
    assert condition("note = 'a -- b'", {"note": "string"}) == "\"note\" = 'a -- b'"
    assert condition("id = 1 -- all", columns) == '"id" = 1'


def test_a_place_is_a_cut_or_an_lsn() -> None:
    assert parse_at("17") == 17
    assert not isinstance(parse_at("17"), Lsn)
    assert parse_at("0/11") == Lsn(17)
    assert isinstance(parse_at("0/11"), Lsn)


def test_sql_of_a_view_is_printed_as_written_or_as_run(tmp_path: Path, call: Call) -> None:
    text = "-- dialect: postgres\nselect total::int as t from orders\n"
    (tmp_path / "v.sql").write_text(text, encoding="utf-8")

    assert call("views", "sql", "v", "--views", tmp_path) == (EXIT_OK, text, "")
    document = json.loads(call("views", "sql", "v", "--views", tmp_path, "--json")[1])
    assert (document["dialect"], document["late"], document["sql"]) == ("postgres", "correct", text)
    assert "known names: v" in call("views", "sql", "w", "--views", tmp_path)[2]


def test_lake_and_views_come_from_the_configuration(lake: SmallLake, tmp_path: Path, call: Call) -> None:
    views = tmp_path / "sql"
    views.mkdir()
    (views / "later.sql").write_text("select 1 as a", encoding="utf-8")
    config = tmp_path / "cdc.toml"
    start = 'name = "shop"\nsource.dsn = "dbname=shop"\nkafka.bootstrap = "localhost:9092"\n'
    sink = f'[sinks.lake]\nkind = "warehouse"\npath = "{lake.path}"\nviews = "{views}"\n'
    config.write_text(start + sink, encoding="utf-8")

    listed = json.loads(call("views", "list", "-c", config, "--json")[1])
    assert [(view["name"], view["reason"]) for view in listed][1] == ("later", "not published yet")
    assert call("views", "sql", "later", "-c", config)[1] == "select 1 as a\n"
    config.write_text(start, encoding="utf-8")
    assert "the configuration has no warehouse sink" in call("views", "list", "-c", config)[2]
    config.write_text(start + sink + sink.replace("lake]", "other]"), encoding="utf-8")
    assert "2 warehouse sinks: lake, other" in call("views", "list", "-c", config)[2]


def test_a_view_whose_first_build_failed_is_listed_with_its_reason(tmp_path: Path, call: Call) -> None:
    lake = SmallLake(tmp_path)
    lake.unbuilt["wrong"] = Unbuilt(reason="wrong.sql, line 1: there is no column x", text="")
    lake.publish()

    (listed,) = json.loads(call("views", "list", "--lake", lake.path, "--json")[1])
    code, _, err = call("views", "show", "wrong", "--lake", lake.path)

    assert (listed["name"], listed["rows"], listed["reason"]) == (
        "wrong",
        None,
        "wrong.sql, line 1: there is no column x",
    )
    assert code != EXIT_OK
    assert "wrong has no rows yet: wrong.sql, line 1: there is no column x" in " ".join(err.split())


def test_a_file_that_cannot_be_used_is_shown_with_its_reason_and_hides_no_other(tmp_path: Path, call: Call) -> None:
    lake = SmallLake(tmp_path)
    lake.view("good", pa.table({"n": [1]}))
    lake.view("edited", pa.table({"n": [1]}))
    lake.unbuilt["good~2"] = Unbuilt(reason="good.sql, line 1: column m does not exist", text="")
    lake.publish()
    views, config = tmp_path / "files", tmp_path / "cdc.toml"
    views.mkdir()
    files = {"good": "select 1 as n", "wrong": "select (1 as n", "new": "select 1 as n"}
    files["edited"] = "-- plann: auto\nselect 1 as n"
    for name, sql in files.items():
        (views / f"{name}.sql").write_text(sql, encoding="utf-8")
    config.write_text(
        'name = "shop"\nsource.dsn = "dbname=shop"\nkafka.bootstrap = "localhost:9092"\n'
        f'[sinks.lake]\nkind = "warehouse"\npath = "{lake.path}"\nviews = "{views}"\n',
        encoding="utf-8",
    )

    listed = {view["name"]: view["reason"] for view in json.loads(call("views", "list", "-c", config, "--json")[1])}
    assert listed.keys() == {"good", "good~2", "edited", "wrong", "new"}
    assert (listed["good"], listed["new"]) == (None, "not published yet")
    assert "edited.sql, line 1: unknown setting plann; did you mean plan?" in listed["edited"]
    assert "wrong.sql, line 1, column 14: is not valid SQL" in listed["wrong"]

    for command in ("show", "explain", "plan", "sql"):
        code, _, err = call("views", command, "wrong", "-c", config)
        assert (code, "wrong.sql, line 1, column 14: is not valid SQL" in err) == (EXIT_OPERATOR, True)
    assert call("views", "show", "edited", "-c", config)[0] == EXIT_OK, "its last rows stay readable"
    assert call("views", "sql", "good", "-c", config)[1] == "select 1 as n\n"
    assert "restart it" in call("views", "show", "new", "-c", config)[2]
    assert "the new version good~2 has no rows: good.sql" in call("views", "compare", "good", "-c", config)[2]


@pytest.mark.parametrize("nested", [False, True])
def test_a_row_s_history_is_shown_as_tail_shows_events(tmp_path: Path, call: Call, nested: bool) -> None:
    lake = orders_lake(tmp_path, nested=nested)

    code, out, err = call("history", "orders", "7", "--lake", lake.path)

    assert code == EXIT_OK
    assert out.splitlines() == [
        "2026-11-21 12:00:00.000  0/10       insert public.orders  id=7  status=new  total=3.00  note=xxxxx",
        "2026-11-21 12:00:00.000  0/20       update public.orders  id=7  status: new → paid  total: 3.00 → 4.00",
        "2026-11-21 12:01:00.000  0/30       delete public.orders  id=7  status=paid  total=4.00  note=xxxxx",
    ]
    assert err.strip() == "public.orders with id = 7, up to 0/100"


def test_a_row_s_history_for_programs_has_old_and_new(tmp_path: Path, call: Call) -> None:
    lake = orders_lake(tmp_path)

    _, out, _ = call("history", "public.orders", '{"id": 7}', "--lake", lake.path, "--json")

    created, updated, deleted = json.loads(out)
    assert created["changed"]["total"] == {"old": None, "new": "3.00"}
    assert updated["changed"] == {
        "status": {"old": "new", "new": "paid"},
        "total": {"old": "3.00", "new": "4.00"},
    }
    assert updated["row"] == {"id": 7, "status": "paid", "total": "4.00", "note": "xxxxx"}
    assert (deleted["op"], deleted["lsn"], deleted["row"]) == ("d", "0/30", None)


def test_a_history_that_begins_in_the_middle_says_what_it_does_not_know(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.write(ARCHIVE, changes(("u", 0x20, {"status": "paid", "_unchanged": ["note"]})))
    manifest = lake.publish()

    (change,) = history_of(Lake(tmp_path), manifest, "orders", {"ID": 7}).changes

    assert change.before is None
    assert change.unknown == ("note",)
    assert change.after == {"id": 7, "status": "paid", "total": None}


def test_delete_of_an_unseen_row_shows_only_its_key(tmp_path: Path, call: Call) -> None:
    lake = SmallLake(tmp_path)
    lake.complete = {"public.orders": "complete"}
    lake.write(ARCHIVE, changes(("d", 0x20, {})))
    lake.publish()

    assert call("history", "orders", "7", "--lake", tmp_path)[1].split("delete")[1].split() == ["public.orders", "id=7"]


def test_a_value_that_was_read_later_is_not_taken_for_the_row_s_own(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.write(ARCHIVE, changes(("u", 0x20, {"note": "read later", "_unchanged": ["note"]})))

    (change,) = history_of(Lake(tmp_path), lake.publish(), "orders", {"id": 7}).changes

    assert "note" not in (change.after or {})
    assert change.unknown == ("note",)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("orders", "9"), EXIT_OK, "public.orders has no history for id = 9, up to 0/100"),
        (("orders", '{"status": "it\'s"}'), EXIT_OK, "status = it's"),
        (("orders", "x"), EXIT_USAGE, "id cannot have such a value"),
        (("orders", '{"nr": 1}'), EXIT_USAGE, "'nr' is not a column of the table"),
        (("orders", '{"id": null}'), EXIT_USAGE, "'id' cannot be in a key"),
        (("orders", '{"id": 7'), EXIT_USAGE, "invalid key"),
        (("orders", "1", "2", "3", "4", "5"), EXIT_USAGE, "the key has 5 values, but the table has 4 columns"),
        (("customers", "7"), EXIT_USAGE, "table customers does not exist"),
    ],
)
def test_keys_and_tables_that_are_not_there_are_said(
    tmp_path: Path, call: Call, arguments: tuple[str, ...], code: int, message: str
) -> None:
    lake = orders_lake(tmp_path)

    found, _, err = call("history", *arguments, "--lake", lake.path)

    assert found == code
    assert message in err


def test_columns_that_begin_with_an_underscore_are_the_table_s_own(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    rows = changes(("c", 0x10, {}))
    lake.write(ARCHIVE, rows.rename_columns(["_id" if name == "id" else name for name in rows.column_names]))

    found = history_of(Lake(tmp_path), lake.publish(), "orders", {"_id": 7})

    assert found.changes[0].after == {"_id": 7, "status": None, "total": None, "note": None}


def test_values_that_name_more_than_one_row_are_no_key(tmp_path: Path) -> None:
    lake = orders_lake(tmp_path)
    lake.write("mirror/public.orders", pa.table({"id": [7, 7]}))
    manifest = lake.publish()

    with pytest.raises(UsageError, match="id does not identify one row of public"):
        history_of(Lake(tmp_path), manifest, "orders", ["7"])


def keyed(lake: SmallLake, *key: str) -> None:
    """Tell the manifest the key of the archive."""
    lake.tables[ARCHIVE] = structs.replace(lake.tables[ARCHIVE], key=key)


def test_values_are_those_of_the_key_wherever_its_columns_are(tmp_path: Path, call: Call) -> None:
    lake = SmallLake(tmp_path)
    rows = changes(("c", 0x10, {"status": "a", "note": "x"}), ("c", 0x20, {"status": "b", "note": "x", "id": 8}))
    lake.write(ARCHIVE, rows)
    # Values that a guess would refuse: the first column does not identify one row.
    lake.write("mirror/public.orders", pa.table({"id": [7, 7]}))
    keyed(lake, "status", "note")
    manifest = lake.publish()

    found = history_of(Lake(tmp_path), manifest, "orders", ["b", "x"])

    assert (found.key, found.guessed) == ({"status": "b", "note": "x"}, False)
    assert [change.commit_lsn for change in found.changes] == [0x20]
    code, _, err = call("history", "orders", "b", "--lake", tmp_path)
    assert code == EXIT_USAGE
    assert "the key has 1 values, but it needs 2" in err
    assert "status, note" in err


@pytest.mark.parametrize("key", [(), ("renamed",)])
def test_a_key_that_does_not_help_leaves_the_first_columns(tmp_path: Path, key: tuple[str, ...]) -> None:
    lake = SmallLake(tmp_path)
    lake.write(ARCHIVE, changes(("c", 0x10, {})))
    keyed(lake, *key)

    found = history_of(Lake(tmp_path), lake.publish(), "orders", ["7"])

    assert (found.key, found.guessed, len(found.changes)) == ({"id": "7"}, True, 1)


def test_a_guess_is_checked_in_the_mirror_of_the_very_table(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.write("archive/shop.a-2eb.c", changes(("c", 0x10, {})))
    lake.write("mirror/a.b-2ec", pa.table({"id": [7, 7]}))
    lake.write("mirror/a-2eb.c", pa.table({"id": [7]}))
    manifest = lake.publish()

    assert history_of(Lake(tmp_path), manifest, "archive/shop.a-2eb.c", ["7"]).table == "a.b.c"
    lake.write("mirror/a-2eb.c", pa.table({"id": [7]}))
    with pytest.raises(UsageError, match="does not identify one row"):
        history_of(Lake(tmp_path), lake.publish(), "archive/shop.a-2eb.c", ["7"])


def test_events_of_an_outbox_have_no_rows_to_follow(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    lake.write("archive/shop.events.order", pa.table({"_key": ["7"], "_payload": ["{}"]}))

    with pytest.raises(UsageError, match="has outbox events, not rows"):
        history_of(Lake(tmp_path), lake.publish(), "events.order", ["7"])


def test_looking_imports_no_spark() -> None:
    program = (
        "import sys; from sinks.warehouse import Lake, read_cut; "
        "import cdc.cli.views_command, sinks.warehouse.read.row_history; "
        "assert 'pyspark' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
