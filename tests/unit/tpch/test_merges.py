"""Changes of TPC-H become net rows to merge: each key once, deleted rows marked, `char(n)` padded."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.tpch.merges import Merges
from tests.tpch.refresh import Delete, Insert, Transaction, Update
from tests.tpch.tables import padded, schemas

LINE: dict[str, Any] = padded(
    "lineitem", dict.fromkeys(schemas()["lineitem"].names) | {"l_shipmode": "AIR", "l_comment": "c"}
)
NATION: dict[str, Any] = padded("nation", {"n_nationkey": 1, "n_name": "CHINA", "n_regionkey": 2, "n_comment": None})


def line(order: int, number: int) -> dict[str, Any]:
    return {**LINE, "l_orderkey": order, "l_linenumber": number}


@pytest.fixture
def merges() -> Merges:
    rows = {"lineitem": [line(1, 1), line(1, 2), line(2, 1)], "nation": [NATION]}
    whole = {table: pa.Table.from_pylist(rows.get(table, []), schema) for table, schema in schemas().items()}
    lines = whole["lineitem"]  # in two batches, of which the first ends within an order
    return Merges(whole | {"lineitem": pa.concat_tables([lines.slice(0, 1), lines.slice(1)])})


def merged(merges: Merges, *transactions: Transaction) -> dict[str, list[dict[str, Any]]]:
    return {table: rows.to_pylist() for table, rows in merges.merge(transactions).items()}


def test_an_update_is_a_full_row(merges: Merges) -> None:
    assert merged(merges, (Update("nation", (1,), {"n_name": "JAPAN"}),)) == {
        "mirror/public.nation": [{**NATION, "n_name": "JAPAN".ljust(25), "_deleted": False}]
    }


def test_an_update_of_a_missing_row_changes_nothing(merges: Merges) -> None:
    assert merged(merges, (Update("lineitem", (1, 7), {"l_shipmode": "RAIL"}),)) == {}


def test_a_deleted_order_deletes_its_lines_and_not_those_of_others(merges: Merges) -> None:
    assert merged(merges, (Delete("lineitem", (1,)),)) == {
        "mirror/public.lineitem": [{**line(1, 1), "_deleted": True}, {**line(1, 2), "_deleted": True}]
    }


def test_later_changes_see_earlier_ones(merges: Merges) -> None:
    new = line(9, 1)
    first = merged(merges, (Insert("lineitem", tuple(new.values())),), (Update("lineitem", (9, 1), {"l_tax": None}),))
    second = merged(merges, (Update("lineitem", (9, 1), {"l_comment": "d"}),))
    third = merged(merges, (Delete("lineitem", (9,)),))

    assert first == {"mirror/public.lineitem": [{**new, "_deleted": False}]}
    assert second == {"mirror/public.lineitem": [{**new, "l_comment": "d", "_deleted": False}]}
    assert third == {"mirror/public.lineitem": [{**new, "l_comment": "d", "_deleted": True}]}


def test_a_row_that_comes_and_goes_or_returns_to_its_values_is_left_out(merges: Merges) -> None:
    row = tuple(line(9, 1).values())
    back = (Update("nation", (1,), {"n_comment": "x"}),), (Update("nation", (1,), {"n_comment": None}),)

    assert merged(merges, (Insert("lineitem", row),), (Delete("lineitem", (9,)),), *back) == {}


def test_the_base_is_found_by_the_whole_key(merges: Merges) -> None:
    assert merged(merges, (Delete("lineitem", (1, 2)),)) == {
        "mirror/public.lineitem": [{**line(1, 2), "_deleted": True}]
    }
