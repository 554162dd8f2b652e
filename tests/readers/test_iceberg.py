"""ClickHouse, whose Iceberg reader shares no code with pyiceberg, reads each cut of a lake as deltalake does."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sinks.warehouse.iceberg.follower import IcebergFollower
from tests.fixtures.lake.iceberg_reader import counted
from tests.fixtures.lake.lake_tables import H, T
from tests.fixtures.lake.small_lakes import SmallLake

_PROGRAM: Final = Path(__file__).parent / "iceberg_clickhouse.py"
_READ_S: Final = 120.0


def test_clickhouse_reads_every_cut_of_tables_that_change_their_form(tmp_path: Path) -> None:
    python = os.environ.get("TAILRACE_READERS", "")
    if not python:
        pytest.skip("outside readers run with `make readers`, which makes their environment")
    lake, versions = SmallLake(tmp_path / "lake"), list[dict[str, int]]()
    follower = IcebergFollower(lake.location)

    def publish() -> None:
        manifest = lake.publish()
        assert follower.follow(manifest) == ""
        versions.append({table: state.version for table, state in manifest.tables.items()})

    lake.write(T, pa.table({"k": [1, 2], "v": ["a", None]}))
    lake.write(H, pa.table({"k": [1, 2], "_open": [True, False]}), partition_by=["_open"])
    publish()
    lake.write(T, pa.table({"k": [3], "v": ["c"], "more": [7]}))
    publish()
    lake.write(T, pa.table({"k": ["x", "y"], "more": [True, None]}), mode="overwrite")
    lake.write(H, pa.table({"k": [3], "_open": [True]}), partition_by=["_open"])
    publish()
    files = [lake.path / "_iceberg" / f"{cut:012d}.json" for cut in (1, 2, 3)]
    done = subprocess.run(
        [python, str(_PROGRAM), *map(str, files)], capture_output=True, text=True, timeout=_READ_S, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, list[dict[str, Any]]]] = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = [
        {table: DeltaTable(lake.location.uri(table), version=one).to_pyarrow_table().to_pylist() for table, one in of}
        for of in (cut.items() for cut in versions)
    ]
    assert [{table: counted(rows) for table, rows in cut.items()} for cut in found] == [
        {table: counted(rows) for table, rows in cut.items()} for cut in wanted
    ]
