"""The contract of every committer: a cut is written once, on the right version, and foreign commits are kept."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc.errors import InvariantError, LakeDamaged, SinkUnfit
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.lake.committer import Committer
from sinks.warehouse.lake.location import Location
from tests.fixtures.lake.lake_tables import HOSTILE, UTC, T, batch, content, kv, stored, txn
from tests.fixtures.servers.object_store import everywhere


@pytest.fixture
def lake(location: Location) -> Committer:
    return DeltaRs(location)


def foreign(location: Location) -> None:
    write_deltalake(location.uri(T), kv({7: "x"}), mode="append", storage_options=dict(location.options) or None)


# ---- once ----------------------------------------------------------------------------------------------------------


@everywhere
def test_every_statement_is_applied_once_however_often_it_is_repeated(lake: Committer) -> None:
    one = lake.append(T, kv({1: "a"}), base=None, txn=txn(1, "archive"))
    for _ in range(2):
        assert lake.append(T, kv({1: "a"}), base=None, txn=txn(1, "archive")) == one
        two = lake.merge(T, batch({1: "b", 2: "c"}), ["k"], base=one, txn=txn(1, "mirror"))
        three = lake.overwrite(T, kv({9: "z"}), base=two, txn=txn(1, "view"))

    assert (one, two, three, lake.version(T)) == (0, 1, 2, 2)
    assert [content(lake, version) for version in (one, two, three)] == [{1: "a"}, {1: "b", 2: "c"}, {9: "z"}]
    assert lake.applied(T, "mirror") == 1
    assert lake.applied(T, "nobody") is None
    assert lake.held(T, base=one, txn=txn(1, "mirror")) == two
    assert lake.held(T, base=three, txn=txn(2, "mirror")) is None


@everywhere
def test_version_of_a_repeated_statement_is_its_own_though_later_ones_follow(lake: Committer) -> None:
    one = lake.append(T, kv({1: "a"}), base=None, txn=txn(1))
    two = lake.merge(T, batch({2: "b"}), ["k"], base=one, txn=txn(2))
    three = lake.compact(T, base=two, txn=txn(2, "compact"), sort_by=["k"])

    assert lake.merge(T, batch({2: "b"}), ["k"], base=one, txn=txn(2)) == two
    assert lake.compact(T, base=two, txn=txn(2, "compact"), sort_by=["k"]) == three == lake.version(T)
    assert content(lake, three) == {1: "a", 2: "b"}


def test_second_statement_with_the_same_app_is_refused_rather_than_left_out(lake: Committer) -> None:
    one = lake.append(T, kv({1: "a"}), base=None, txn=txn(1))

    with pytest.raises(InvariantError, match="in cut 1 a second time"):
        lake.append(T, kv({2: "b"}), base=one, txn=txn(1))


@everywhere
def test_same_cut_with_another_end_is_refused(lake: Committer) -> None:
    lake.append(T, kv({1: "a"}), base=None, txn=txn(1, end_lsn=100))

    with pytest.raises(LakeDamaged, match="up to 100, but it is repeated up to 200"):
        lake.append(T, kv({1: "a"}), base=None, txn=txn(1, end_lsn=200))


def test_table_that_is_ahead_of_the_manifest_is_refused(lake: Committer) -> None:
    one = lake.append(T, kv({1: "a"}), base=None, txn=txn(1))
    lake.append(T, kv({2: "a"}), base=one, txn=txn(2))

    with pytest.raises(LakeDamaged, match="holds cut 2 of mirror, but cut 1"):
        lake.append(T, kv({1: "a"}), base=None, txn=txn(1))


@everywhere
def test_foreign_commit_is_never_overwritten(lake: Committer, location: Location) -> None:
    one = lake.append(T, kv({1: "a"}), base=None, txn=txn(1))
    foreign(location)

    writes: list[Callable[[], int]] = [
        lambda: lake.append(T, kv({2: "b"}), base=one, txn=txn(2)),
        lambda: lake.merge(T, batch({2: "b"}), ["k"], base=one, txn=txn(2)),
        lambda: lake.overwrite(T, kv({2: "b"}), base=one, txn=txn(2)),
        lambda: lake.append(T, kv({2: "b"}), base=None, txn=txn(2)),
    ]
    for write in writes:
        with pytest.raises(LakeDamaged, match=r"another writer changed mirror/public\.orders"):
            write()
    assert lake.version(T) == 1


@everywhere
def test_foreign_commit_above_ours_is_found(lake: Committer, location: Location) -> None:
    one = lake.append(T, kv({1: "a"}), base=None, txn=txn(1))
    lake.append(T, kv({2: "b"}), base=one, txn=txn(2))
    foreign(location)

    with pytest.raises(LakeDamaged, match=r"version 0, but \[2\] are not ours"):
        lake.append(T, kv({2: "b"}), base=one, txn=txn(2))


@everywhere
def test_table_that_is_gone_or_shorter_is_refused(lake: Committer) -> None:
    with pytest.raises(LakeDamaged, match="is missing"):
        lake.append(T, kv({1: "a"}), base=3, txn=txn(4))
    lake.append(T, kv({1: "a"}), base=None, txn=txn(1))
    with pytest.raises(LakeDamaged, match="ends at version 0, but the manifest names version 3"):
        lake.append(T, kv({1: "a"}), base=3, txn=txn(4))


# ---- values and columns --------------------------------------------------------------------------------------------


def test_every_type_of_a_mirror_comes_back_as_it_was(lake: Committer) -> None:
    rows = pa.table(
        {
            "k": pa.array([1, 2], pa.int64()),
            "small": pa.array([-5, None], pa.int16()),
            "int": pa.array([7, None], pa.int32()),
            "f4": pa.array([1.5, None], pa.float32()),
            "f8": pa.array([float("inf"), None], pa.float64()),
            "money": pa.array([Decimal("-12.34"), None], pa.decimal128(38, 2)),
            "day": pa.array([dt.date(1, 1, 1), None], pa.date32()),
            "local": pa.array([dt.datetime(2020, 2, 29, 1, 2, 3, 4), None], pa.timestamp("us")),  # noqa: DTZ001
            "at": pa.array([dt.datetime(2020, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "yes": pa.array([True, None], pa.bool_()),
            "raw": pa.array([b"\x00\xff", None], pa.binary()),
            "text": pa.array(["ü\x00'", None], pa.string()),
        }
    )
    wanted = rows.to_pylist()
    marked = rows.append_column("_deleted", pa.array([False, False]))

    one = lake.merge(T, marked, ["k"], base=None, txn=txn(1))
    two = lake.merge(T, marked.slice(0, 1), ["k"], base=one, txn=txn(2))
    three = lake.append(T, rows.slice(0, 0), base=two, txn=txn(3))

    assert sorted(lake.read(T, three).to_pylist(), key=lambda row: row["k"]) == wanted
    assert lake.schema(T, three).types == rows.schema.types
    assert lake.rows(T, three) == 2


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_other_forms_of_text_fit_a_text_column(lake: Committer, kind: pa.DataType) -> None:
    one = lake.append(T, kv({1: "a"}), base=None, txn=txn(1))
    other = pa.table({"k": pa.array([2], pa.int64()), "v": pa.array(["b"]).cast(kind)})

    assert content(lake, lake.append(T, other, base=one, txn=txn(2))) == {1: "a", 2: "b"}


def test_changed_type_is_refused_rather_than_cast(lake: Committer) -> None:
    one = lake.append(T, kv({1: "a"}), base=None, txn=txn(1))
    other = pa.table({"k": pa.array(["1"]), "v": pa.array(["b"]), "_deleted": pa.array([False])})

    with pytest.raises(SinkUnfit, match=r"column k of mirror/public\.orders is int64, but the rows have string"):
        lake.merge(T, other, ["k"], base=one, txn=txn(2))
    with pytest.raises(SinkUnfit):
        lake.append(T, other, base=one, txn=txn(2))


@everywhere
def test_new_columns_are_added_and_missing_ones_stay(lake: Committer) -> None:
    one = lake.append(T, kv({1: "a"}), base=None, txn=txn(1))
    more = batch({1: "b", 2: "c"}).append_column("n", pa.array([1, 2], pa.int32()))
    two = lake.merge(T, more, ["k"], base=one, txn=txn(2))
    three = lake.append(T, kv({3: "d"}), base=two, txn=txn(3))
    four = lake.append(T, kv({}).append_column("late", pa.array([], pa.date32())), base=three, txn=txn(4))

    assert lake.schema(T, one).names == ["k", "v"]
    assert lake.schema(T, four).names == ["k", "v", "n", "late"]
    assert sorted((row["k"], row["v"], row["n"]) for row in lake.read(T, four).to_pylist()) == [
        (1, "b", 1),
        (2, "c", 2),
        (3, "d", None),
    ]


def test_overwrite_replaces_rows_and_columns_and_sorts(lake: Committer) -> None:
    one = lake.append(T, kv({1: "a"}), base=None, txn=txn(1))
    two = lake.overwrite(T, pa.table({"x": [3, 1, 2]}), base=one, txn=txn(2), sort_by=["x"])

    assert lake.read(T, two).to_pydict() == {"x": [1, 2, 3]}
    assert content(lake, one) == {1: "a"}


def test_read_takes_columns_and_a_filter_at_a_version(lake: Committer, location: Location) -> None:
    one = lake.append(T, kv({1: "a", 2: "b"}), base=None, txn=txn(1))
    lake.overwrite(T, kv({3: "c"}), base=one, txn=txn(2))

    assert lake.read(T, one, ["v"], pc.field("k") > 1).to_pydict() == {"v": ["b"]}
    files = lake.files(T, one)
    assert sum(stored(name, location).num_rows for name in files) == 2


@everywhere
def test_archive_is_partitioned_and_its_files_hold_the_rest(lake: Committer, location: Location) -> None:
    rows = pa.table({"k": [1, 2], "day": ["x y", "ü/='"]})
    one = lake.append(T, rows, base=None, txn=txn(1), partition_by=["day"])
    two = lake.append(T, rows, base=one, txn=txn(2), partition_by=["day"])
    three = lake.compact(T, base=two, txn=txn(3, "compact"))

    assert lake.rows(T, three) == 4
    assert lake.vacuum(T, [three]) == 4
    assert sorted(lake.read(T, three).column("day").to_pylist()) == sorted(["x y", "ü/='"] * 2)
    assert all(stored(name, location).column_names == ["k"] for name in lake.files(T, three))


# ---- merge ---------------------------------------------------------------------------------------------------------


@everywhere
def test_merge_upserts_and_deletes(lake: Committer) -> None:
    one = lake.merge(T, batch({1: "a", 2: "b", 3: None}), ["k"], base=None, txn=txn(1))
    two = lake.merge(T, batch({2: None, 3: "c", 4: "d", 5: None}), ["k"], base=one, txn=txn(2))
    three = lake.merge(T, batch({1: None, 3: None, 4: None}), ["k"], base=two, txn=txn(3))
    four = lake.merge(T, batch({7: "e", 6: "f", 1: None}), ["k"], base=three, txn=txn(4))

    assert [content(lake, version) for version in (one, two, three, four)] == [
        {1: "a", 2: "b"},
        {1: "a", 3: "c", 4: "d"},
        {},
        {6: "f", 7: "e"},
    ]


def test_merge_of_nothing_makes_an_empty_table_and_then_nothing(lake: Committer) -> None:
    one = lake.merge(T, batch({}), ["k"], base=None, txn=txn(1))
    two = lake.merge(T, batch({}), ["k"], base=one, txn=txn(2))
    three = lake.merge(T, batch({1: None}), ["k"], base=two, txn=txn(3))

    assert lake.schema(T, one).names == ["k", "v"]
    assert (one, two) == (0, 0)
    assert content(lake, three) == {}


def test_key_that_comes_twice_in_a_batch_is_our_bug(lake: Committer) -> None:
    one = lake.merge(T, batch({1: "a"}), ["k"], base=None, txn=txn(1))
    twice = pa.concat_tables([batch({1: "b"}), batch({1: "c"})])

    with pytest.raises(InvariantError, match="contains a key twice"):
        lake.merge(T, twice, ["k"], base=one, txn=txn(2))
    assert content(lake, one) == {1: "a"}


def test_hostile_column_names_are_only_names(lake: Committer) -> None:
    def rows(value: int) -> pa.Table:
        columns = {name: pa.array([1, 2 + value], pa.int64()) for name in HOSTILE}
        return pa.table({**columns, "v": [value, value], "_deleted": [False, False]})

    one = lake.merge(T, rows(0), HOSTILE, base=None, txn=txn(1))
    two = lake.merge(T, rows(1), HOSTILE, base=one, txn=txn(2))
    three = lake.compact(T, base=two, txn=txn(3, "compact"), sort_by=HOSTILE[:1])

    found = sorted((row[HOSTILE[0]], row[HOSTILE[-1]], row["v"]) for row in lake.read(T, three).to_pylist())
    assert found == [(1, 1, 1), (2, 2, 0), (3, 3, 1)]
    assert set(lake.schema(T, three).names) == {*HOSTILE, "v"}


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.int16(), [-3, 0, 7]),
        (pa.int64(), [-(2**63), -1, 2**63 - 1]),
        (pa.string(), ["", "'; drop table t; --", "\\", "\x00", "a'b", "%_?:$1{}", "ü", "🎈", "x" * 400]),
        (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
        (pa.binary(), [b"", b"\x00", b"\xff'"]),
        (pa.decimal128(20, 3), [Decimal("-1.500"), Decimal(0), Decimal("99999999999999999.999")]),
        (pa.bool_(), [False, True]),
        (pa.float32(), [-1.5, 0.0, 2.0**-20]),
        (pa.float64(), [float("-inf"), -0.1, 0.0, 1e300]),
        (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]),  # noqa: DTZ001
        (pa.timestamp("us", "UTC"), [dt.datetime(1970, 1, 1, tzinfo=UTC), dt.datetime(2999, 1, 1, tzinfo=UTC)]),
    ],
    ids=str,
)
def test_keys_of_every_type_are_found_again(lake: Committer, kind: pa.DataType, keys: list[object]) -> None:
    def rows(values: list[object], value: str, *, gone: bool = False) -> pa.Table:
        count = len(values)
        return pa.table({"k": pa.array(values, kind), "v": [value] * count, "_deleted": [gone] * count})

    version = lake.merge(T, rows(keys, "old"), ["k"], base=None, txn=txn(1))
    version = lake.merge(T, rows(keys[:-1], "new"), ["k"], base=version, txn=txn(2))
    version = lake.merge(T, rows(keys[:1], "", gone=True), ["k"], base=version, txn=txn(3))
    for number, key in enumerate(keys[1:], start=4):
        version = lake.merge(T, rows([key], "one"), ["k"], base=version, txn=txn(number))

    assert content(lake, version) == dict.fromkeys(keys[1:], "one")


def test_merge_reads_only_files_in_the_range_of_its_keys(lake: Committer) -> None:
    one = lake.append(T, kv(dict.fromkeys(range(100), "low")), base=None, txn=txn(1))
    two = lake.append(T, kv(dict.fromkeys(range(1000, 1100), "high")), base=one, txn=txn(2))
    three = lake.merge(T, batch({1001: "new", 2000: "add"}), ["k"], base=two, txn=txn(3))

    assert set(lake.files(T, one)) < set(lake.files(T, three))
    assert lake.rows(T, three) == 201


def test_key_behind_the_thirty_second_column_has_statistics(lake: Committer, location: Location) -> None:
    wide = {f"c{number}": [number] for number in range(40)}
    lake.merge(T, pa.table({**wide, "k": [1], "_deleted": [False]}), ["k"], base=None, txn=txn(1))

    table = DeltaTable(location.uri(T), storage_options=dict(location.options) or None)
    actions = pa.table(table.get_add_actions(flatten=True))
    assert actions.column("min.k").to_pylist() == [1]


# ---- rows of keys --------------------------------------------------------------------------------------------------


@everywhere
def test_all_rows_of_the_keys_are_replaced_once_nulls_and_nested_values_included(lake: Committer) -> None:
    item = pa.struct([("sku", pa.string()), ("qty", pa.int32())])
    schema = pa.schema([("k", pa.int64()), ("region", pa.string()), ("items", pa.list_(item))])

    def rows(*found: tuple[int | None, str | None, str]) -> pa.Table:
        made = [{"k": k, "region": region, "items": [{"sku": sku, "qty": None}]} for k, region, sku in found]
        return pa.Table.from_pylist(made, schema=schema)

    def keys(*found: tuple[int | None, str | None]) -> pa.Table:
        return pa.Table.from_pylist([{"k": k, "region": region} for k, region in found], schema=schema.remove(2))

    first = rows((1, "N", "a"), (1, "N", "b"), (1, None, "c"), (None, None, "d"), (2, "S", "e"))
    base = lake.overwrite(T, first, base=None, txn=txn(1))
    gone = keys((1, "N"), (None, None), (3, None))
    fresh = rows((1, "N", "f"), (1, "N", "f"), (3, None, "g"))
    versions = {lake.replace_keys(T, gone, fresh, base=base, txn=txn(2)) for _ in range(2)}

    assert len(versions) == 1
    found = lake.read(T, versions.pop()).to_pylist()
    shown = sorted((str(row["k"]), str(row["region"]), row["items"][0]["sku"]) for row in found)
    assert shown == [("1", "N", "f"), ("1", "N", "f"), ("1", "None", "c"), ("2", "S", "e"), ("3", "None", "g")]


def test_rows_are_not_replaced_in_a_table_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvariantError, match="does not exist"):
        DeltaRs(tmp_path).replace_keys(T, kv({1: "a"}).select(["k"]), kv({1: "a"}), base=None, txn=txn(1))


@everywhere
def test_table_that_is_dropped_is_gone_and_others_stay(lake: Committer, location: Location) -> None:
    other = f"{T}2"
    for table in (T, other):
        lake.append(table, kv({1: "a"}), base=None, txn=txn(1))

    for _ in range(2):
        lake.drop(T)

    assert lake.version(T) is None
    assert lake.read(other, 0).num_rows == 1
    if location.folder is not None:
        assert not (location.folder / T).exists()
    assert lake.append(T, kv({2: "b"}), base=None, txn=txn(2)) == 0
