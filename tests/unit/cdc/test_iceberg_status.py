"""`cdc sink status` names the cut that Iceberg readers see if the lake is ahead of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc.cli.sink_status_command import notes
from cdc.config.settings import Warehouse
from cdc.inspect.lake_state import lake_document
from sinks.warehouse.iceberg.cut_files import IcebergCut, IcebergCuts
from sinks.warehouse.lake.local_disk import LocalDisk
from tests.fixtures.lake.small_lakes import SmallLake

if TYPE_CHECKING:
    from pathlib import Path

_RUNS = {"name": "lake", "state": "RUNNING", "workers": 1}


@pytest.mark.parametrize(
    ("published", "shown"),
    [(1, ["Iceberg readers are at cut 1 of 3; see iceberg_behind in the sink's log"]), (2, []), (3, [])],
)
def test_old_cut_of_iceberg_readers_is_named_and_one_under_way_is_not(
    tmp_path: Path, published: int, shown: list[str]
) -> None:
    lake, settings = SmallLake(tmp_path), Warehouse(path=str(tmp_path), iceberg=True)
    for _ in range(3):
        lake.publish()
    before = lake_document(settings)
    IcebergCuts(LocalDisk(tmp_path / "_iceberg")).publish(IcebergCut(cut=published, epoch=1, lsn="0/100", tables={}))

    assert before["iceberg_cut"] == 0
    assert notes(_RUNS | lake_document(settings)) == shown
    assert "iceberg_cut" not in lake_document(Warehouse(path=str(tmp_path)))
