"""Changes of a file's rows keep what differs only in its bits."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from cdc.errors import InvariantError
from sinks.warehouse.delta.patch import check_once, match, patched
from sinks.warehouse.views.changed_columns import reads_all


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_an_update_from_zero_to_minus_zero_is_kept(kind: pa.DataType) -> None:
    stored = pa.table({"k": pa.array([1, 2]), "x": pa.array([0.0, float("nan")], kind)})
    changes = pa.table({"k": pa.array([1]), "x": pa.array([-0.0], kind), "_deleted": [False]})

    found = patched(stored, changes, match(stored, changes, ("k",)))

    assert math.copysign(1, found.rows["x"][0].as_py()) == -1
    assert found.columns == {"x"}


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_float_keys_are_equal_as_they_are_in_postgresql(kind: pa.DataType) -> None:
    stored = pa.table({"k": pa.array([0.0, -0.0, float("nan"), 1.5, 2.5], kind)})
    changes = pa.table({"k": pa.array([-float("nan"), 2.5, -0.0, 7.5], kind)})

    found = match(stored, changes, ("k",))

    assert found.rows.to_pylist() == [0, 1, 2, 4]
    assert found.changes.to_pylist() == [2, 2, 0, 1]
    with pytest.raises(InvariantError, match="contains a key twice"):
        check_once("t", stored, ("k",))


def test_an_update_of_nothing_changes_no_column() -> None:
    stored = pa.table({"k": [1, 2], "x": [float("nan"), 1.0], "t": [None, "a"]})
    changes = stored.append_column("_deleted", pa.array([False, False]))

    found = patched(stored, changes, match(stored, changes, ("k",)))

    assert found.columns == frozenset()
    assert not found.has_gone


@pytest.mark.parametrize(
    "sql",
    [
        "select * from t",
        "select t.* from t join u on t.a = u.a",
        "select count(t.*) from t",
        "select a from t where exists (select * from u)",
        "select a from t natural join u",
        "select * from (select a, b from t) pivot (sum(a) for b in (1, 2))",
        "select a from t where (",
    ],
)
def test_a_query_that_may_read_unnamed_columns_is_found(sql: str) -> None:
    assert reads_all(sql)


@pytest.mark.parametrize("sql", ["select count(*) from t", "select a * 2 as b from t where c > 1"])
def test_a_query_that_names_its_columns_is_known(sql: str) -> None:
    assert not reads_all(sql)
