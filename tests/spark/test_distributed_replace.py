"""Rows replaced by key in executors: any number of rows per key, in any number of files, with nulls in keys."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from sinks.warehouse.lake.committer import Txn
from tests.fixtures.lake.framed import Framed, spread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLE = "views/v/g1"
Row = dict[str, Any]

KEYS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "integer": (pa.int64(), lambda number: number),
    "text": (pa.string(), lambda number: f"é{number}'"),
    "decimal": (pa.decimal128(12, 2), lambda number: Decimal(number * 25).scaleb(-2)),
}


def _bag(rows: list[Row]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("tasks", ["one", "many"])
@pytest.mark.parametrize("kind", KEYS)
def test_rows_of_the_keys_are_gone_and_only_the_new_ones_are_there(
    quick: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, tasks: str
) -> None:
    """Over several cuts, against a list of rows. Columns have names of ours; a second attempt changes nothing."""
    if tasks == "many":
        spread(monkeypatch)
    type_, make = KEYS[kind]
    schema = pa.schema([("k", type_), ("First", pa.int32()), ("row", pa.int32())])
    dice, lake = random.Random(kind), Framed(quick, tmp_path)

    def some(keys: list[tuple[Any, Any]], most: int) -> list[Row]:
        return [
            {"k": k, "First": part, "row": dice.randrange(1000)}
            for k, part in keys
            for _ in range(dice.randrange(most))
        ]

    def table(rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=schema)

    def key(number: int) -> tuple[Any, Any]:
        return None if number % 17 == 0 else make(number), None if number % 5 == 0 else number % 3

    held = some([key(number) for number in range(60)], 4)
    version = lake.overwrite(TABLE, table(held), base=None, txn=Txn("v", 1), sort_by=["k"])
    more = some([key(number) for number in range(30, 90)], 2)
    version = lake.append(TABLE, table(more), base=version, txn=Txn("v", 2))
    held += more
    for cut in range(3, 7):
        keys = list(dict.fromkeys(key(dice.randrange(120)) for _ in range(12)))
        fresh = some(keys, 3)
        gone = pa.table(
            {"k": pa.array([k for k, _ in keys], type_), "First": pa.array([p for _, p in keys], pa.int32())}
        )
        held = [row for row in held if (row["k"], row["First"]) not in set(keys)] + fresh
        before, version = version, lake.replace_keys(TABLE, gone, table(fresh), base=version, txn=Txn("v", cut))
        again = lake.replace_keys(TABLE, gone, table(fresh), base=before, txn=Txn("v", cut))
        assert again == version
        assert _bag(lake.read(TABLE, version).to_pylist()) == _bag(held)
    assert len(lake.files(TABLE, version)) <= 3, "new keys make a new file in each cut"
