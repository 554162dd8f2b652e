"""`cdc verify` of a lake finds faults of the driver: it computes the expected rows by a rule of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as fn

from sinks.warehouse.log import changes, span_batch
from sinks.warehouse.log.lake_columns import lake_table
from sinks.warehouse.verify.expected_rows import expected_rows
from tests.fixtures.lake.lake_events import ID, Events, column, rows_of, schema
from tests.fixtures.lake.running_lake import LakeSite, lake_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from tests.fixtures.servers.daemon import CaptureSite

RECORD = schema(
    ID, column("a.b"), column("c`d", "numeric", "decimal", modifier=((10 << 16) | 2) + 4), column("_unsure")
)
TABLE = lake_table(RECORD)
LARGE = ("a.b", "_unsure")


@pytest.fixture
def lake(capture: CaptureSite, spark: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    yield from lake_site(capture, spark, tmp_path)


def _expected(frame: DataFrame) -> list[tuple[Any, ...]]:
    parsed = span_batch.parse(frame, [TABLE]).persist()
    with expected_rows(parsed, TABLE, span_batch.check(parsed, TABLE)) as found:
        rows = rows_of(found.select("row.*", "_commit_lsn", "unsure"), "id")
    parsed.unpersist()
    return [tuple(row.values()) for row in rows]


# Key, what happens to it, the columns that are not sent, whether they are read later, and the key it takes.
steps = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.sampled_from("wwwdm"),
        st.sets(st.sampled_from(LARGE)),
        st.booleans(),
        st.integers(1, 5),
    ),
    min_size=10,
    max_size=60,
)


@settings(max_examples=5)
@given(steps)
def test_expected_rows_are_those_of_a_dict_written_row_by_row(
    spark: SparkSession, drawn: list[tuple[int, str, set[str], bool, int]]
) -> None:
    events = Events(RECORD)
    live: dict[int, dict[str, Any]] = {}
    last: dict[int, int] = {}

    def put(op: str, key: int, row: dict[str, Any], left: set[str], *, later: bool) -> None:
        live[key] = row
        sent = {name: value for name, value in row.items() if name not in left}
        read = dict.fromkeys(left, f"read later than {events.lsn}") if later else {}
        more = {"reselected" if later else "unchanged": sorted(left)} if left else {}
        events.put(op, {"id": key, "c`d": None, **sent, **read}, partition=key % 2, **more)
        last[key] = events.lsn

    for number, (key, what, left, later, other) in enumerate(drawn):
        if what == "w":
            before = live.get(key)
            row = {name: f"{name} {number}" if before is None or name not in left else before[name] for name in LARGE}
            put("c" if before is None else "u", key, row, set() if before is None else left, later=later)
        elif key in live:
            row = live.pop(key)
            events.put("d", {"id": key}, partition=key % 2)
            if what == "m" and other not in live:
                events.lsn -= 100  # a changed key is a delete and an insert at one position
                put("c", other, row, left, later=later)

    assert _expected(events.frame(spark)) == [
        (key, row["a.b"], None, row["_unsure"], last[key], []) for key, row in sorted(live.items())
    ]


def test_a_value_that_the_topic_no_longer_has_is_not_compared(spark: SparkSession) -> None:
    events = Events(RECORD)
    events.put("u", {"id": 1, "c`d": None, "_unsure": "x"}, unchanged=["a.b"])
    events.put("u", {"id": 2, "a.b": "read later", "c`d": None, "_unsure": "x"}, reselected=["a.b"])

    assert [(row[1], row[-1]) for row in _expected(events.frame(spark))] == [(None, ["a.b"]), ("read later", [])]


def _keeps_values_of_deleted_rows(name: str) -> Column:
    """A fault of the driver: it ignores that a delete, or a row from another key, lacks an unsent column."""
    left = fn.coalesce(fn.array_contains("_unchanged", name), fn.lit(0).cast("boolean"))
    value = fn.col("row")[name]
    return fn.when(~left & (fn.col("_op") != "d"), changes._state(value))


def _keeps_the_value_read_later(
    found: DataFrame, previous: DataFrame | None, table: object, columns: object
) -> DataFrame:
    """A fault of the driver: it does not fill unsent columns."""
    del previous, table, columns
    return found


@pytest.mark.parametrize(
    ("name", "fault", "wanted"),
    [
        (None, None, {}),
        ("_stated", _keeps_values_of_deleted_rows, {1: "different"}),
        ("fill", _keeps_the_value_read_later, {1: "different", 3: "different"}),
    ],
    ids=["no fault", "values of deleted rows kept", "not filled"],
)
def test_verify_finds_a_fault_of_the_drivers_fold(
    lake: LakeSite,
    monkeypatch: pytest.MonkeyPatch,
    name: str | None,
    fault: Callable[..., Any] | None,
    wanted: dict[int, str],
) -> None:
    """Write the lake with a faulty driver, and verify it in the same process."""
    if name is not None:
        monkeypatch.setattr(changes, name, fault)
    site = lake.capture
    site.sql(
        "create table t (id int primary key, body text, n int)",
        "alter table t alter body set storage external",
    )
    daemon = site.running({"toast": {"mode": "omit"}} if name == "fill" else {})
    driver = lake.driver()
    site.sql("insert into t values (1, repeat('OLD', 2000), 0), (2, repeat('NEW', 2000), 5), (3, repeat('A', 4000), 0)")
    lake.settle(daemon, driver)
    site.sql(
        "begin; delete from t where id = 1; update t set id = 1 where id = 2; commit", "update t set n = 1 where id = 3"
    )
    lake.settle(daemon, driver)

    (report,) = lake.verified()

    found = {example["id"]: kind for kind, examples in report.examples.items() for example in examples}
    assert (found, report.ok, report.compared) == (wanted, not wanted, 2)
