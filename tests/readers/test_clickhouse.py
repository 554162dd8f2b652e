"""ClickHouse ends with the rows of the table."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.servers.java_clients import JavaClients
from tests.fixtures.sinks.reader_workload import DEFAULT, FULL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.sinks.reader_workload import Readable
    from tests.readers.conftest import Read


@pytest.mark.parametrize("table", [DEFAULT, FULL])
def test_clickhouse_folds_what_javas_client_reads_to_the_rows_of_the_table(
    table: str, readable: Readable, run_reader: Callable[..., Read], tmp_path: Path
) -> None:
    records = JavaClients(readable.site.bootstrap).dump(readable.topic(table), readable.last(table))
    file = tmp_path / "records.jsonl"
    file.write_text("".join(json.dumps(asdict(record)) + "\n" for record in records), encoding="utf-8")

    read = run_reader("clickhouse_reader.py", file)

    assert read.code == 0, read.said
    assert read.rows == readable.rows[table]
