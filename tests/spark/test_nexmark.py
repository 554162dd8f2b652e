"""The views of docs/howto/nexmark.md have the rows of PostgreSQL's answers after every cut, and are kept by keys."""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pyarrow as pa
from psycopg import sql

from tests.fixtures.views.doc_examples import example_views
from tests.fixtures.views.kept_views import KeptLake
from tests.tidy.tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.fixtures.servers.daemon import CaptureSite

VIEWS: Final = example_views("howto/nexmark.md")
TABLES: Final = re.findall(r"^create table .*?;$", (ROOT / "docs/howto/nexmark.md").read_text(), re.MULTILINE)
AT: Final = pa.timestamp("us", "UTC")
SCHEMAS: Final = {
    "persons": {"id": pa.int64(), "name": pa.string(), "city": pa.string(), "state": pa.string(), "at": AT},
    "auctions": {"id": pa.int64(), "seller": pa.int64(), "category": pa.int32(), "at": AT, "expires": AT},
    "bids": {"id": pa.int64(), "auction": pa.int64(), "bidder": pa.int64(), "price": pa.int64(), "at": AT},
}
_FINAL: Final = """final as (
    select a.id, a.category, a.seller, a.expires, max(b.price) as price from auctions a, bids b
    where b.auction = a.id and b.at >= a.at and b.at <= a.expires group by a.id
)"""
_TEN: Final = "date_bin('10 minutes', at, '2000-01-01+00')"
ANSWERS: Final = {
    "in_euros": "select id, auction, bidder, price * 0.908, at from bids",
    "of_some": "select id, auction, price from bids where mod(auction, 5) = 0",
    "local_items": """select name, city, state, a.id from persons p, auctions a
        where seller = p.id and category = 2 and state = any('{OR,ID,CA}')""",
    "category_prices": f"with {_FINAL} select category, avg(price) from final group by category",
    "seller_prices": f"""with {_FINAL} select seller, avg(price) from (
            select distinct seller from final
        ) s, lateral (
            select price from final f where f.seller = s.seller order by expires desc, id desc limit 10
        ) newest group by seller""",
    "hot_items": """with counts as (
            select begins, auction, count(*) as n from bids, generate_series(
                date_bin('5 minutes', at, '2000-01-01+00') - interval '5 minutes',
                date_bin('5 minutes', at, '2000-01-01+00'), '5 minutes'
            ) as begins group by 1, 2
        )
        select * from counts c where n = (select max(n) from counts o where o.begins = c.begins)""",
    "highest_bids": f"""select {_TEN}, auction, bidder, price from bids b where not exists (
            select from bids o where date_bin('10 minutes', o.at, '2000-01-01+00')
                = date_bin('10 minutes', b.at, '2000-01-01+00') and o.price > b.price
        )""",
    "new_sellers": f"""select id, name, {_TEN} from persons p where exists (
            select from auctions a where a.seller = p.id and date_bin('10 minutes', a.at, '2000-01-01+00')
                = date_bin('10 minutes', p.at, '2000-01-01+00')
        )""",
    "visits": """select bidder, min(at), max(at) + interval '10 minutes', count(*) from (
            select bidder, at, sum(begins) over (partition by bidder order by at, id) as visit from (
                select bidder, at, id, case when at <= lag(at) over (partition by bidder order by at, id)
                    + interval '10 minutes' then 0 else 1 end as begins from bids
            ) b
        ) v group by bidder, visit""",
}
BEGIN: Final = datetime(2026, 11, 30, 9, tzinfo=UTC)
COUNTS: Final = {"persons": 12, "auctions": 30, "bids": 90}
CUTS: Final = 3


def test_views_have_postgresqls_rows_after_every_cut(capture: CaptureSite, spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(11)
    schemas = {name: pa.schema(list(columns.items())) for name, columns in SCHEMAS.items()}
    lake = KeptLake(spark.newSession(), tmp_path, VIEWS, schemas, dict.fromkeys(SCHEMAS, ("id",)))
    assert set(VIEWS) == set(ANSWERS)
    with psycopg.connect(capture.dsn, autocommit=True) as database:
        for statement in TABLES:
            database.execute(statement.encode())
        rows = {name: {n: row(chance, name, n) for n in range(count)} for name, count in COUNTS.items()}
        changes: dict[str, tuple[list[Any], list[Any]]] = {
            name: (list(found.values()), []) for name, found in rows.items()
        }
        for number in range(CUTS + 1):
            for name, (put, gone) in changes.items():
                apply(database, name, put, gone)
            manifest = lake.cut(changes, **(dict.fromkeys(VIEWS, "affected") if number else {}))

            for name, answer in ANSWERS.items():
                record = manifest.views[name].plan
                assert record is not None
                assert (record.plan, record.refused) == ("affected" if number else "recompute", ""), (name, record)
                found = Counter(tuple(map(plain, one.values())) for one in lake.rows(name).to_pylist())
                assert found == Counter(tuple(map(plain, one)) for one in database.execute(answer.encode())), name
            changes = {name: changed(chance, name, rows[name]) for name in SCHEMAS}


def apply(database: psycopg.Connection, name: str, put: list[dict[str, Any]], gone: list[dict[str, Any]]) -> None:
    table = sql.Identifier(name)
    with database.cursor() as cursor:
        delete = sql.SQL("delete from {} where id = %s").format(table)
        cursor.executemany(delete, [[one["id"]] for one in [*put, *gone]])
        columns = sql.SQL(", ").join(map(sql.Placeholder, SCHEMAS[name]))
        cursor.executemany(sql.SQL("insert into {} values ({})").format(table, columns), put)


def changed(chance: random.Random, name: str, rows: dict[int, dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """New rows, corrections and deletions."""
    put = {number: row(chance, name, number) for number in chance.sample(range(COUNTS[name] + 10), 5)}
    rows.update(put)
    gone = chance.sample([number for number in rows if number not in put], 2)
    return list(put.values()), [rows.pop(number) for number in gone]


def row(chance: random.Random, name: str, number: int) -> dict[str, Any]:
    at = BEGIN + timedelta(seconds=30 * chance.randrange(160))
    if name == "persons":
        state = chance.choice(["OR", "ID", "CA", "NY"])
        return {"id": number, "name": f"n{number}", "city": chance.choice("xyz"), "state": state, "at": at}
    if name == "auctions":
        # One seller has more than ten auctions.
        seller, category = chance.choice([0, 0, 1, chance.randrange(COUNTS["persons"])]), chance.randrange(4)
        expires = at + timedelta(minutes=chance.randrange(1, 60))
        return {"id": number, "seller": seller, "category": category, "at": at, "expires": expires}
    auction, bidder = chance.randrange(COUNTS["auctions"]), chance.randrange(8)
    return {"id": number, "auction": auction, "bidder": bidder, "price": chance.randrange(1, 40), "at": at}


def plain(value: Any) -> Any:
    """A value that two databases have in common."""
    return round(float(value), 6) if isinstance(value, float | Decimal) else value
