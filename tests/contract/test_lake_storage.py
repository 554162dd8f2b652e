"""File operations of a committer: compaction, vacuum, and failing storage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cdc.errors import LakeDamaged, LakeUnready
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.lake.committer import Committer
from tests.fixtures.lake.lake_tables import T, batch, content, kv, txn


@pytest.fixture
def lake(tmp_path: Path) -> Committer:
    return DeltaRs(str(tmp_path / "lake"))


def test_vacuum_leaves_every_version_that_is_needed(lake: Committer, tmp_path: Path) -> None:
    version: int | None = None
    for cut in range(1, 131):
        version = lake.overwrite(T, kv({cut: "x"}), base=version, txn=txn(cut))
    folder = tmp_path / "lake" / T

    assert lake.vacuum(T, [101, 120, 129]) == 127
    assert [content(lake, kept) for kept in (101, 120, 129)] == [{102: "x"}, {121: "x"}, {130: "x"}]
    assert len(list(folder.glob("*.parquet"))) == 3
    assert len(list((folder / "_delta_log").glob("*.json"))) < 130, "the log was not cleaned"
    assert lake.version(T) == 129, "vacuum made a commit"
    assert lake.applied(T, "mirror") == 130
    assert content(lake, lake.merge(T, batch({1: "y"}), ["k"], base=129, txn=txn(131))) == {130: "x", 1: "y"}
    with pytest.raises(LakeDamaged):
        lake.read(T, 110)
    assert lake.vacuum("mirror/nowhere", []) == 0


def test_compaction_changes_files_and_no_row(lake: Committer) -> None:
    version = lake.append(T, kv({0: "x"}), base=None, txn=txn(1))
    for cut in range(2, 8):
        version = lake.append(T, kv({cut: "x"}), base=version, txn=txn(cut))
    packed = lake.compact(T, base=version, txn=txn(8, "compact"))
    again = lake.compact(T, base=packed, txn=txn(9, "compact"))

    assert len(lake.files(T, packed)) == 1
    assert again == packed, "there was nothing to do"
    assert content(lake, packed) == content(lake, version)


def test_every_version_stays_readable_until_it_is_vacuumed(lake: Committer) -> None:
    version: int | None = None
    wanted: dict[int, int] = {}
    for cut in range(1, 22):  # past two checkpoints, at versions of every kind of statement
        version = lake.merge(T, batch({cut: "x"}), ["k"], base=version, txn=txn(cut))
        wanted[version] = cut
        version = lake.compact(T, base=version, txn=txn(cut, "compact"), sort_by=["k"])
        wanted[version] = cut
        if cut % 5 == 0:
            version = lake.overwrite(T, lake.read(T, version), base=version, txn=txn(cut, "reshape"))
            wanted[version] = cut

    assert {at: len(content(lake, at)) for at in wanted} == wanted


def test_unreachable_storage_is_waited_for() -> None:
    options = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "x",
        "max_retries": "0",
    }
    lake = DeltaRs("s3://nowhere/lake", options)

    with pytest.raises(LakeUnready, match=r"storage of mirror/public\.orders cannot be used"):
        lake.append(T, kv({1: "a"}), base=None, txn=txn(1))


def test_full_disk_is_waited_for_and_the_statement_is_then_made_once(tmp_path: Path) -> None:
    """In a process of its own: a limit on the size of files stands for the full disk."""
    program = f"""
import os, resource
import pyarrow as pa
from cdc.errors import LakeUnready
from sinks.warehouse.lake.committer import Txn
from sinks.warehouse.delta.deltars import DeltaRs

lake = DeltaRs({str(tmp_path / "lake")!r})
rows = pa.table({{"k": list(range(100)), "v": [os.urandom(1000) for _ in range(100)]}})
one = lake.append({T!r}, rows, base=None, txn=Txn("mirror", 1))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
marked = rows.append_column("_deleted", pa.array([False] * 100))
for write in (
    lambda: lake.append({T!r}, rows, base=one, txn=Txn("mirror", 2)),
    lambda: lake.merge({T!r}, marked, ["k"], base=one, txn=Txn("mirror", 2)),
):
    try:
        write()
    except LakeUnready as error:
        print(error.message)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
two = lake.merge({T!r}, marked, ["k"], base=one, txn=Txn("mirror", 2))
print(two, lake.rows({T!r}, two))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    said = ran.stdout.splitlines()
    assert [line.partition(":")[0] for line in said[:-1]] == [f"storage of {T} cannot be used"] * 2, ran.stderr
    assert said[-1] == "1 100"


def test_folder_that_cannot_be_made_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("in the way")

    with pytest.raises(LakeUnready):
        DeltaRs(str(tmp_path / "lake")).append(T, kv({1: "a"}), base=None, txn=txn(1))


def test_lost_files_are_damage_that_names_the_table(lake: Committer) -> None:
    one = lake.append(T, kv({1: "a"}), base=None, txn=txn(1))
    Path(lake.files(T, one)[0]).unlink()

    for use in (lambda: lake.read(T, one), lambda: lake.merge(T, batch({1: "b"}), ["k"], base=one, txn=txn(2))):
        with pytest.raises(LakeDamaged, match=r"mirror/public\.orders"):
            use()


def test_log_entry_that_was_cut_off_is_damage_or_seen_by_its_rows(lake: Committer, tmp_path: Path) -> None:
    one = lake.append(T, kv({1: "a"}), base=None, txn=txn(1))
    two = lake.append(T, kv({2: "b"}), base=one, txn=txn(2))
    entry = tmp_path / "lake" / T / "_delta_log" / f"{two:020}.json"
    whole = entry.read_bytes()

    for length in range(0, len(whole) - 1, 7):
        entry.write_bytes(whole[:length])
        try:
            counted = lake.rows(T, two)
        except LakeDamaged:
            continue
        assert counted == 1, (
            "a log cut off between two lines reads as a commit without rows: the manifest's count tells"
        )
