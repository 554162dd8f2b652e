"""The comparison behind every proof of a view: rows as bags, values by meaning, nothing else is equal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from tests.fixtures.views.view_proof import compared, queries
from tests.fixtures.views.view_truth import differences
from tests.tidy.tree import ROOT

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, Decimal("1.00")),
        (0.1 + 0.2, 0.3),
        (NOON, NOON.astimezone(timezone(timedelta(hours=1)))),
        ([{"b": 1, "a": None}], [{"a": None, "b": Decimal(1)}]),
        (b"x", memoryview(b"x")),
    ],
)
def test_values_of_two_engines_that_mean_the_same_are_equal(one: Any, other: Any) -> None:
    assert differences([{"x": one}], [{"x": other}]) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 2), (None, 0), ("1", 1), ([1, 2], [2, 1]), ([], None), ({"a": 1}, {"b": 1}), (0.1, 0.100002), (True, "true")],
)
def test_values_that_differ_are_reported(one: Any, other: Any) -> None:
    assert differences([{"x": one}], [{"x": other}]) != []


def test_rows_count_as_often_as_they_are_there() -> None:
    (fault,) = differences([{"x": 1}, {"x": 1}, {"x": 2}], [{"x": 1}, {"x": 2}, {"x": 3}])

    assert fault.startswith("3 rows, 3 wanted; extra [(('x', 1),)]; missing [(('x', 3),)]")
    found = compared("v", [{"x": 1}, {"x": 1}], [{"x": 1}])
    assert (found.rows, found.wanted, found.differ) == (2, 1, 1)


@pytest.mark.parametrize("folder", ["tests/spark/viewshapes/views", "tests/spark/flights/views", "cdc/shop/views"])
def test_every_view_that_is_proven_has_a_query_for_postgresql(folder: str) -> None:
    files = {file.stem for file in (ROOT / folder).glob("*.sql")}

    assert set(queries(ROOT / folder)) == files
    assert len(files) >= {"tests/spark/viewshapes/views": 25}.get(folder, 4)
