"""The recipes of docs/howto/analytics.md: each has the rows of a plain calculation after every cut, kept as it says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from tests.fixtures.views.analytics_answers import ANSWERS, Row
from tests.fixtures.views.doc_examples import example_views
from tests.fixtures.views.kept_views import KeptLake

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

RECIPES: Final = example_views("howto/analytics.md")
AT: Final = pa.timestamp("us", "UTC")
BEGIN: Final = datetime(2026, 11, 1, tzinfo=UTC)
SCHEMAS: Final = {
    "requests": {
        "id": pa.int64(), "path": pa.string(), "status": pa.int32(), "ms": pa.int32(), "person": pa.int32(), "at": AT
    },
    "readings": {"id": pa.int64(), "sensor": pa.int32(), "value": pa.decimal128(10, 2), "at": AT},
    "sales": {"id": pa.int64(), "product": pa.string(), "quantity": pa.int32(), "at": AT},
    "steps": {"id": pa.int64(), "person": pa.int32(), "step": pa.string(), "at": AT},
    "payments": {"id": pa.int64(), "card": pa.int32(), "country": pa.string(), "at": AT},
    "blocked_cards": {"card": pa.int64()},
}  # fmt: skip
VALUES: Final[Mapping[str, Callable[[random.Random], Any]]] = {
    "path": lambda chance: chance.choice("ab"),
    "status": lambda chance: chance.choice([200, 200, 404, 500, 503]),
    "ms": lambda chance: chance.randrange(400),
    "person": lambda chance: chance.randrange(6),
    "sensor": lambda chance: chance.randrange(3),
    "value": lambda chance: Decimal(chance.randrange(-5000, 5000)) / 100,
    "product": lambda chance: chance.choice("uvwxyz"),
    "quantity": lambda chance: chance.randrange(1, 4),
    "step": lambda chance: chance.choice(["view", "view", "cart", "pay"]),
    "card": lambda chance: chance.randrange(4),
    "country": lambda chance: chance.choice(["CH", "DE"]),
    # Two days with many events, two a week later: hours meet, minutes repeat, and some times are equal.
    "at": lambda chance: BEGIN
    + timedelta(days=chance.choice([0, 1, 7, 8]), hours=chance.randrange(3), seconds=30 * chance.randrange(120)),
}  # fmt: skip
CUTS: Final = 3


def test_every_recipe_has_an_answer_of_its_own() -> None:
    assert set(RECIPES) == {*ANSWERS, "reach", "buckets"}


@pytest.mark.parametrize("seed", [1, 2])
def test_recipes_have_the_rows_of_a_plain_calculation_and_are_kept_by_keys(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    schemas = {name: pa.schema(list(columns.items())) for name, columns in SCHEMAS.items()}
    keys = {name: (next(iter(columns)),) for name, columns in SCHEMAS.items()}
    lake = KeptLake(spark.newSession(), tmp_path, RECIPES, schemas, keys)
    tables: dict[str, dict[int, Row]] = {name: {n: row(chance, name, n) for n in range(80)} for name in SCHEMAS}
    tables["blocked_cards"] = {card: {"card": card} for card in (1, 2)}
    lake.cut({name: (list(rows.values()), []) for name, rows in tables.items()})
    assert_answered(lake, tables)
    for _ in range(CUTS):
        changes = {name: changed(chance, name, rows) for name, rows in tables.items()}
        manifest = lake.cut(changes, **dict.fromkeys(RECIPES, "affected"))

        for name in RECIPES:
            record = manifest.views[name].plan
            assert record is not None
            assert (record.plan, record.refused) == ("affected", ""), (name, record)
        assert_answered(lake, tables)


def assert_answered(lake: KeptLake, tables: Mapping[str, dict[int, Row]]) -> None:
    rows = {name: list(found.values()) for name, found in tables.items()}
    for name, answer in ANSWERS.items():
        found = Counter(tuple(map(plain, one.values())) for one in lake.rows(name).to_pylist())
        assert found == Counter(tuple(map(plain, one)) for one in answer(rows)), name


def changed(chance: random.Random, name: str, rows: dict[int, Row]) -> tuple[list[Row], list[Row]]:
    """New rows, corrections, rows that move, and deletions."""
    if name == "blocked_cards":
        card = chance.randrange(4)
        if (gone := rows.pop(card, None)) is not None:
            return [], [gone]
        rows[card] = {"card": card}
        return [rows[card]], []
    put = {number: row(chance, name, number) for number in chance.sample(range(90), 6)}
    rows.update(put)
    gone_ids = chance.sample([number for number in rows if number not in put], 3)
    return list(put.values()), [rows.pop(number) for number in gone_ids]


def row(chance: random.Random, name: str, number: int) -> Row:
    return {column: number if column == "id" else VALUES[column](chance) for column in SCHEMAS[name]}


def plain(value: Any) -> Any:
    """A value that two calculations of one number have in common."""
    if isinstance(value, float):
        return round(value, 6)
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value
