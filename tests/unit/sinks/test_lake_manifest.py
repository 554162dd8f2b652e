"""The folder of cuts: a crash or a bad disk leaves the old state, the new state, or reported damage."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import pytest
from msgspec import structs

from cdc.errors import InvariantError, LakeDamaged, LakeUnready, UsageError
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.lake.manifest import Manifest, ManifestStore, Pending, Repair, TableState, encode, epoch_at
from sinks.warehouse.lake.old_sums import drop_old_sums
from tests.fixtures.lake.lake_files import SteppedDisk, manifest, pending

# Written by the older code on 2026-11-24, before a position was a type of its own.
_OLD_PENDING: Final = (
    b'{"version":1,"cut":2,"start_cut":1,"epoch":1,"end_lsn":200,"commit_lsn":199,"cuts_offset":4,"si'
    b'nce_lsn":0,"accounts":{"shop.public.orders-0":[20,18]},"complete":{"public.orders":"complete"},'
    b'"plans":{"revenue":"recompute"},"serve":{},"texts":{},"pieces":[],"attempts":0,"failures":0,"su'
    b'spect":"","left":{}}'
    b"\n"
)
_OLD_MANIFEST: Final = (
    b'{"version":1,"cut":2,"name":"shop","epoch":1,"end_lsn":200,"commit_lsn":199,"cuts_offset":4,"si'
    b'nce_lsn":0,"accounts":{"shop.public.orders-0":[20,18]},"complete":{"public.orders":"complete"},'
    b'"tables":{"mirror/public.orders":{"version":2,"schema_id":"ab12cd34","rows":2}},"views":{"reven'
    b'ue":{"version":2,"generation":1,"reason":"","cut":2,"sql_sha":"f00","text":"","newest":0,"plan"'
    b':null,"sums":null}},"unbuilt":{},"committed_at_us":2000000}'
    b"\n"
)


class Halted(Exception):
    """Represents a crash."""


def publish(store: ManifestStore, *cuts: int) -> None:
    for cut in cuts:
        store.begin(pending(cut))
        store.publish(manifest(cut))


def folder(path: Path) -> Path:
    return path / "_cuts"


def test_lake_that_is_not_there_has_no_cut(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path / "none")

    assert store.current() is None
    assert store.pending() is None
    assert store.cuts() == []
    assert store.at_lsn(10**9) is None
    assert store.prune(3).cuts == []
    assert store.needed() == {}
    assert not (tmp_path / "none").exists(), "a reader made a folder"


def test_published_cut_is_the_newest_one_and_nothing_is_pending(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)

    store.begin(pending(1))
    assert store.pending() == pending(1)
    assert store.current() is None
    store.publish(manifest(1))
    publish(store, 2)

    assert store.current() == manifest(2)
    assert store.pending() is None
    assert [store.at(cut) for cut in store.cuts()] == [manifest(1), manifest(2)]
    assert sorted(file.name for file in folder(tmp_path).iterdir()) == [
        "000000000001.json",
        "000000000002.json",
        "current.json",
    ]


def test_pending_cut_can_be_begun_again_and_no_other_one(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    store.begin(pending(1))
    store.begin(pending(1))

    with pytest.raises(InvariantError, match="another range"):
        store.begin(pending(1, end_lsn=7))
    with pytest.raises(InvariantError):
        store.publish(manifest(1, end_lsn=7))
    with pytest.raises(InvariantError):
        store.publish(manifest(2))


@pytest.mark.parametrize("wrong", [pending(2), pending(1, start_cut=3), pending(4, start_cut=1)])
def test_cuts_have_no_holes(tmp_path: Path, wrong: msgspec.Struct) -> None:
    with pytest.raises(InvariantError):
        ManifestStore(tmp_path).begin(wrong)  # type: ignore[arg-type]  # it is a Pending


def test_publishing_what_was_not_begun_is_our_bug(tmp_path: Path) -> None:
    with pytest.raises(InvariantError, match="but was not begun"):
        ManifestStore(tmp_path).publish(manifest(1))


def test_cut_of_an_lsn_is_the_newest_that_ends_there_or_before(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    publish(store, *range(1, 8))
    store.prune(5)

    found = {lsn: store.at_lsn(lsn) for lsn in (299, 300, 301, 399, 400, 699, 700, 10**6)}
    assert {lsn: None if at is None else at.cut for lsn, at in found.items()} == {
        299: None,
        300: 3,
        301: 3,
        399: 3,
        400: 4,
        699: 6,
        700: 7,
        10**6: 7,
    }


def test_cut_of_an_lsn_is_of_the_newest_epoch_that_reaches_back_to_it(tmp_path: Path) -> None:
    """After a repair LSNs may go back: the database was restored."""
    store = ManifestStore(tmp_path)
    for cut, (epoch, lsn) in enumerate([(1, 100), (1, 200), (1, 300), (1, 500), (2, 220), (2, 240), (3, 400)], 1):
        at = replace(manifest(cut).position, epoch=epoch, end_lsn=lsn)
        store.begin(structs.replace(pending(cut), position=at))
        store.publish(structs.replace(manifest(cut), position=at))

    found = {lsn: store.at_lsn(lsn) for lsn in (99, 100, 219, 220, 250, 300, 399, 400)}

    assert {lsn: None if at is None else at.cut for lsn, at in found.items()} == {
        99: None,
        100: 1,
        219: 2,
        220: 5,
        250: 6,
        300: 6,
        399: 6,
        400: 7,
    }


def test_epoch_of_an_lsn_is_the_newest_that_reaches_back_to_it() -> None:
    repairs = (
        Repair(epoch=1, known_to=300, known_at_us=0, resumes_at=210),
        Repair(epoch=2, known_to=240, known_at_us=0, resumes_at=390),
    )
    newest = structs.replace(manifest(6), repairs=repairs, position=replace(manifest(6).position, epoch=3, end_lsn=400))

    assert {lsn: epoch_at(newest, lsn) for lsn in (209, 210, 389, 390)} == {209: 1, 210: 2, 389: 2, 390: 3}
    assert epoch_at(manifest(1), 50) == 1


def test_pruning_keeps_the_newest_cuts_and_always_the_current_one(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    publish(store, *range(1, 7))

    assert store.prune(4).cuts == [1, 2]
    assert store.prune(4).cuts == []
    assert store.cuts() == [3, 4, 5, 6]
    assert store.needed() == {"mirror/public.orders": {3, 4, 5, 6}, "views/revenue/g1": {3, 4, 5, 6}}
    assert store.prune(0).cuts == [3, 4, 5]
    assert store.current() == manifest(6)
    with pytest.raises(UsageError, match="cut 3 is not in the lake: cuts 6 to 6 are kept"):
        store.at(3)


def test_crash_before_any_step_leaves_the_old_cut_or_the_new_one(tmp_path: Path) -> None:
    ended = []
    for crash in range(1, 6):
        lake = tmp_path / str(crash)
        publish(ManifestStore(lake), 1)
        left = crash

        def step(what: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Halted(what)

        try:
            publish(ManifestStore(lake, SteppedDisk.of(lake, step)), 2)
        except Halted as halted:
            ended.append(str(halted))
        store = ManifestStore(lake)
        current, again = store.current(), store.pending()

        assert current in (manifest(1), manifest(2))
        if current == manifest(1):
            assert again in (None, pending(2))
            publish(store, 2)
        else:
            assert again is None, "a published cut is never made again"
        publish(store, 3)
        assert [store.at(cut) for cut in store.cuts()] == [manifest(1), manifest(2), manifest(3)]
    assert ended == ["replace pending.json", "replace 000000000002.json", "replace current.json", "remove pending.json"]


def test_half_written_file_beside_is_no_file(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    publish(store, 1)
    for name in ("current.json", "pending.json", "000000000002.json"):
        (folder(tmp_path) / f".{name}.tmp").write_bytes(b'{"version":1,"cut":2,')

    assert store.current() == manifest(1)
    assert store.pending() is None
    publish(store, 2)
    assert store.current() == manifest(2)


def test_pointer_cut_off_at_any_byte_is_made_good_by_the_newest_cut_file(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    publish(store, 1, 2)
    pointer = folder(tmp_path) / "current.json"
    whole = pointer.read_bytes()

    for length in range(len(whole)):
        pointer.write_bytes(whole[:length])
        assert store.current() == manifest(2), length
        assert store.pending() is None
    pointer.unlink()
    assert store.current() == manifest(2)


def test_pointer_and_newest_cut_file_cut_off_lead_to_the_newest_whole_one(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    publish(store, 1, 2)
    for name in ("current.json", "000000000002.json"):
        (folder(tmp_path) / name).write_bytes(b'{"version":1,"cut":2,"na')

    assert store.current() == manifest(1)
    (folder(tmp_path) / "000000000001.json").write_bytes(b"")
    with pytest.raises(LakeDamaged, match=r"current\.json is corrupt"):
        store.current()
    (folder(tmp_path) / "current.json").unlink()
    with pytest.raises(LakeDamaged):
        store.current()


def test_cut_file_cut_off_at_any_byte_is_damage_that_names_it(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    publish(store, 1, 2)
    file = folder(tmp_path) / "000000000001.json"
    whole = file.read_bytes()

    for length in range(len(whole) - 1):  # the last byte is the line's end
        file.write_bytes(whole[:length])
        assert store.current() == manifest(2)
        with pytest.raises(LakeDamaged, match=r"000000000001\.json is corrupt"):
            store.at(1)


def test_pending_cut_off_at_any_byte_is_damage_unless_its_cut_is_published(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    publish(store, 1)
    store.begin(pending(2))
    file = folder(tmp_path) / "pending.json"
    whole = file.read_bytes()

    for length in range(len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(LakeDamaged, match=r"pending\.json is corrupt"):
            store.pending()
    told = whole.index(b",", whole.index(b"cut")) + 1
    file.write_bytes(whole)
    store.publish(manifest(2))
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        if length >= told:
            assert store.pending() is None, length
        else:
            with pytest.raises(LakeDamaged):
                store.pending()


def test_pending_after_another_cut_than_the_newest_is_damage(tmp_path: Path) -> None:
    publish(ManifestStore(tmp_path), 1, 2)
    (folder(tmp_path) / "pending.json").write_bytes(encode(pending(4)))

    with pytest.raises(LakeDamaged, match="begins cut 4 after cut 3, but cut 2 is the newest one"):
        ManifestStore(tmp_path).pending()


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("current.json", manifest(1, version=2)),
        ("pending.json", pending(1, version=2)),
    ],
)
def test_file_of_a_newer_release_is_refused(tmp_path: Path, name: str, record: Pending | Manifest) -> None:
    folder(tmp_path).mkdir()
    (folder(tmp_path) / name).write_bytes(encode(record))

    with pytest.raises(LakeDamaged, match="has version 2; this release reads version 1"):
        (ManifestStore(tmp_path).current if name == "current.json" else ManifestStore(tmp_path).pending)()


def test_files_have_the_form_of_older_releases(tmp_path: Path) -> None:
    folder(tmp_path).mkdir()
    (folder(tmp_path) / "pending.json").write_bytes(_OLD_PENDING)

    now = _OLD_MANIFEST.replace(b',"sums":null', b"")
    assert (encode(pending(2)), encode(manifest(2))) == (_OLD_PENDING, now)
    (folder(tmp_path) / "current.json").write_bytes(_OLD_MANIFEST.replace(b'"cut":2', b'"cut":1', 1))
    assert ManifestStore(tmp_path).pending() == pending(2)
    (folder(tmp_path) / "current.json").write_bytes(_OLD_MANIFEST)
    assert ManifestStore(tmp_path).current() == manifest(2)


def test_sums_that_an_earlier_release_kept_beside_a_view_are_ignored_and_deleted(tmp_path: Path) -> None:
    folder(tmp_path).mkdir()
    data = _OLD_MANIFEST.replace(b'"sums":null', b'"sums":[3,2]').replace(b'"newest":0', b'"newest":2')
    for name in ("current.json", "000000000002.json"):
        (folder(tmp_path) / name).write_bytes(data)
    for table in ("g1", "s1", "s2"):
        (tmp_path / "views/revenue" / table / "_delta_log").mkdir(parents=True)
    store = ManifestStore(tmp_path)
    found = store.current()

    assert found is not None
    assert store.needed() == {"mirror/public.orders": {2}, "views/revenue/g1": {2}}
    drop_old_sums(found, DeltaRs(tmp_path))
    drop_old_sums(found, DeltaRs(tmp_path))

    assert [path.name for path in (tmp_path / "views/revenue").iterdir()] == ["g1"]


@pytest.mark.parametrize("accounts", ['{"no-number":[1,1]}', '{"a-0":[1]}', "null"])
def test_counts_that_are_not_valid_are_damage(tmp_path: Path, accounts: str) -> None:
    folder(tmp_path).mkdir()
    damaged = re.sub(rb'"accounts":[^}]*}', b'"accounts":' + accounts.encode(), _OLD_MANIFEST)
    (folder(tmp_path) / "current.json").write_bytes(damaged)

    with pytest.raises(LakeDamaged, match="is corrupt"):
        ManifestStore(tmp_path).current()


def test_cut_file_under_another_name_is_damage(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    publish(store, 1, 2)
    (folder(tmp_path) / "000000000001.json").write_bytes((folder(tmp_path) / "000000000002.json").read_bytes())

    with pytest.raises(LakeDamaged, match="holds cut 2"):
        store.at(1)


def test_storage_that_refuses_is_waited_for_and_named(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("in the way")

    with pytest.raises(LakeUnready, match=r"lake/_cuts"):
        ManifestStore(tmp_path / "lake").begin(pending(1))


def test_manifest_reads_as_the_documented_json(tmp_path: Path) -> None:
    publish(ManifestStore(tmp_path), 1)

    found = msgspec.json.decode((folder(tmp_path) / "current.json").read_bytes())
    assert list(found)[:3] == ["version", "cut", "name"]
    assert found["tables"] == {"mirror/public.orders": {"version": 1, "schema_id": "ab12cd34", "rows": 1}}
    assert (found["epoch"], found["end_lsn"], found["accounts"]) == (1, 100, {"shop.public.orders-0": [10, 9]})
    assert ManifestStore(tmp_path).current() == manifest(1)


def test_manifest_of_an_older_release_knows_no_keys() -> None:
    old = b'{"version":4,"schema_id":"ab12cd34","rows":1}'
    new = msgspec.json.encode(TableState(version=4, schema_id="ab12cd34", key=(), event_time="at"))

    assert msgspec.json.decode(old, type=TableState).key is None
    assert msgspec.json.decode(new, type=TableState) == TableState(
        version=4, schema_id="ab12cd34", key=(), event_time="at"
    )
