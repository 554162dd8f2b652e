"""A lake that executors write: the tables of a local one, also after crashes and after changing between both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc.config.settings import Warehouse
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.distributed import spark_delta
from sinks.warehouse.distributed.choice import is_distributed
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.manifest import ManifestStore
from tests.fixtures.lake.framed import Framed, spread
from tests.fixtures.lake.lake_cuts import ARCHIVE, HISTORY, MIRROR, VIEW, Bank, faults
from tests.fixtures.lake.lake_writer import clean, make_cut, next_cut

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sinks.warehouse.lake.committer import Committer
    from sinks.warehouse.lake.manifest import Manifest

ROOT: Final = Path(__file__).parents[2]
TABLES: Final = (ARCHIVE, MIRROR, HISTORY)
STEPS: Final = ("create_table_with_add_actions", "in_one_task", "new_files", "placed", "rewritten", "commit_actions")
"""What the distributed committer does in a statement; a driver fails before and after each of them."""


class Killed(BaseException):
    """kill -9, as far as one process can play it: nothing handles it."""


def cut(lake: Path, committer: Committer) -> Manifest:
    """Make or finish one cut, and check it by the computed truth."""
    store = ManifestStore(lake)
    current = store.current()
    bank = Bank()
    bank.advance(0 if current is None else current.end_lsn)
    make_cut(store, committer, next_cut(store), bank)
    manifest = store.current()
    assert manifest is not None
    assert wrong(lake, manifest, bank) == {}
    return manifest


def wrong(lake: Path, manifest: Manifest, bank: Bank) -> dict[str, Any]:
    view = DeltaTable(lake / layout.view(VIEW), version=manifest.views[VIEW].version).to_pyarrow_table()
    archive, mirror, history = (
        DeltaTable(lake / one, version=manifest.tables[one].version).to_pyarrow_table() for one in TABLES
    )
    assert [one.num_rows for one in (archive, mirror, history)] == [manifest.tables[one].rows for one in TABLES]
    return faults(bank, archive, mirror, history, view)


def rows(lake: Path, table: str) -> list[tuple[Any, ...]]:
    """Return the rows of the newest version in order, read by DuckDB; the cut of an archive is left out."""
    files = DeltaTable(lake / table).file_uris()
    left_out = " exclude (cut)" if table == ARCHIVE else ""
    query = f"select *{left_out} from read_parquet($files, hive_partitioning = true, union_by_name = true)"
    read = pa.table(duckdb.connect().sql(f"from ({query}) order by all", params={"files": files}).to_arrow_table())
    return [tuple(read.column_names), *(tuple(row.values()) for row in read.to_pylist())]


def hear_steps(heard: Callable[[str], None], patched: pytest.MonkeyPatch) -> None:
    """Have `heard` called before and after each step."""
    for name in STEPS:
        patched.setattr(spark_delta, name, _stepped(name, getattr(spark_delta, name), heard))


def _stepped(name: str, act: Callable[..., Any], heard: Callable[[str], None]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        heard(f"before {name}")
        found = act(*arguments, **options)
        heard(f"after {name}")
        return found

    return call


def fails_at(number: int, passed: list[str], only: str = "") -> Callable[[str], None]:
    """Return what fails at the step of that number, and notes its name."""
    left = [number]

    def step(name: str) -> None:
        if only and name != only:
            return
        left[0] -= 1
        if left[0] < 0:
            passed.append(name)
            raise Killed(name)

    return step


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts of a known size, so that two lakes have the same cuts."""
    monkeypatch.setattr("tests.fixtures.lake.lake_writer.secrets.randbelow", lambda _: 5)


@pytest.mark.usefixtures("ends")
def test_lake_that_changes_between_committers_has_the_rows_of_a_local_one(quick: SparkSession, tmp_path: Path) -> None:
    local, mixed = tmp_path / "local", tmp_path / "mixed"
    distributed = Framed(quick, str(mixed))
    for committer in (DeltaRs(str(mixed)), distributed, distributed, distributed, DeltaRs(str(mixed)), distributed):
        cut(local, DeltaRs(str(local)))
        cut(mixed, committer)

    for table in TABLES:
        assert rows(mixed, table) == rows(local, table)
        one, other = (DeltaTable(lake / table) for lake in (local, mixed))
        assert (one.schema(), one.metadata().partition_columns) == (other.schema(), other.metadata().partition_columns)
        assert one.metadata().configuration == other.metadata().configuration


