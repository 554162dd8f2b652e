"""Files of views with defects: each concerns its own view, and the reason leads to the place in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.errors import ViewRefused
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import ViewState
from sinks.warehouse.views.definition import (
    BoundView,
    View,
    ViewFiles,
    bind_each,
    load_views,
    ordered,
    parse_view,
    read_views,
)
from sinks.warehouse.views.generations import Decided, TextStore, usable, views_to_run
from tests.fixtures.views.pg_columns import types_of_ddl

TYPES = types_of_ddl("create table orders (id bigint primary key, note text, total numeric(12,3))")
ORDERS = "mirror/public.orders"


def view(sql: str, name: str = "v") -> View:
    return parse_view(Path(f"{name}.sql"), sql)


def folder(tmp_path: Path, **views: str) -> Path:
    for name, sql in views.items():
        (tmp_path / f"{name}.sql").write_text(sql, encoding="utf-8")
    return tmp_path


def state(text: str, generation: int = 1) -> ViewState:
    return ViewState(version=3, generation=generation, reason="", cut=7, sql_sha="x", text=text)


def left(*views: View, behind: tuple[str, ...] = (), tables: tuple[str, ...] = (ORDERS,)) -> dict[str, str]:
    """Why each view cannot be bound."""
    found = bind_each(views, tables, TYPES, behind)
    return {one[0].name: one[1].reason for one in found if not isinstance(one, BoundView)}


def test_a_broken_file_concerns_its_own_view_only(tmp_path: Path) -> None:
    folder(tmp_path, good="select id from orders", over="select id from good", syntax="select (id from orders")
    (tmp_path / "latin.sql").write_bytes(b"select 'a'\n,'\xe9' as x")
    (tmp_path / "inner.sql").mkdir()

    files = read_views(tmp_path)

    assert [found.name for found in files.views] == ["good", "over"]
    assert files.refused.keys() == {"syntax", "latin", "inner"}
    assert files.refused["latin"].message == f"{tmp_path}/latin.sql, line 2: is not text in UTF-8"
    assert files.refused["inner"].message == f"{tmp_path}/inner.sql: cannot be read: Is a directory"
    with pytest.raises(ViewRefused, match=r"is not text|is not valid SQL|Is a directory"):
        load_views(tmp_path)


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "v.sql").write_bytes(b"\xef\xbb\xbfselect id from orders")

    assert read_views(tmp_path).views[0].sql == "select id from orders"


def test_names_that_differ_only_in_case_are_refused_with_both_files(tmp_path: Path) -> None:
    files = read_views(folder(tmp_path, Pair="select 1 as a", pair="select 1 as a", other="select 1 as a"))

    assert [found.name for found in files.views] == ["other"]
    assert "Pair.sql: defines the same view as pair.sql" in files.refused["Pair"].message
    assert "pair.sql: defines the same view as Pair.sql" in files.refused["pair"].message


def test_every_view_of_a_cycle_is_named_with_its_place_and_the_others_stay_in_order() -> None:
    views = [
        view("select x from c\nunion all select x\nfrom b", "a"),
        view("select x from a", "b"),
        view("select 1 as x", "c"),
        view("select x from a", "d"),
        view("select x from f", "e"),
        view("select x from e", "f"),
        view("select x from g", "g"),
    ]

    in_order, cycles = ordered(views)

    assert [found.name for found in in_order if found.name != "c"] == ["d"]
    assert {name: error.message for name, error in cycles.items()} == {
        "a": "a.sql, line 3, column 6: views read each other in a cycle: a -> b -> a",
        "b": "b.sql, line 1, column 15: views read each other in a cycle: b -> a -> b",
        "e": "e.sql, line 1, column 15: views read each other in a cycle: e -> f -> e",
        "f": "f.sql, line 1, column 15: views read each other in a cycle: f -> e -> f",
        "g": "g.sql, line 1, column 15: views read each other in a cycle: g -> g",
    }


def test_two_cycles_that_share_a_view_are_found_completely() -> None:
    views = [view("select x from b", "a"), view("select x from a, c", "b"), view("select x from b", "c")]

    assert ordered(views)[0] == ()
    assert ordered(views)[1].keys() == {"a", "b", "c"}


def test_views_over_a_refused_view_are_left_behind_and_never_read_a_table_of_its_name() -> None:
    over, far = view("select id from broken", "over"), view("-- dialect: postgres\nselect id from over", "far")
    same = view("select id from orders", "same")

    assert left(over, far, behind=("broken",)) == {
        "over": "the view broken is left behind",
        "far": "the view over is left behind",
    }
    assert "orders is ambiguous: public.orders, the view orders" in left(same, behind=("orders",))["same"]
    assert left(view("select id from public.orders", "q"), behind=("orders",)) == {}


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("-- dialect: postgres\nselect id, nots from orders", "line 2, column 12"),
        ("-- dialect: postgres\nselect o.id from public.orders o where o.totl > 1", "line 2, column 40"),
        ("-- dialect: postgres\nselect id from orders\nwhere  soundex(note) = 'x'", "line 3, column 8"),
        ("-- dialect: postgres\nselect id from orders as a\ngroup by id, soundex(note)", "line 3"),
    ],
)
def test_a_refused_part_is_found_at_its_place_in_the_file(sql: str, place: str) -> None:
    """The text that is translated has other names of tables, so its columns are others."""
    assert left(view(sql))["v"].startswith(f"v.sql, {place}")


def test_what_the_parser_cannot_take_is_refused() -> None:
    with pytest.raises(ViewRefused, match="is nested too deeply"):
        view(f"select {'(' * 3000}1{')' * 3000} as x")
    deep = view(f"-- dialect: postgres\nselect {'+'.join(['id'] * 3000)} as x from orders")
    assert "is nested too deeply" in left(deep)["v"]
    odd = view("-- dialect: postgres\nselect div(id = 100) as x from orders")
    assert "v.sql: cannot be read: AttributeError" in left(odd)["v"]


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("-- publsih: topic", "line 1: unknown setting publsih; did you mean publish?"),
        ("-- Keys: id", "line 1: unknown setting keys; did you mean key?"),
        ("-- note\n-- dialekt: postgres", "line 2: unknown setting dialekt; did you mean dialect?"),
        ("-- plan: auto\n-- plan: affected", "line 2: plan is set twice; remove one of the lines"),
    ],
)
def test_a_mistyped_setting_is_no_comment(header: str, reason: str) -> None:
    with pytest.raises(ViewRefused) as refused:
        view(f"{header}\nselect id from orders")

    assert refused.value.reason.startswith(f"v.sql, {reason}")


def test_a_comment_with_a_colon_stays_a_comment() -> None:
    assert view("-- What was sold: by day\n-- source: shop\n-- todo: more\nselect id from orders").header.key == ()


def test_a_broken_file_keeps_its_view_by_the_text_in_the_lake(tmp_path: Path) -> None:
    (tmp_path / "_cuts").mkdir()
    texts = TextStore(Location.of(str(tmp_path)))
    old, other = view("-- key: id\nselect id from orders", "old"), view("select 1 as a", "other")
    texts.keep([old])
    refused = {
        name: ViewRefused(f"{name}.sql: contains no query", hint="write one", file=f"{name}.sql")
        for name in ("old", "new", "lost", "x~2")
    }
    states = {
        "old": state(old.text_sha, 2),
        layout.beside("old", 1): state("y"),
        "lost": state(""),
        "other": state(other.text_sha),
    }

    found = usable(ViewFiles((other,), refused), states, texts)

    assert {one.name for one in found.views} == {"other", "old"}
    assert found.names == {"other", "old", "new", "lost", "x~2"}
    assert next(one for one in found.views if one.name == "old").header.key == ("id",)
    reason = "contains no query; write one"
    assert found.problems(states) == {
        "old~3": f"old.sql: {reason}",
        "new": f"new.sql: {reason}",
        "lost": f"lost.sql: {reason}",
        "x-2": f"x~2.sql: {reason}",
    }


def test_a_cycle_of_earlier_and_new_texts_leaves_only_its_views_behind(tmp_path: Path) -> None:
    (tmp_path / "_cuts").mkdir()
    texts = TextStore(Location.of(str(tmp_path)))
    earlier, new = view("select id from b", "a"), view("select id from orders", "a")
    b, other = view("select id from a", "b"), view("select 1 as x", "other")
    texts.keep([earlier])

    run, failed = views_to_run(
        [new, b, other], Decided(texts={"a": earlier.text_sha, "b": b.text_sha, "other": other.text_sha}), texts
    )

    assert [one.name for one in run] == ["other"]
    assert failed.keys() == {"a", "b"}


def test_an_earlier_text_that_is_no_longer_accepted_leaves_its_view_behind(tmp_path: Path) -> None:
    (tmp_path / "_cuts").mkdir()
    texts = TextStore(Location.of(str(tmp_path)))
    sha = "0" * 64
    (tmp_path / "_cuts" / layout.sql_file(sha)).write_text("select id, now() as at from orders")

    run, failed = views_to_run([view("select id from orders", "a")], Decided(texts={"a": sha}), texts)

    assert run == ()
    assert "now() is the time of the computation" in failed["a"].reason
