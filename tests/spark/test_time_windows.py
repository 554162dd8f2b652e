"""Spark's own time windows, their text for plans, and the views kept by it have the same rows."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from sinks.warehouse.planner.relations import Relation
from sinks.warehouse.planner.time_windows import NUMBERS, without_time_windows
from sinks.warehouse.views.definition import parse_view
from sinks.warehouse.views.same_query import same_columns
from tests.fixtures.views.kept_views import KeptLake
from tests.property.test_time_window_plans import SHAPES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
KINDS: Final = {"timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"), "date": pa.date32()}
QUERIES: Final = [
    *(sql for sql, _ in SHAPES.values()),
    "select window.start, window.end from events group by window(at, '1 week', '1 day', '6 hours')",
    "select user_id, window.start, count(*) as n from events group by 1, window(at, '10 seconds')",
    "select user_id as u, window.end from events where amount > 0 group by u, window(at, '7 seconds')",
    "select window.start, count(*) as n from events where amount > 2 or user_id = 1 group by window(at, '9 seconds')",
    """select user_id, session_window.start from events where amount > 2 or id = 1
       group by user_id, session_window(at, '3 seconds')""",
    """select window.start, count(distinct user_id) filter (where amount > 1) as n from events
       group by window(cast(at as timestamp), '20 seconds', '7 seconds')""",
    """select o.id, window.start, count(e.id) as n from events o left join events e on e.user_id = o.id
       group by o.id, window(e.at, '1 day')""",
    """with w as (
           select user_id, window.start as s, count(*) as n from events group by user_id, window(at, '5 seconds')
       )
       select s, sum(n) as n from w where n > 1 group by s union all
       select session_window.end, count(*) as n from events group by user_id, session_window(at, '2 seconds')""",
    "select window, count(*) as n from events group by window(at, '1 day')",
    "select cast(window.start as date) as day, max(window.end) as until from events group by window(at, '6 hours')",
    "select window.start, count(*) as n from events group by window(at, '6 hours') having count(*) > 1",
    "select window(at, '90 minutes').start as began, count(*) as n from events group by window(at, '90 minutes')",
    "select o.id, window.end from events e join events o on o.id = e.user_id group by o.id, window(e.at, '2 days')",
]
DAY: Final = "2026-11-30"
SESSIONS_OF_DATES: Final = "session_window"


@pytest.mark.parametrize("kind", KINDS)
def test_text_without_time_windows_has_the_rows_of_sparks_own(kind: str, spark: SparkSession) -> None:
    spark = spark.newSession()  # temporary views are its own
    chance = random.Random(7)
    rows = [event(chance, number, kind) for number in range(400)]
    schema = pa.schema([("id", pa.int64()), ("user_id", pa.int64()), ("at", KINDS[kind]), ("amount", pa.int32())])
    made = spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema))
    made.withColumn("at", made["at"].cast(kind)).createOrReplaceTempView("events")
    spark.range(NUMBERS.rows).toDF("i").createOrReplaceTempView(NUMBERS.name)
    columns = {"id": "bigint", "user_id": "bigint", "at": kind, "amount": "int"}
    known = {"events": Relation("events", columns, ("id",)), NUMBERS.name: NUMBERS}

    for sql in QUERIES:
        if kind == "date" and SESSIONS_OF_DATES in sql:
            continue
        own, plain = spark.sql(sql), spark.sql(without_time_windows(sql, known).sql)
        assert same_columns(own, plain), sql
        assert Counter(map(str, own.collect())) == Counter(map(str, plain.collect())), sql


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_corrected_time_is_that_of_a_right_clock(kind: str, spark: SparkSession) -> None:
    """The device is an hour behind, and the message took two seconds."""
    spark = spark.newSession()
    times = {"at": "08:00", "sent": "09:30", "received": "10:30:02"}
    cast = ", ".join(f"cast('{DAY} {time}' as {kind}) as {name}" for name, time in times.items())
    spark.sql(f"select {cast}").createOrReplaceTempView("readings")
    view = parse_view(Path("v.sql"), "select cast(corrected_time(at, sent, received) as string) as at from readings")

    assert [row.at for row in spark.sql(view.plain).collect()] == [f"{DAY} 09:00:02"]


@pytest.mark.parametrize("seed", [1, 2])
def test_views_of_time_windows_are_kept_by_keys_and_have_the_rows_of_a_plain_count(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    views = {f"v{number}": sql for number, (sql, _) in enumerate(SHAPES.values())}
    schema = pa.schema(
        [("id", pa.int64()), ("user_id", pa.int64()), ("at", pa.timestamp("us")), ("amount", pa.int32())]
    )
    lake = KeptLake(spark.newSession(), tmp_path, views, {"events": schema}, {"events": ("id",)})
    chance = random.Random(seed)
    rows = {number: event(chance, number, "timestamp_ntz") for number in range(60)}
    lake.cut({"events": (list(rows.values()), [])})
    for _ in range(3):
        put = [event(chance, chance.randrange(80), "timestamp_ntz") for _ in range(5)]
        put = list({row["id"]: row for row in put}.values())
        gone = [rows.pop(key) for key in chance.sample(sorted(rows), 2) if key not in {row["id"] for row in put}]
        rows |= {row["id"]: row for row in put}
        manifest = lake.cut({"events": (put, gone)}, **dict.fromkeys(views, "affected"))

        for name, (_, oracle) in zip(views, SHAPES.values(), strict=True):
            record = manifest.views[name].plan
            assert record is not None
            assert (record.plan, record.refused) == ("affected", ""), (views[name], record)
            found = Counter(tuple(row.values()) for row in lake.rows(name).to_pylist())
            assert found == Counter(oracle(list(rows.values()))), views[name]


def event(chance: random.Random, number: int, kind: str) -> dict[str, Any]:
    """A random event; its time is often one of a few, or null, or before 1970, or in the first century."""
    long_ago = [-60_700_000_000] * 9 if kind == "timestamp_ntz" else []
    seconds = chance.choice([None, *range(-20, 60), 4.5, chance.random() * 40, chance.random() * 10**6, *long_ago])
    at: datetime | date | None = None
    if seconds is not None:
        at = ZERO + timedelta(seconds=round(seconds, 6))
        at = at.date() if kind == "date" else at if kind == "timestamp" else at.replace(tzinfo=None)
    user = chance.choice([None, 1, 2, 3])
    return {"id": number, "user_id": user, "at": at, "amount": chance.choice([None, 0, 1, 2, 3])}