@pytest.mark.usefixtures("ends")
def test_lake_that_executors_created_has_the_form_and_the_statistics_of_a_local_one(
    quick: SparkSession, tmp_path: Path
) -> None:
    local, other = tmp_path / "local", tmp_path / "distributed"
    cut(local, DeltaRs(str(local)))
    cut(other, Framed(quick, str(other)))

    for table in TABLES:
        assert rows(other, table) == rows(local, table)
        one, two = (DeltaTable(lake / table) for lake in (local, other))
        assert (one.schema(), one.metadata().partition_columns) == (two.schema(), two.metadata().partition_columns)
        assert one.metadata().configuration == two.metadata().configuration
        assert bounds(one) == bounds(two)


def bounds(table: DeltaTable) -> list[dict[str, Any]]:
    """Return counts and bounds in the log, by file; a history has two."""
    actions = table.get_add_actions(flatten=True)
    found = [
        {name: value for name, value in zip(actions.schema.names, row, strict=True) if "." in name or "num" in name}
        for row in zip(*(column.to_pylist() for column in actions.columns), strict=True)
    ]
    return sorted(({name: value for name, value in one.items() if value is not None} for one in found), key=repr)


@pytest.mark.parametrize("tasks", ["one", "many"])
@pytest.mark.parametrize("which", ["first cut", "later cuts"])
def test_driver_that_dies_at_any_step_is_followed_by_one_that_is_exact(
    quick: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, tasks: str
) -> None:
    if tasks == "many":
        spread(monkeypatch)
    passed: list[str] = []
    is_over = False
    if which == "later cuts":
        cut(tmp_path / "lake", Framed(quick, str(tmp_path / "lake")))
    while not is_over:
        lake = tmp_path / (f"lake-{len(passed)}" if which == "first cut" else "lake")
        with monkeypatch.context() as patched:
            hear_steps(fails_at(len(passed), passed), patched)
            try:
                cut(lake, Framed(quick, str(lake)))
                is_over = True
            except Killed:
                pass
        if not is_over:
            cut(lake, Framed(quick, str(lake)))  # finishes the open one

    created, one_task, added, placed, rewritten, committed = STEPS
    steps = {created, added} if which == "first cut" else {added, committed}
    if tasks == "one":
        steps |= {one_task}
    elif which != "first cut":
        steps |= {placed, rewritten}
    assert {name.split()[1] for name in passed} == steps


def test_files_of_tasks_that_ran_in_vain_are_in_no_table_and_deleted_by_vacuum(
    quick: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    cut(lake, Framed(quick, str(lake)))
    with monkeypatch.context() as patched:
        hear_steps(fails_at(0, [], "before commit_actions"), patched)
        with pytest.raises(Killed):
            cut(lake, Framed(quick, str(lake)))
    cut(lake, Framed(quick, str(lake)))
    store, tables = ManifestStore(lake), DeltaRs(str(lake))
    orphans = {str(file) for file in (lake / ARCHIVE).rglob("*.parquet")} - set(tables.files(ARCHIVE, 1))
    clean(store, tables)

    assert len(orphans) == 1
    for table in TABLES:
        named = {name for version in store.needed()[table] for name in tables.files(table, version)}
        assert {str(file) for file in (lake / table).rglob("*.parquet")} == named


def test_committer_follows_the_master_unless_it_is_named() -> None:
    def chosen(master: str, committer: Any = "auto") -> bool:
        return is_distributed(Warehouse(path="lake", committer=committer), master)

    assert [chosen(master) for master in ("local", "local[*]", "local[2]", "local[2,4]")] == [False] * 4
    assert [chosen(master) for master in ("local-cluster[2,1,1024]", "spark://host:7077", "yarn", "k8s://x")] == [
        True
    ] * 4
    assert chosen("local[*]", "distributed")
    assert not chosen("yarn", "local")


def growing(folder: Path, kind: str) -> list[dict[str, float]]:
    """Return what `growing_cut` printed for each cut."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fixtures.lake.growing_cut", str(folder), kind, "30000", "8m"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.timeout(600)
def test_cut_ten_times_as_large_needs_no_more_memory_in_the_driver(tmp_path: Path) -> None:
    """No result of a job may exceed 8 MB: the large cut has 30 MB of rows, of the tables and of each view."""
    _, small, large = growing(tmp_path, "distributed")
    collected = growing(tmp_path / "local", "local")

    assert large["rows"] == 10 * small["rows"]
    assert large["peak"] < 1.15 * small["peak"]
    assert collected[-1].get("too_large"), "rows pass the driver of a local committer"
