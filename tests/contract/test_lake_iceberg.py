"""What pyiceberg reads of a lake is what deltalake reads, at every cut that is kept, and after any interruption."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from msgspec import structs
from structlog.testing import capture_logs

from cdc.errors import LakeUnready
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.iceberg.follower import IcebergFollower
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.manifest import Manifest, TableState, ViewState, disk_of
from tests.fixtures.lake.iceberg_reader import IcebergReader
from tests.fixtures.lake.lake_files import SteppedDisk
from tests.fixtures.lake.lake_tables import HOSTILE, UTC, H, T, closing, kv, txn, versions_rows
from tests.fixtures.lake.small_lakes import SmallLake
from tests.fixtures.servers.object_store import everywhere

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sinks.warehouse.lake.local_disk import Disk
    from sinks.warehouse.lake.location import Location


class _Died(BaseException):
    """The process ended here."""


def tables_of(manifest: Manifest) -> dict[str, tuple[str, int]]:
    tables = {table: (table, state.version) for table, state in manifest.tables.items()}
    views = manifest.views.items()
    return tables | {f"views/{name}": (layout.view(name, state.generation), state.version) for name, state in views}


def stepped(before: Callable[[str], None]) -> Callable[[Location, str], Disk]:
    """Disks that tell what they are about to change."""

    def opened(location: Location, folder: str) -> Disk:
        return SteppedDisk(disk_of(location, folder), lambda step: before(f"{step} in {folder}"))

    return opened


def dying(at: int) -> tuple[Callable[[Location, str], Disk], list[str]]:
    """Disks of a process that ends before its change number `at`, and the changes that it came to."""
    steps: list[str] = []

    def before(step: str) -> None:
        if len(steps) == at:
            raise _Died
        steps.append(step)

    return stepped(before), steps


def metadata_files(lake: SmallLake) -> dict[str, list[str]]:
    """The metadata files of each folder."""
    found: dict[str, list[str]] = {}
    for path in sorted((lake.path / "_iceberg").rglob("*")):
        if path.is_file():
            found.setdefault(str(path.parent.relative_to(lake.path)), []).append(path.name)
    return found


# ---- equal ---------------------------------------------------------------------------------------------------------


@everywhere
def test_every_kept_cut_is_read_as_it_was_while_tables_change_their_form(location: Location) -> None:
    lake, follower, reader = SmallLake(location), IcebergFollower(location), IcebergReader(location)
    manifests: list[Manifest] = []

    def publish() -> None:
        manifests.append(lake.publish())
        assert follower.follow(manifests[-1]) == ""

    lake.write(T, kv({1: "a", 2: "b"}))
    lake.write(H, pa.table({"k": [1, 2], "_open": [True, False]}), partition_by=["_open"])
    publish()
    lake.write(T, pa.table({"k": pa.array([3], pa.int64()), "v": ["c"], "more": [Decimal("1.50")]}))
    publish()
    lake.write(T, pa.table({"k": ["x", "y"], "more": [1.5, float("nan")]}), mode="overwrite")  # a type, a dropped one
    lake.view("top", pa.table({"n": [7]}))
    publish()
    lake.write(H, pa.table({"k": [3], "_open": [True]}), partition_by=["_open"])
    publish()
    lake.write(T, pa.table({"k": ["x"], "v": [True], "more": [2.5]}), mode="overwrite")  # the dropped one is back
    lake.view("top", pa.table({"n": pa.array([], pa.int64())}))
    publish()

    assert [reader.differs(reader.cut(one.cut), tables_of(one)) for one in manifests] == [""] * 5
    assert reader.cut() == reader.cut(5)
    assert (reader.cut()["epoch"], reader.cut()["lsn"]) == (1, "0/500")
    assert [one.snapshot_id for one in reader.table(reader.cut(), H).snapshots()] == [1, 4], "unchanged, but written"
    summary = reader.table(reader.cut(), T).snapshots()[-1].summary
    assert summary is not None
    assert (summary["tailrace.cut"], summary["tailrace.lsn"]) == ("5", "0/500")


def test_every_type_and_name_of_a_lake_is_read_back(location: Location) -> None:
    lake, follower, reader = SmallLake(location), IcebergFollower(location), IcebergReader(location)
    at = dt.datetime(2020, 2, 29, 1, 2, 3, 4, UTC)
    part = pa.struct([("key", pa.string()), ("bytes", pa.binary())])
    lake.write(
        T,
        pa.table(
            {
                "small": pa.array([-5, None], pa.int16()),
                "int": pa.array([7, None], pa.int32()),
                "f4": pa.array([1.5, None], pa.float32()),
                "money": pa.array([Decimal("-12.34"), None], pa.decimal128(38, 2)),
                "day": pa.array([dt.date(1, 1, 1), None], pa.date32()),
                "local": pa.array([at.replace(tzinfo=None), None], pa.timestamp("us")),
                "at": pa.array([at, None], pa.timestamp("us", "UTC")),
                "raw": pa.array([b"\x00\xff", None], pa.binary()),
                "list": pa.array([[1, None], None], pa.list_(pa.int32())),
                # pyiceberg 0.12 itself reads a null list of structs as an empty one.
                "headers": pa.array([[{"key": "a", "bytes": b"\xff"}], []], pa.list_(part)),
                "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            }
        ),
    )
    names = [name for name in HOSTILE if "." not in name] + ["a.b"]
    lake.write("mirror/names", pa.table({name: [1] for name in names}))
    manifest = lake.publish()

    assert follower.follow(manifest) == ""
    assert reader.differs(reader.cut(), tables_of(manifest)) == ""


def test_filters_of_readers_find_the_same_rows(location: Location) -> None:
    lake, follower, reader = SmallLake(location), IcebergFollower(location), IcebergReader(location)
    for first in range(0, 40, 10):
        numbers = list(range(first, first + 10))
        rows = {"k": numbers, "day": [dt.date(2020, 1, 1) + dt.timedelta(days=one) for one in numbers]}
        lake.write(H, pa.table(rows | {"_open": [one % 2 == 0 for one in numbers]}), partition_by=["_open"])
    follower.follow(lake.publish())
    table = reader.table(reader.cut(), H)

    def found(row_filter: str) -> tuple[list[int], int]:
        scan = table.scan(row_filter=row_filter)
        return sorted(scan.to_arrow()["k"].to_pylist()), len(list(scan.plan_files()))

    assert found("k = 13") == ([13], 2), "other files were not left out"
    assert found("day >= '2020-02-08'") == ([38, 39], 2)
    assert found("_open = true and k < 12") == ([0, 2, 4, 6, 8, 10], 2)
    assert found("k is null") == ([], 0)


def test_history_is_read_though_only_some_of_its_files_come_from_a_merge(location: Location) -> None:
    lake, follower, reader = SmallLake(location), IcebergFollower(location), IcebergReader(location)
    committer, none = DeltaRs(location), closing(1).slice(0, 0)
    versions: list[int] = []
    for rows, closes in (
        (versions_rows((1, "a", 1, None)), none),
        (versions_rows((2, "b", 2, None)), none),
        (versions_rows((1, "c", 3, None)), closing(3, 1)),
    ):
        base, cut = versions[-1] if versions else None, len(versions) + 1
        versions.append(committer.close_and_append(H, closes, rows, ["k"], base=base, txn=txn(cut, "history")))
        lake.tables[H] = TableState(version=versions[-1], schema_id="00000000")
        assert follower.follow(lake.publish()) == ""

    wanted = [{H: (H, version)} for version in versions]
    assert [reader.differs(reader.cut(number), one) for number, one in enumerate(wanted, 1)] == [""] * 3
    opened = reader.table(reader.cut(), H).scan(row_filter="_open = true").to_arrow()
    assert sorted(zip(opened["k"].to_pylist(), opened["v"].to_pylist(), strict=True)) == [(1, "c"), (2, "b")]


# ---- interrupted ---------------------------------------------------------------------------------------------------


def _two_cuts(where: Path) -> tuple[SmallLake, Manifest, Manifest]:
    lake = SmallLake(where)
    lake.write(T, kv({1: "a", 2: "b"}))
    lake.view("top", pa.table({"n": [1]}))
    first = lake.publish()
    assert IcebergFollower(lake.location).follow(first) == ""
    lake.write(T, kv({3: "c"}), mode="overwrite")
    lake.write(H, kv({1: "a"}))
    lake.view("top", pa.table({"n": [2]}))
    return lake, first, lake.publish()


def test_interrupted_cut_shows_the_one_before_and_is_completed_without_leftovers(tmp_path: Path) -> None:
    lake, _, second = _two_cuts(tmp_path / "whole")
    disks, steps = dying(-1)
    assert IcebergFollower(lake.location, disks).follow(second) == ""
    whole = metadata_files(lake)
    assert len(steps) == 14, "three tables of four files, and two of the cut"

    for at in range(len(steps)):
        lake, first, second = _two_cuts(tmp_path / str(at))
        with pytest.raises(_Died):
            IcebergFollower(lake.location, dying(at)[0]).follow(second)
        reader = IcebergReader(lake.location)
        assert reader.differs(reader.cut(), tables_of(first)) == "", f"before {steps[at]}"

        assert IcebergFollower(lake.location).follow(second) == ""
        assert reader.differs(reader.cut(), tables_of(second)) == "", f"after {steps[at]}"
        assert reader.differs(reader.cut(1), tables_of(first)) == "", f"after {steps[at]}"
        assert metadata_files(lake) == whole, f"after {steps[at]}"


def test_lake_that_was_interrupted_or_behind_continues_with_a_later_cut(tmp_path: Path) -> None:
    for at in range(14):
        lake, first, second = _two_cuts(tmp_path / str(at))
        with pytest.raises(_Died):
            IcebergFollower(lake.location, dying(at)[0]).follow(second)
        lake.write(T, kv({4: "d"}))
        third = lake.publish()

        assert IcebergFollower(lake.location).follow(third) == ""
        reader = IcebergReader(lake.location)
        assert reader.differs(reader.cut(), tables_of(third)) == ""
        assert reader.differs(reader.cut(1), tables_of(first)) == ""


def _expiring(where: Path | Location) -> tuple[SmallLake, list[Manifest]]:
    """Six cuts, of which a mirror changes in each, a history in the first, and a view is there for two."""
    lake = SmallLake(where)
    follower, manifests = IcebergFollower(lake.location), []
    lake.write(H, kv({1: "a"}))
    for cut in range(1, 7):
        lake.write(T, kv({cut: "x"}), mode="overwrite" if cut % 2 else "append")
        if cut == 2:
            lake.view("brief", pa.table({"n": [1]}))
        if cut == 4:
            lake.views.clear()
        manifests.append(lake.publish())
        assert follower.follow(manifests[-1]) == ""
    return lake, manifests


def test_expired_cuts_leave_no_file_and_kept_ones_stay_exact_however_often_it_is_interrupted(tmp_path: Path) -> None:
    lake, manifests = _expiring(tmp_path / "whole")
    disks, steps = dying(-1)
    IcebergFollower(lake.location, disks).expire([4, 6])
    whole = metadata_files(lake)

    assert [name for name in whole["_iceberg"] if name[0].isdigit()] == ["000000000004.json", "000000000006.json"]
    files = whole[f"_iceberg/{T}/metadata"]
    assert [name for name in files if name.endswith("avro")] == ["m4.avro", "m6.avro", "snap-4.avro", "snap-6.avro"]
    assert "_iceberg/views/brief/g1/metadata" not in whole
    for at in range(len(steps)):
        lake, manifests = _expiring(tmp_path / str(at))
        with pytest.raises(_Died):
            IcebergFollower(lake.location, dying(at)[0]).expire([4, 6])
        IcebergFollower(lake.location).expire([4, 6])

        reader = IcebergReader(lake.location)
        assert metadata_files(lake) == whole, f"after {steps[at]}"
        for kept in (4, 6):
            assert reader.differs(reader.cut(kept), tables_of(manifests[kept - 1])) == "", f"after {steps[at]}"


@everywhere
def test_vacuum_keeps_what_iceberg_readers_still_find(location: Location) -> None:
    lake, manifests = _expiring(location)
    follower, reader = IcebergFollower(lake.location), IcebergReader(lake.location)
    lake.write(T, kv({9: "newest"}), mode="overwrite")
    lake.publish()  # Iceberg does not follow
    lake.store.prune(1)

    follower.expire(lake.store.cuts())
    needed = follower.needed(lake.store.cuts())
    for table, versions in lake.store.needed().items():
        DeltaRs(lake.location).vacuum(table, versions | needed.get(table, set()))

    assert needed == {T: {manifests[5].tables[T].version}, H: {0}}
    assert reader.differs(reader.cut(), tables_of(manifests[5])) == ""


# ---- failing -------------------------------------------------------------------------------------------------------


def test_storage_that_fails_is_reported_and_the_next_cut_repairs_it(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake")
    failing = [False]

    def before(step: str) -> None:
        if failing[0] and step.startswith("replace current.json"):
            raise LakeUnready("storage of the lake cannot be used: full")

    follower, reader = IcebergFollower(lake.location, stepped(before)), IcebergReader(lake.location)
    lake.write(T, kv({1: "a"}))
    first = lake.publish()
    assert (follower.follow(first), follower.cut) == ("", 1)

    failing[0] = True
    lake.write(T, kv({2: "b"}))
    with capture_logs() as logged:
        reason = follower.follow(lake.publish())
    assert reason == "Iceberg is at cut 1: storage of the lake cannot be used: full"
    assert [one["event"] for one in logged] == ["iceberg_behind"]
    assert reader.differs(reader.cut(), tables_of(first)) == ""

    failing[0] = False
    lake.write(T, kv({3: "c"}))
    third = lake.publish()
    assert (follower.follow(third), follower.cut) == ("", 3)
    assert reader.differs(reader.cut(), tables_of(third)) == ""


def test_damaged_metadata_of_a_table_is_written_again(tmp_path: Path) -> None:
    for damaged in ("v1.metadata.json", "snap-1.avro", "m1.avro"):
        for content in (None, b"", b"{", b"Obj\x01 and then nothing"):
            where = tmp_path / damaged / str(content and content[:1])
            lake, _, second = _two_cuts(where)
            path = where / "_iceberg" / T / "metadata" / damaged
            path.unlink()
            if content is not None:
                path.write_bytes(content)

            assert IcebergFollower(lake.location).follow(second) == "", f"{damaged} as {content!r}"
            reader = IcebergReader(lake.location)
            assert reader.differs(reader.cut(), tables_of(second)) == "", f"{damaged} as {content!r}"


def test_damaged_files_of_cuts_stop_neither_readers_nor_vacuum(tmp_path: Path) -> None:
    for damaged in ("current.json", "000000000006.json", "000000000001.json"):
        lake, manifests = _expiring(tmp_path / damaged)
        (lake.path / "_iceberg" / damaged).write_bytes(b'{"cut": 1, ')
        lake.write(T, kv({9: "newest"}))
        seventh = lake.publish()
        follower, reader = IcebergFollower(lake.location), IcebergReader(lake.location)

        assert follower.follow(seventh) == ""
        follower.expire([5, 7])
        assert follower.needed([5, 7]) == {}
        assert reader.differs(reader.cut(), tables_of(seventh)) == "", damaged
        assert reader.differs(reader.cut(5), tables_of(manifests[4])) == "", damaged


def test_view_keeps_its_snapshots_while_another_version_of_it_is_active(location: Location) -> None:
    lake, follower, reader = SmallLake(location), IcebergFollower(location), IcebergReader(location)
    manifests: list[Manifest] = []

    def publish(views: dict[str, ViewState]) -> None:
        manifests.append(lake.publish(views=views))
        assert follower.follow(manifests[-1]) == ""

    lake.view("top", pa.table({"n": [1]}))
    one = lake.views["top"]
    lake.write(layout.view("top", 2), pa.table({"m": [2]}))
    two = structs.replace(one, generation=2, version=0)
    publish({"top": one})
    publish({"top": one, layout.beside("top", 2): two})
    publish({"top": two, layout.beside("top", 1): one})
    publish({"top": one, layout.beside("top", 2): two})

    assert [reader.differs(reader.cut(kept.cut), tables_of(kept)) for kept in manifests] == [""] * 4
    assert [reader.rows(reader.cut(cut), "views/top").to_pylist() for cut in (1, 2, 3, 4)] == [
        [{"n": 1}],
        [{"n": 1}],
        [{"m": 2}],
        [{"n": 1}],
    ]


def test_table_that_iceberg_cannot_represent_is_left_out_alone(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path / "lake")
    follower, reader = IcebergFollower(lake.location), IcebergReader(lake.location)
    lake.write(T, kv({1: "a"}))
    same_names: Any = pa.table({"a": pa.array([{"b": 1}], pa.struct([("b", pa.int64())])), "a.b": [1]})
    lake.write("archive/strange", same_names)

    reason = follower.follow(lake.publish())

    assert reason.startswith("archive/strange is left out: ")
    assert reader.cut()["tables"].keys() == {T}
    assert reader.cut()["left_out"].keys() == {"archive/strange"}
