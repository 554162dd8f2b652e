"""Macros for joins in time: the SQL they expand to, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.errors import ViewRefused
from sinks.warehouse.views.definition import bind, inputs, parse_view, read_view
from sinks.warehouse.views.meaning.pg_types import INT8, TIMESTAMPTZ

_TABLES = ["mirror/public.orders", "archive/shop.public.orders", "history/public.rates", "archive/shop.public.clicks"]
_TYPES = {table: {"id": INT8, "at": TIMESTAMPTZ} for table in _TABLES}
_LATE = "from archive.orders o join history.rates r on r.country = o.country and valid_at(r, o)"


def parsed(sql: str) -> str:
    return parse_view(Path("v.sql"), sql).plain


def test_valid_at_is_the_version_at_the_commit_of_the_event() -> None:
    found = parsed(f"select o.id, r.rate {_LATE}")

    assert found.endswith(
        "and (r._valid_from_lsn <= o._commit_lsn and (r._valid_to_lsn is null or r._valid_to_lsn > o._commit_lsn))"
    )


def test_valid_at_takes_a_version_for_an_event_as_well() -> None:
    found = parsed("select a.id from history.orders a join history.rates b on valid_at(b, a)")

    assert "(b._valid_from_lsn <= a._valid_from_lsn and" in found


def test_words_read_the_tables_they_name_in_both_dialects() -> None:
    for dialect in ("spark", "postgres"):
        sql = (
            f"-- dialect: {dialect}\nselect c.id from in_log_order(archive.clicks, at) c"
            " where c.at < watermark(archive.orders, at, interval '5 minutes')"
        )
        (bound,) = bind([parse_view(Path("v.sql"), sql)], _TABLES, _TYPES)
        assert inputs(bound) == {"archive/shop.public.clicks", "archive/shop.public.orders"}


def test_text_of_the_file_stays_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "v.sql"
    file.write_text(f"select o.id {_LATE}")

    view = read_view(file)

    assert view.sql == f"select o.id {_LATE}"
    assert "valid_at(" not in view.plain


def test_corrected_time_adds_what_the_clock_was_wrong_by() -> None:
    found = parsed("select corrected_time(o.at, o.sent, coalesce(o.received, o.sent)) as at from orders o")

    assert found == "select ((o.at) + ((coalesce(o.received, o.sent)) - (o.sent))) as at from orders o"


def test_column_or_text_of_that_name_is_left_alone() -> None:
    sql = "select o.watermark, 'valid_at(r, o)' as word, `in_log_order` from orders o"

    assert parsed(sql) == sql


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (
            "select 1 as a\nfrom archive.orders o join rates r on valid_at(r, o)",
            "line 2, column 39: valid_at needs a history",
        ),
        ("select 1 as a from archive.orders o where valid_at(x, o)", "x is not a table of the query"),
        ("select 1 as a from history.rates r where valid_at(r, o)", "valid_at names o, which is not a table"),
        ("select 1 as a from orders where valid_at(r)", "valid_at has wrong arguments"),
        ("select 1 as a from orders where at < watermark(orders, at, interval '1' day)", "reads an archive"),
        ("select corrected_time(o.at, o.sent) as a from orders o", "corrected_time has wrong arguments"),
        ("select 1 as a from in_log_order(archive.clicks) c", "in_log_order has wrong arguments"),
        ("select 1 as a from in_log_order(archive.clicks, at", "in_log_order has wrong arguments"),
    ],
)
def test_words_in_a_wrong_form_are_refused_with_the_right_one(sql: str, said: str) -> None:
    with pytest.raises(ViewRefused) as refused:
        parsed(sql)

    assert said in refused.value.message
