"""The input of mirror and history from the changes of a span, compared with a row-by-row version in Python."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.warehouse.lake.manifest import Repair
from sinks.warehouse.log import table_outputs
from sinks.warehouse.log.changes import fill, sequenced, unflat
from sinks.warehouse.log.lake_columns import lake_table
from sinks.warehouse.log.span_batch import check, parse
from tests.fixtures.lake.lake_events import ID, Events, column, rows_of, schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[dict[str, Any]]
RECORD = schema(ID, column("a.b"), column("c`d", "numeric", "decimal", modifier=((10 << 16) | 2) + 4), column("e"))
TABLE = lake_table(RECORD)


def _filled(spark: SparkSession, events: Events, previous: DataFrame | None = None) -> DataFrame:
    changes = parse(events.frame(spark), [TABLE])
    return fill(changes, previous, TABLE, check(changes, TABLE))


def _sides(frame: DataFrame) -> tuple[Rows, Rows, Rows]:
    """Return what a frame of changes gives to the mirror, and what ends and begins in the history."""
    events, _ = table_outputs.checked(sequenced(frame, TABLE).toArrow(), TABLE)
    closes, versions = table_outputs.history(events, TABLE)
    by_key = [("id", "ascending")]
    return (
        table_outputs.mirror(events, TABLE).sort_by(by_key).to_pylist(),
        closes.sort_by(by_key).to_pylist(),
        versions.sort_by("_valid_from_lsn").to_pylist(),
    )


def _newest(changes: DataFrame) -> Rows:
    """Return the newest event of each key as a row of the mirror, by key; tombstones do not count."""
    newest: dict[int, dict[str, Any]] = {}
    for one in rows_of(changes.where("_op is not null"), "_offset"):
        newest[one["row"]["id"]] = {
            **one["row"],
            **{name: one[name] for name in ("_epoch", "_commit_lsn", "_ordinal", "_committed_at")},
            "_deleted": one["_op"] == "d",
        }
    return [newest[key] for key in sorted(newest)]


def _mirror(spark: SparkSession, *rows: tuple[object, ...]) -> DataFrame:
    """Rows that the first epoch left."""
    place = (1, 900, datetime(2026, 11, 21, 10, tzinfo=UTC))
    columns = (
        "id int, `a.b` string, `c``d` decimal(10,2), e string, _epoch int, _commit_lsn bigint, _committed_at timestamp"
    )
    return spark.createDataFrame([(*row, *place) for row in rows], columns)


def _images(frame: DataFrame) -> list[tuple[object, ...]]:
    rows = rows_of(frame.where("_op is not null"), "_partition", "_offset")
    return [tuple(row["row"].values()) for row in rows]


def test_newest_row_of_each_key_is_kept(spark: SparkSession) -> None:
    events = Events(RECORD)
    events.put("c", {"id": 1, "a.b": "old", "c`d": "1.00", "e": None})
    events.put("c", {"id": 2, "a.b": "gone", "c`d": None, "e": None}, partition=1)
    events.put("u", {"id": 1, "a.b": "new", "c`d": None, "e": "x"})
    events.put("d", {"id": 2}, partition=1)

    changes = parse(events.frame(spark), [TABLE])
    rows, _, _ = _sides(changes)

    assert [(row["id"], row["a.b"], row["c`d"], row["e"], row["_deleted"]) for row in rows] == [
        (1, "new", None, "x", False),
        (2, None, None, None, True),
    ]
    assert [(row["_epoch"], row["_commit_lsn"], row["_ordinal"]) for row in rows] == [(1, 1300, 1), (1, 1400, 1)]
    assert rows == _newest(changes)


def test_version_ends_where_its_epoch_ends_if_the_log_was_repaired_behind_it(spark: SparkSession) -> None:
    """In this span or before it; whatever the LSN of the next event is, which a restored database takes back."""
    events = Events(RECORD)
    events.put("u", {"id": 1, "a.b": "old", "c`d": None, "e": None})
    events.put("u", {"id": 1, "a.b": "last", "c`d": None, "e": None})
    events.epoch, events.lsn = 2, 500
    for key in (1, 2, 3):
        events.put("r", {"id": key, "a.b": "new", "c`d": None, "e": None})
    events.put("d", {"id": 4})
    events.put("u", {"id": 1, "a.b": "newer", "c`d": None, "e": None})
    mirror = _mirror(spark, *[(key, "then", None, None) for key in (1, 2, 4)])
    known_at = datetime(2026, 11, 21, 11, tzinfo=UTC)
    repair = Repair(epoch=1, known_to=1210, known_at_us=int(known_at.timestamp() * 1e6), resumes_at=520)

    rows = sequenced(parse(events.frame(spark), [TABLE]), TABLE, [repair], mirror).toArrow()
    closes, versions = table_outputs.history(table_outputs.checked(rows, TABLE)[0], TABLE)

    ends = {row["id"]: (row["_valid_to_lsn"], row["_valid_to"]) for row in closes.to_pylist()}
    assert [ends[key][0] for key in (1, 2, 3, 4)] == [1100, 1210, 800, 1210]
    assert ends[2][1] == ends[4][1] == known_at
    assert [
        (row["a.b"], row["_valid_from_lsn"], row["_valid_to_lsn"])
        for row in versions.sort_by([("_epoch", "ascending"), ("_valid_from_lsn", "ascending")]).to_pylist()
        if row["id"] == 1
    ] == [("old", 1100, 1200), ("last", 1200, 1210), ("new", 600, 1000), ("newer", 1000, None)]


def test_version_of_a_transaction_that_the_log_did_not_end_is_never_valid(spark: SparkSession) -> None:
    events = Events(RECORD)
    events.put("u", {"id": 1, "a.b": "half", "c`d": None, "e": None})
    events.epoch = 2
    events.put("r", {"id": 1, "a.b": "new", "c`d": None, "e": None})

    repair = Repair(epoch=1, known_to=1050, known_at_us=0, resumes_at=1150)
    rows = sequenced(parse(events.frame(spark), [TABLE]), TABLE, [repair], _mirror(spark)).toArrow()
    _, versions = table_outputs.history(table_outputs.checked(rows, TABLE)[0], TABLE)

    found = {row["a.b"]: (row["_valid_from_lsn"], row["_valid_to_lsn"]) for row in versions.to_pylist()}
    assert found == {"half": (1100, 1100), "new": (1200, None)}


def test_values_that_were_not_sent_never_come_from_before_a_repair(spark: SparkSession) -> None:
    """Neither from the mirror, nor from this span, nor from another key."""
    events = Events(RECORD)
    events.put("u", {"id": 2, "a.b": "old", "c`d": None, "e": "z"})
    events.epoch = 2
    for key in (1, 2):
        events.put("u", {"id": key, "a.b": "read later", "c`d": None, "e": "z"}, reselected=["a.b"])
    events.put("d", {"id": 3})
    events.lsn -= 100  # the key changed
    events.put("c", {"id": 4, "a.b": "read later", "c`d": None, "e": "z"}, reselected=["a.b"])
    events.put("u", {"id": 1, "a.b": "even later", "c`d": None, "e": "y"}, reselected=["a.b"])

    rows = _images(_filled(spark, events, _mirror(spark, *[(key, "old", None, "z") for key in (1, 2, 3)])))

    assert [row[1] for row in rows] == ["old", *["read later"] * 2, None, "read later", "even later"]


def test_key_that_came_back_is_not_deleted(spark: SparkSession) -> None:
    events = Events(RECORD)
    events.put("d", {"id": 1})
    events.put("c", {"id": 1, "a.b": "back", "c`d": None, "e": None})

    (row,), _, _ = _sides(parse(events.frame(spark), [TABLE]))

    assert (row["a.b"], row["_deleted"]) == ("back", False)


def test_versions_follow_each_other_without_a_hole(spark: SparkSession) -> None:
    events = Events(RECORD)
    events.put("c", {"id": 1, "a.b": "one", "c`d": None, "e": None})
    events.put("u", {"id": 1, "a.b": "two", "c`d": None, "e": None})
    events.put("d", {"id": 1})
    events.put("c", {"id": 1, "a.b": "three", "c`d": None, "e": None})

    _, (close,), rows = _sides(parse(events.frame(spark), [TABLE]))

    assert [(row["a.b"], row["_valid_from_lsn"], row["_valid_to_lsn"], row["_op"]) for row in rows] == [
        ("one", 1100, 1200, "c"),
        ("two", 1200, 1300, "u"),
        ("three", 1400, None, "c"),
    ]
    assert close == {"id": 1, "_valid_to_lsn": 1100, "_valid_to": rows[0]["_valid_from"]}
    assert [row["_valid_to"] for row in rows] == [rows[1]["_valid_from"], rows[1]["_valid_to"], None]
    assert rows[0]["_valid_from"] < rows[1]["_valid_from"] < rows[1]["_valid_to"]


def test_delete_first_of_its_key_closes_and_is_no_version(spark: SparkSession) -> None:
    events = Events(RECORD)
    events.put("d", {"id": 1})
    events.put("c", {"id": 1, "a.b": "back", "c`d": None, "e": None})

    _, closes, rows = _sides(parse(events.frame(spark), [TABLE]))

    assert [row["_valid_to_lsn"] for row in closes] == [1100]
    assert [(row["_op"], row["_valid_from_lsn"], row["_valid_to_lsn"]) for row in rows] == [("c", 1200, None)]


def test_nothing_to_fill_leaves_the_frame_alone(spark: SparkSession) -> None:
    events = Events(RECORD)
    events.put("c", {"id": 1, "a.b": "x", "c`d": None, "e": None})
    changes = parse(events.frame(spark), [TABLE])

    assert fill(changes, None, TABLE, check(changes, TABLE)) is changes


def test_unchanged_column_has_the_value_of_the_event_before(spark: SparkSession) -> None:
    events = Events(RECORD)
    events.put("c", {"id": 1, "a.b": "big", "c`d": "1.00", "e": None})
    events.put("u", {"id": 1, "c`d": "2.00"}, unchanged=["a.b", "e"])
    events.put("u", {"id": 1, "a.b": None, "c`d": "3.00"}, unchanged=["e"])
    events.put("u", {"id": 1, "e": "y"}, unchanged=["a.b", "c`d"])
    events.put("c", {"id": 2, "a.b": "other", "c`d": None, "e": None})

    rows = _images(_filled(spark, events, _mirror(spark, (1, "older", None, "z"))))

    assert [(row[1], None if row[2] is None else str(row[2]), row[3]) for row in rows] == [
        ("big", "1.00", None),
        ("big", "2.00", None),
        (None, "3.00", None),
        (None, "3.00", "y"),
        ("other", None, None),
    ]


def test_unchanged_column_has_the_value_of_the_mirror(spark: SparkSession) -> None:
    events = Events(RECORD)
    events.put("u", {"id": 1, "c`d": "2.00", "e": "x"}, unchanged=["a.b"])
    events.put("u", {"id": 2, "c`d": "2.00", "e": "x"}, unchanged=["a.b"])
    events.put("u", {"id": 3, "c`d": "2.00", "e": "x"}, unchanged=["a.b"])

    rows = _images(
        _filled(spark, events, _mirror(spark, (1, "kept", None, "z"), (2, None, None, "z"), (9, "w", None, "")))
    )

    assert [(row[1], row[3]) for row in rows] == [("kept", "x"), (None, "x"), (None, "x")]


def test_value_read_later_gives_way_to_the_one_the_key_had(spark: SparkSession) -> None:
    events = Events(RECORD)
    events.put("u", {"id": 1, "a.b": "later", "c`d": None, "e": "x"}, reselected=["a.b"])
    events.put("u", {"id": 2, "a.b": "later", "c`d": None, "e": "x"}, reselected=["a.b"])
    mirror = _mirror(spark, (1, "then", None, None))

    assert [row[1] for row in _images(_filled(spark, events, mirror))] == ["then", "later"]
    assert [row[1] for row in _images(_filled(spark, events))] == ["later", "later"]


def test_delete_resets_what_is_known(spark: SparkSession) -> None:
    events = Events(RECORD)
    events.put("d", {"id": 1})
    events.put("c", {"id": 1, "c`d": None, "e": None}, unchanged=["a.b"])

    rows = _images(_filled(spark, events, _mirror(spark, (1, "before the delete", None, None))))

    assert [row[1] for row in rows] == [None, None]


def test_row_that_took_the_key_of_a_deleted_row_keeps_nothing_of_it(spark: SparkSession) -> None:
    """Delete the row of key 1, and give its key to the row of key 2, whose large value is not sent."""
    events = Events(RECORD)
    events.put("d", {"id": 1})
    events.put("d", {"id": 2})
    events.lsn -= 100  # a changed key is a delete and an insert at one position
    events.put("c", {"id": 1, "a.b": "read later", "c`d": None, "e": None}, reselected=["a.b"])
    mirror = _mirror(spark, (1, "old", None, None), (2, "new", None, None))

    for before, wanted in ((mirror, "new"), (_mirror(spark, (1, "old", None, None)), "read later")):
        assert [row[1] for row in _images(_filled(spark, events, before))][-1] == wanted


def test_columns_of_the_table_come_first(spark: SparkSession) -> None:
    events = Events(RECORD)
    events.put("d", {"id": 1})

    frame = sequenced(parse(events.frame(spark), [TABLE]), TABLE)

    assert frame.columns[:5] == ["id", "a.b", "c`d", "e", "_op"]


def test_every_record_is_counted_and_tombstones_are_no_events(spark: SparkSession) -> None:
    events = Events(RECORD)
    events.put("c", {"id": 1, "a.b": "x", "c`d": None, "e": None})
    events.put("d", {"id": 1})
    events.put("d", {"id": 2}, partition=3)

    rows = sequenced(parse(events.frame(spark), [TABLE]), TABLE).toArrow()

    assert table_outputs.counts(rows) == {0: 3, 3: 2}
    kept, _ = table_outputs.checked(rows, TABLE)
    assert sorted(kept["_op"].to_pylist()) == ["c", "d", "d"]
    assert [name for name in table_outputs.archive(kept).column_names if name.startswith("_")] == [
        "_op",
        "_unchanged",
        "_epoch",
        "_commit_lsn",
        "_ordinal",
        "_committed_at",
        "_partition",
        "_offset",
    ]


def test_events_become_a_frame_again(spark: SparkSession) -> None:
    events = Events(RECORD)
    events.put("u", {"id": 1, "c`d": "2.00", "e": "x"}, unchanged=["a.b"])
    changes = parse(events.frame(spark), [TABLE])

    again = unflat(spark.createDataFrame(sequenced(changes, TABLE).toArrow()), TABLE)

    assert rows_of(again, "_offset") == rows_of(changes.select(*again.columns), "_offset")


steps = st.lists(
    st.tuples(st.integers(1, 8), st.sampled_from("uud"), st.sets(st.sampled_from(["a.b", "e"]))),
    min_size=20,
    max_size=80,
)


@settings(max_examples=3)
@given(steps, st.sets(st.integers(1, 8)))
def test_span_is_folded_as_row_by_row(
    spark: SparkSession, drawn: list[tuple[int, str, set[str]]], there: set[int]
) -> None:
    events = Events(RECORD)
    live: dict[int, dict[str, Any]] = {key: {"a.b": f"m{key}", "c`d": None, "e": None} for key in there}
    mirror = _mirror(spark, *[(key, *row.values()) for key, row in live.items()], (99, None, None, None))
    expected: list[tuple[object, ...]] = []
    last: dict[int, dict[str, Any] | None] = {}
    for number, (key, op, left) in enumerate(drawn):
        if op == "d" and key in live:
            events.put("d", {"id": key}, partition=key)
            del live[key]
            last[key] = None
            continue
        fresh = key not in live
        row = {"a.b": f"a{number}", "c`d": None, "e": f"e{number}"}
        sent = {name: value for name, value in row.items() if fresh or name not in left}
        more = {"unchanged": sorted(left)} if left and not fresh else {}
        events.put("c" if fresh else "u", {"id": key, **sent}, partition=key, **more)
        live[key] = {**(live.get(key) or {}), **sent}
        last[key] = live[key]
        expected.append((events.lsn, key, live[key]["a.b"], live[key]["e"]))

    changes = _filled(spark, events, mirror).persist()
    found_rows, closes, found_versions = _sides(changes)
    collapsed = _newest(changes)
    changes.unpersist()
    assert found_rows == collapsed
    assert {row["id"] for row in closes} == last.keys()

    assert {row["id"]: None if row["_deleted"] else (row["a.b"], row["e"]) for row in found_rows} == {
        key: None if row is None else (row["a.b"], row["e"]) for key, row in last.items()
    }
    assert [(row["_valid_from_lsn"], row["id"], row["a.b"], row["e"]) for row in found_versions] == expected
    open_rows = [row["id"] for row in found_versions if row["_valid_to_lsn"] is None]
    assert sorted(open_rows) == sorted(key for key, row in last.items() if row is not None)
