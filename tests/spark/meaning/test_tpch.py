"""TPC-H with the specification's own tables: every query has PostgreSQL's rows, over small random data."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pyarrow as pa
import pytest

from sinks.warehouse.views.definition import bind, load_views, temporary
from tests.fixtures.servers.running_servers import fresh_database
from tests.tpch.tables import DDL, VIEWS, mirror, schemas, types

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.fixtures.servers.running_servers import PostgresServer

_FIRST: Final = date(1992, 1, 1)
_NATIONS: Final = ("FRANCE", "GERMANY", "BRAZIL", "CHINA", "INDIA", "CANADA", "SAUDI ARABIA", "JAPAN")
_REGIONS: Final = ("EUROPE", "AMERICA", "ASIA")
_REGION_OF: Final = (0, 0, 1, 2, 2, 1, 2, 2)


def rows(chance: random.Random) -> dict[str, list[tuple[object, ...]]]:
    """Rows of all tables. Values are those that the queries ask for, so that their results have rows."""

    def money(most: int) -> Decimal:
        return Decimal(chance.randint(1, most * 100)).scaleb(-2)

    brands, kinds = (
        ("Brand#12", "Brand#23", "Brand#34", "Brand#45"),
        ("PROMO TIN", "LARGE BRASS", "ECONOMY ANODIZED STEEL"),
    )
    boxes, names = ("SM BOX", "MED BOX", "LG BOX", "MED BAG"), ("forest green", "green blush", "red")
    found: dict[str, list[tuple[object, ...]]] = {
        "region": [(n, name, None) for n, name in enumerate(_REGIONS)],
        "nation": [(n, name, _REGION_OF[n], None) for n, name in enumerate(_NATIONS)],
        "part": [
            (n, chance.choice(names), "m", chance.choice(brands), chance.choice(kinds), chance.choice((1, 5, 15, 49)),
             chance.choice(boxes), money(900), "c")
            for n in range(40)
        ],
        "supplier": [
            (n, f"Supplier#{n:09}", "a", n % 8, f"{n % 8 + 10}-x", money(9000),
             chance.choice(("x", "Customer Complaints")))
            for n in range(16)
        ],
        "partsupp": [(n // 4, (n * 5 + n // 4) % 16, chance.randint(1, 99), money(99), "c") for n in range(160)],
        "customer": [
            (n, f"Customer#{n:09}", "a", n % 8, f"{chance.choice((13, 31, 23, 99))}-555", money(9000) - 1000,
             chance.choice(("BUILDING", "MACHINERY")), "c")
            for n in range(60)
        ],
    }  # fmt: skip
    orders: list[tuple[object, ...]] = []
    lines: list[tuple[object, ...]] = []
    for n in range(400):
        day = _FIRST + timedelta(days=chance.randint(0, 2400))
        comment = chance.choice(("special packages requests", "fast"))
        orders.append(
            (n, chance.randint(0, 40), chance.choice("FO"), money(300000), day,
             chance.choice(("1-URGENT", "2-HIGH", "5-LOW")), "clerk", 0, comment)
        )  # fmt: skip
        for line in range(chance.randint(1, 7)):
            part = chance.randint(0, 39)
            supplier = (part * 4 + chance.randint(0, 3)) * 5 + part
            shipped = day + timedelta(days=chance.randint(1, 120))
            lines.append(
                (n, part, supplier % 16, line, Decimal(chance.randint(1, 50)), money(90000),
                 Decimal(chance.randint(0, 10)).scaleb(-2), Decimal(chance.randint(0, 8)).scaleb(-2),
                 chance.choice("RAN"), chance.choice("OF"), shipped, day + timedelta(days=60),
                 shipped + timedelta(days=chance.randint(1, 30)),
                 chance.choice(("DELIVER IN PERSON", "NONE")), chance.choice(("AIR", "AIR REG", "MAIL", "SHIP")), "c")
            )  # fmt: skip
    return {**found, "orders": orders, "lineitem": lines}


def _bag(found: list[tuple[Any, ...]]) -> Counter[tuple[object, ...]]:
    return Counter(tuple(value.normalize() if isinstance(value, Decimal) else value for value in row) for row in found)


@pytest.mark.timeout(600)
def test_every_query_of_tpch_has_the_rows_of_postgresql(postgres: PostgresServer, quick: SparkSession) -> None:
    wrong = {}
    with fresh_database(postgres) as database, psycopg.connect(database.dsn, autocommit=True) as session:
        session.execute(DDL.encode())
        for table, values in rows(random.Random(7)).items():
            with session.cursor() as cursor:
                marks = ", ".join(["%s"] * len(values[0]))
                cursor.executemany(f"insert into {table} values ({marks}) on conflict do nothing".encode(), values)
            stored = session.execute(f"select * from {table}".encode()).fetchall()
            schema = schemas()[table]
            arrays = [
                pa.array(list(one), field.type) for one, field in zip(zip(*stored, strict=True), schema, strict=True)
            ]
            frame = quick.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))
            frame.createOrReplaceTempView(temporary(mirror(table)))
        empty = []
        for view in bind(load_views(VIEWS), list(types()), types()):
            wanted = _bag(session.execute(view.view.sql.encode()).fetchall())
            computed = quick.sql(view.sql).toArrow()
            found = _bag(list(zip(*(column.to_pylist() for column in computed.columns), strict=True)))
            if wanted != found:
                wrong[view.name] = (list((wanted - found).elements())[:3], list((found - wanted).elements())[:3])
            if not wanted or all(value is None for row in wanted for value in row):
                empty.append(view.name)

    for table in types():
        quick.catalog.dropTempView(temporary(table))
    assert wrong == {}
    assert len(empty) <= 4, empty
