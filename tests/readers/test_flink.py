"""Apache Flink SQL 2.2 ends with the rows of the table, for each pair of its formats and ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.sinks.reader_workload import DEFAULT, FULL, published

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.servers.running_servers import KafkaServer, PostgresServer
    from tests.fixtures.sinks.reader_workload import Readable
    from tests.readers.conftest import Read


def test_flink_reads_the_envelope_of_a_table_with_replica_identity_full(
    readable: Readable, run_reader: Callable[..., Read], flink_connector: Path
) -> None:
    read = run_reader(
        "flink_reader.py", flink_connector, readable.site.bootstrap, readable.topic(FULL), "debezium-json"
    )

    assert read.code == 0, read.said
    assert read.rows == readable.rows[FULL]


def test_flink_stops_at_an_update_of_a_table_with_the_default_identity(
    readable: Readable, run_reader: Callable[..., Read], flink_connector: Path
) -> None:
    read = run_reader(
        "flink_reader.py", flink_connector, readable.site.bootstrap, readable.topic(DEFAULT), "debezium-json"
    )

    assert read.code != 0
    assert 'The "before" field of UPDATE message is null' in read.said


@pytest.mark.parametrize("table", [DEFAULT, FULL])
def test_flink_reads_flattened_rows_of_any_table_as_upserts(
    table: str, flat: Readable, run_reader: Callable[..., Read], flink_connector: Path
) -> None:
    read = run_reader("flink_reader.py", flink_connector, flat.site.bootstrap, flat.topic(table), "upsert-kafka")

    assert read.code == 0, read.said
    assert read.rows == flat.rows[table]


@pytest.fixture(scope="module")
def flat(postgres: PostgresServer, kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> object:
    with published(postgres, kafka, tmp_path_factory.mktemp("flat"), {"encode": {"format": "flat"}}) as made:
        yield made
