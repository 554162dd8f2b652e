"""Lineage of views: which columns of which inputs a column comes from, by the text alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cdc.errors import UsageError
from sinks.warehouse.read.lineage import view_lineage

if TYPE_CHECKING:
    from pathlib import Path

_TABLES = {
    "public.orders": ["id", "customer_id", "note"],
    "public.lines": ["order_id", "quantity", "price"],
    "public.customers": ["id", "name"],
}


def _traced(folder: Path, sql: str, name: str = "v") -> dict[str, Any]:
    (folder / f"{name}.sql").write_text(f"-- dialect: postgres\n{sql}\n")
    return view_lineage(folder, name, _TABLES)


def _origins(found: dict[str, Any]) -> dict[str, list[str]]:
    assert found["error"] is None
    return {
        one["column"]: [f"{origin['table']}.{origin['column']}" for origin in one["from"]] for one in found["columns"]
    }


def test_columns_are_traced_through_joins_aggregates_and_with(tmp_path: Path) -> None:
    found = _traced(
        tmp_path,
        "with o as (select id, customer_id, note as n from public.orders where note is not null) "
        "select c.name, o.n, sum(l.quantity * l.price) as total, count(*) as lines "
        "from o join public.lines l on l.order_id = o.id join public.customers c on c.id = o.customer_id "
        "group by c.name, o.n",
    )

    assert _origins(found) == {
        "name": ["public.customers.name"],
        "n": ["public.orders.note"],
        "total": ["public.lines.price", "public.lines.quantity"],
        "lines": [],
    }
    assert found["inputs"] == ["public.customers", "public.lines", "public.orders"]


def test_columns_without_a_table_and_stars_are_found_by_the_columns_of_the_tables(tmp_path: Path) -> None:
    assert _origins(_traced(tmp_path, "select name, price from public.customers, public.lines")) == {
        "name": ["public.customers.name"],
        "price": ["public.lines.price"],
    }
    assert list(_origins(_traced(tmp_path, "select * from public.orders"))) == ["id", "customer_id", "note"]


def test_a_view_over_a_view_comes_from_the_columns_of_that_view(tmp_path: Path) -> None:
    _traced(tmp_path, "select id, name as who from public.customers", "people")

    assert _origins(_traced(tmp_path, "select upper(who) as shown, p.* from people p")) == {
        "shown": ["people.who"],
        "id": ["people.id"],
        "who": ["people.who"],
    }


def test_set_operations_come_from_both_sides(tmp_path: Path) -> None:
    found = _traced(tmp_path, "select name as t from public.customers union all select note from public.orders")

    assert _origins(found) == {"t": ["public.customers.name", "public.orders.note"]}


@pytest.mark.parametrize("window", ["window(o.note, '1 day')", "session_window(o.note, '5 minutes')"])
def test_bounds_of_a_window_of_time_come_from_the_time(tmp_path: Path, window: str) -> None:
    name = window.partition("(")[0]
    sql = f"select cast({name}.start as date) as day, {name}.end as ends, count(*) as n, max(o.id) as newest"
    (tmp_path / "v.sql").write_text(f"{sql} from public.orders o group by {window}\n")

    assert _origins(view_lineage(tmp_path, "v", _TABLES)) == {
        "day": ["public.orders.note"],
        "ends": ["public.orders.note"],
        "n": [],
        "newest": ["public.orders.id"],
    }


def test_a_text_that_cannot_be_traced_still_has_its_inputs(tmp_path: Path) -> None:
    found = _traced(tmp_path, "select nothing.x from public.customers c")

    assert found["inputs"] == ["public.customers"]


def test_an_unknown_view_is_an_error_that_lists_the_views(tmp_path: Path) -> None:
    _traced(tmp_path, "select id from public.customers", "people")

    with pytest.raises(UsageError, match="no file defines the view 'peopel'") as raised:
        view_lineage(tmp_path, "peopel", _TABLES)
    assert "people" in raised.value.hint
