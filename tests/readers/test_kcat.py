"""kcat reads keys, values, tombstones and partitions correctly."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.capture.murmur2 import java_partition
from tests.fixtures.servers.java_clients import Dumped
from tests.fixtures.sinks import duckdb_reader
from tests.fixtures.sinks.reader_workload import DEFAULT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.sinks.reader_workload import Readable


@pytest.fixture
def seen(readable: Readable, kcat: str) -> list[Dumped]:
    """Every committed record, as ``kcat -J`` prints it."""
    done = subprocess.run(
        [
            *(kcat, "-C", "-b", readable.site.bootstrap, "-t", readable.topic(DEFAULT), "-e", "-q", "-J"),
            *("-X", "isolation.level=read_committed"),
        ],
        capture_output=True,
        timeout=120,
        check=True,
    )
    lines = done.stdout.decode().split("\n")
    records = [json.loads(line) for line in lines if line]
    return [Dumped(r["partition"], r["offset"], r["key"], r["payload"]) for r in records]


def test_kcat_sees_every_record_in_the_partition_of_its_key(readable: Readable, seen: list[Dumped]) -> None:
    ours = {(r.partition, r.offset): (r.key, r.value) for r in readable.log.topic(readable.topic(DEFAULT))}

    theirs = {
        (r.partition, r.offset): (r.key.encode(), None if r.payload is None else r.payload.encode()) for r in seen
    }

    assert theirs == ours
    assert all(r.partition == java_partition(r.key.encode(), 2) for r in seen)


def test_what_kcat_prints_folds_to_the_rows_of_the_table(
    readable: Readable, seen: list[Dumped], tmp_path: Path
) -> None:
    assert duckdb_reader.items(seen, tmp_path) == readable.rows[DEFAULT]
