"""Apache Flink SQL as a reader: ``flink_reader.py JAR BOOTSTRAP TOPIC FORMAT``; the rows it ends with, as JSON lines.

FORMAT is `debezium-json`, which reads the envelope, or `upsert-kafka`, which reads flattened rows. Run by the Python of
the readers' environment; knows nothing of ours. Flink's changelog is folded: what is added less
what is taken back.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from pyflink.common import RowKind
from pyflink.table import EnvironmentSettings, TableEnvironment

# timestamptz is text: Flink takes "Z" for its zone, and we write "+00:00".
_COLUMNS: Final = """
    id BIGINT, name STRING, total DECIMAL(12, 2), ratio DOUBLE, kind SMALLINT, ok BOOLEAN, born DATE,
    seen TIMESTAMP(6), sent STRING, place STRING, extra STRING, `raw` STRING, parts ARRAY<INT>
"""
_WITH: Final = {
    "debezium-json": """
        'connector' = 'kafka', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
        'format' = 'debezium-json', 'debezium-json.timestamp-format.standard' = 'ISO-8601'
    """,
    "upsert-kafka": """
        'connector' = 'upsert-kafka', 'scan.bounded.mode' = 'latest-offset',
        'key.format' = 'json', 'value.format' = 'json', 'value.json.timestamp-format.standard' = 'ISO-8601'
    """,
}
_ROWS: Final = """
    SELECT CAST(id AS STRING), name, CAST(total AS STRING), CAST(ratio AS STRING), CAST(kind AS STRING),
           LOWER(CAST(ok AS STRING)), CAST(born AS STRING), CAST(seen AS STRING),
           CAST(CAST(REPLACE(REPLACE(sent, 'T', ' '), '+00:00', '') AS TIMESTAMP(6)) AS STRING),
           place, extra, `raw`, REPLACE(LOWER(CAST(parts AS STRING)), ' ', '')
    FROM items
"""


def main() -> int:
    jar, bootstrap, topic, form = sys.argv[1:]
    flink = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    flink.get_config().set("pipeline.jars", Path(jar).as_uri())
    flink.get_config().set("parallelism.default", "2")
    key = ", PRIMARY KEY (id) NOT ENFORCED" if form == "upsert-kafka" else ""
    flink.execute_sql(
        f"CREATE TABLE items ({_COLUMNS}{key}) WITH ({_WITH[form]}, 'topic' = '{topic}', "
        f"'properties.bootstrap.servers' = '{bootstrap}', 'properties.group.id' = 'flink-{topic}', "
        "'properties.isolation.level' = 'read_committed')"
    )
    rows: Counter[str] = Counter()
    with flink.execute_sql(_ROWS).collect() as changes:
        for change in changes:
            added = change.get_row_kind() in {RowKind.INSERT, RowKind.UPDATE_AFTER}
            rows[json.dumps(list(change))] += 1 if added else -1
    for row in rows.elements():
        sys.stdout.write(row + "\n")
    negative = sum(count < 0 for count in rows.values())
    return 1 if negative else 0


if __name__ == "__main__":
    sys.exit(main())
