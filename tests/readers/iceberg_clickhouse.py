"""ClickHouse as a reader of Iceberg: ``iceberg_clickhouse.py FILE...``, files of cuts; prints a JSON line for each.

Run by the Python of the readers' environment; knows nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import chdb


def main() -> int:
    cuts = [json.loads(Path(name).read_bytes()) for name in sys.argv[1:]]
    os.chdir("/")  # it reads only files below its folder
    for cut in cuts:
        found = {name: _rows(table["location"], table["snapshot"]) for name, table in cut["tables"].items()}
        sys.stdout.write(json.dumps(found) + "\n")
    return 0


def _rows(location: str, snapshot: int) -> list[object]:
    query = f"select * from icebergLocal('{location}') settings iceberg_snapshot_id = {snapshot}"
    lines = chdb.query(query, "JSONEachRow").bytes().decode().splitlines()
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    sys.exit(main())
