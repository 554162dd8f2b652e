"""A lake in an object store: its manifests, outages of the store, and messages about refused access."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from cdc.errors import LakeDamaged, LakeUnready, SinkBehind, UsageError
from sinks.warehouse.delta.commit_once import commit_properties
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import ManifestStore, disk_of
from sinks.warehouse.read.lake_reader import Lake, read, view_summary
from tests.fixtures.lake.lake_files import SteppedDisk, manifest, pending
from tests.fixtures.lake.lake_tables import T, batch, content, kv, txn
from tests.fixtures.lake.small_lakes import SmallLake
from tests.fixtures.servers.object_store import ObjectStore, way_to

FEW_TRIES = {"max_retries": "1", "retry_timeout": "2s"}


class Halted(Exception):
    """Stands for a crash."""


@pytest.fixture
def stored(object_store: ObjectStore) -> Location:
    return object_store.lake()


def publish(store: ManifestStore, *cuts: int) -> None:
    for cut in cuts:
        store.begin(pending(cut))
        store.publish(manifest(cut))


def test_manifests_are_published_read_pruned_and_found_by_lsn(stored: Location) -> None:
    store = ManifestStore(stored)
    assert (store.current(), store.pending(), store.cuts(), store.at_lsn(10**9)) == (None, None, [], None)

    store.begin(pending(1))
    assert store.pending() == pending(1)
    store.publish(manifest(1))
    publish(store, 2, 3, 4)

    other = ManifestStore(stored)
    assert (other.current(), other.pending(), other.cuts()) == (manifest(4), None, [1, 2, 3, 4])
    assert other.at_lsn(350) == manifest(3)
    assert other.at_lsn(99) is None
    assert store.prune(2).cuts == [1, 2]
    assert other.needed() == {"mirror/public.orders": {3, 4}, layout.view("revenue"): {3, 4}}
    with pytest.raises(UsageError, match="cuts 3 to 4 are kept"):
        other.at(1)


def test_pointer_that_is_gone_or_cut_off_is_made_good_and_damage_is_named(stored: Location) -> None:
    store, disk = ManifestStore(stored), disk_of(stored)
    publish(store, 1, 2)

    disk.replace(layout.CURRENT_FILE, b'{"version":1,"cu')
    assert store.current() == manifest(2)
    disk.remove(layout.CURRENT_FILE)
    disk.remove(layout.CURRENT_FILE)
    assert store.current() == manifest(2)
    for cut in (1, 2):
        disk.replace(layout.cut_file(cut), b"")
    with pytest.raises(LakeDamaged, match=rf"{stored.root}/_cuts/000000000002\.json is corrupt"):
        store.current()


def test_driver_that_dies_at_any_step_leaves_the_old_cut_or_the_new_one(stored: Location) -> None:
    store = ManifestStore(stored)
    publish(store, 1)
    steps = []
    for cut, deadly in enumerate(range(4), start=2):
        passed: list[str] = []

        def die(step: str, passed: list[str] = passed, deadly: int = deadly) -> None:
            if len(passed) == deadly:
                steps.append(step)
                raise Halted
            passed.append(step)

        dying = ManifestStore(stored, SteppedDisk.of(stored, die))
        with pytest.raises(Halted):
            publish(dying, cut)
        assert store.current() in (manifest(cut - 1), manifest(cut))
        if store.current() != manifest(cut):
            publish(store, cut)
        assert store.pending() is None

    assert [step.partition(" ")[0] for step in steps] == ["replace", "replace", "replace", "remove"]


def test_commit_on_a_version_that_is_not_the_newest_any_more_is_refused(stored: Location) -> None:
    """The store takes a log entry only where there is none: that is what keeps two drivers apart, besides the fence."""
    lake = DeltaRs(stored)
    base = lake.append(T, kv({1: "a"}), base=None, txn=txn(1))
    stale = DeltaTable(stored.uri(T), storage_options=dict(stored.options))
    newest = lake.append(T, kv({2: "b"}), base=base, txn=txn(2))

    with pytest.raises(CommitFailedError):
        write_deltalake(stale, kv({3: "c"}), mode="append", commit_properties=commit_properties(txn(3)))
    assert lake.version(T) == newest
    assert content(lake, newest) == {1: "a", 2: "b"}


def test_vacuum_deletes_objects_no_kept_version_needs(stored: Location) -> None:
    lake = DeltaRs(stored)
    version: int | None = None
    for cut in range(1, 5):
        version = lake.overwrite(T, kv({cut: "x"}), base=version, txn=txn(cut))

    assert lake.vacuum(T, [2, 3]) == 2
    assert [content(lake, kept) for kept in (2, 3)] == [{3: "x"}, {4: "x"}]
    with pytest.raises(LakeDamaged):
        lake.read(T, 0)


def test_rows_and_views_are_looked_at_without_spark(stored: Location) -> None:
    made = SmallLake(stored)
    made.write("mirror/public.orders", kv({1: "a"}))
    made.view("total", kv({7: "t"}))
    made.publish()
    made.write("mirror/public.orders", kv({2: "b"}))
    made.publish()

    lake = Lake(stored.root, storage=stored.options)
    newest = lake.manifest()
    version = newest.tables["mirror/public.orders"].version
    assert read(lake, "mirror/public.orders", version, where="k > 1").to_pylist() == [{"k": 2, "v": "b"}]
    assert read(lake, "mirror/public.orders", lake.manifest(1).tables["mirror/public.orders"].version).num_rows == 1
    assert view_summary(lake, newest, "total").rows == 1
    with pytest.raises(LakeDamaged, match="has no version 9"):
        read(lake, "mirror/public.orders", 9)


def test_options_can_come_from_the_environment(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in object_store.options.items():
        monkeypatch.setenv(name, value)
    made = SmallLake(Location.of(object_store.url()))
    made.write(T, kv({1: "a"}))
    made.publish()

    lake = Lake(made.location.root.replace("s3://", "s3a://"))
    assert read(lake, T, lake.manifest().tables[T].version).num_rows == 1


def test_lake_that_is_not_there_has_no_cut_and_a_bucket_that_is_not_is_said(
    object_store: ObjectStore, stored: Location
) -> None:
    with pytest.raises(SinkBehind, match="has no cut yet"):
        Lake(stored).manifest()

    nowhere = Location.of("s3://nowhere/lake", object_store.options)
    for use in (lambda: Lake(nowhere).manifest(), lambda: DeltaRs(nowhere).version(T)):
        with pytest.raises(LakeUnready, match=r"the bucket of \S+ does not exist"):
            use()
    with pytest.raises(LakeUnready):
        ManifestStore(nowhere).begin(pending(1))


def test_wrong_credentials_are_said_and_not_shown(object_store: ObjectStore, stored: Location) -> None:
    hush = "this-is-no-key-of-anybody"
    wrong = Location.of(stored.root, {**object_store.options, "AWS_SECRET_ACCESS_KEY": hush})
    version = DeltaRs(stored).append(T, kv({1: "a"}), base=None, txn=txn(1))
    publish(ManifestStore(stored), 1)

    for use in (
        lambda: ManifestStore(wrong).current(),
        lambda: ManifestStore(wrong).cuts(),
        lambda: DeltaRs(wrong).append(T, kv({1: "a"}), base=version, txn=txn(2)),
        lambda: read(Lake(wrong), T, 0),
    ):
        with pytest.raises(LakeUnready, match="the object store denied access to") as raised:
            use()
        assert "credentials" in str(raised.value.hint)
        assert hush not in repr(raised.value) + str(raised.value)
    assert hush not in repr(wrong) + str(wrong)


def test_store_that_is_away_is_waited_for_and_gone_on_with(object_store: ObjectStore) -> None:
    with way_to(object_store) as port:
        options = {**object_store.at(port).options, **FEW_TRIES}
        place = Location.of(object_store.url(), options)
        store, lake = ManifestStore(place), DeltaRs(place)
        publish(store, 1)
        one = lake.append(T, kv({1: "a"}), base=None, txn=txn(1))
        store.begin(pending(2))

    for use in (
        store.current,
        lambda: store.publish(manifest(2)),
        lambda: lake.merge(T, batch({2: "b"}), ["k"], base=one, txn=txn(2)),
        lambda: read(Lake(place), T, one),
    ):
        with pytest.raises(LakeUnready, match="cannot be used"):
            use()

    with way_to(object_store, port):
        two = lake.merge(T, batch({2: "b"}), ["k"], base=one, txn=txn(2))
        store.publish(manifest(2))
        assert (store.current(), content(lake, two)) == (manifest(2), {1: "a", 2: "b"})
