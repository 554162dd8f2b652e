"""Measures the search sink against OpenSearch's own client: documents per second, one connection each, alternately.

The references write the same documents with the same versions into indices with the same mapping: `helpers.bulk`, the
usual way, and a bare loop over `client.bulk` with prepared bodies, the minimum. The sink starts from Kafka records: it
decodes envelopes, folds keys, creates ids and actions, and checks each answer.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

from opensearchpy import OpenSearch, helpers

from cdc.local.local_server import ServerOptions
from cdc.local.stack import Stack
from cdc.model.log_record import LogRecord
from sinks.contract import Verdict
from sinks.runner.key_fold import by_key, change_of
from tests.fixtures.sinks.search_targets import TABLE, alias, column, opened, schema
from tests.fixtures.sinks.sink_logs import LogBook

_REQUEST: Final = 2_000
_ROUNDS: Final = 6
_COLUMNS: Final = (
    column("id", "int8", "integer", key=True),
    column("name"),
    column("price", "numeric", "decimal"),
    column("stock", "int4", "integer"),
    column("colour", "colour"),
    column("updated_at", "timestamptz", "timestamp_utc"),
    column("note"),
)


def measure_search(documents: int) -> dict[str, object]:
    """Return medians and the best of some rounds. Ratios use the best round, which other load disturbed least."""
    rows = [_row(key) for key in range(documents)]
    book = LogBook()
    for row in rows:
        book.put(row["id"], row)
    encoded = [json.dumps(row, separators=(",", ":")) for row in rows]
    options = {"opensearch": ServerOptions(heap="1g")}
    with Stack(f"bench-search-{os.getpid()}", ("opensearch",), wipe=True, options=options) as stack:
        url = stack.opensearch.url
        speeds: dict[str, list[float]] = {"ours": [], "helpers": [], "bare": []}
        for number in range(_ROUNDS + 1):
            ways: dict[str, Callable[[str], None]] = {
                "bare": lambda index: _bare(url, index, encoded),
                "helpers": lambda index: _helpers(url, index, rows),
            }
            order = ("ours", "bare", "helpers")
            for way in (*order[number % 3 :], *order[: number % 3]):
                target = opened(url, f"{way}{number}", topics=())
                target.open([TABLE])
                target.prepare(schema(*_COLUMNS))
                index = alias(f"{way}{number}")
                began_s = time.perf_counter()
                if way == "ours":
                    _ours(target, book.records)
                else:
                    ways[way](index)
                took_s = time.perf_counter() - began_s
                if number:  # the first round warms the JVM up
                    speeds[way].append(documents / took_s)
                target.close()
    return {
        "documents": documents,
        "documents_per_second": {way: round(median(found)) for way, found in speeds.items()},
        "best_documents_per_second": {way: round(max(found)) for way, found in speeds.items()},
        "ratio_to_bare_loop": round(max(speeds["ours"]) / max(speeds["bare"]), 2),
        "ratio_to_helpers": round(max(speeds["ours"]) / max(speeds["helpers"]), 2),
    }


def _row(key: int) -> dict[str, Any]:
    return {
        "id": key,
        "name": f"product number {key} of the catalogue",
        "price": f"{key % 1000}.{key % 100:02}",
        "stock": key % 500,
        "colour": ("red", "green", "blue")[key % 3],
        "updated_at": f"2026-11-22T10:{key % 60:02}:{key % 59:02}.123456+00:00",
        "note": "a note of ordinary length, some hundred characters, which nobody has read since it was written down",
    }


def _ours(target: Any, records: Sequence[LogRecord]) -> None:
    for first in range(0, len(records), _REQUEST):
        changes = [change_of(of_key) for of_key in by_key(records[first : first + _REQUEST]).values()]
        assert {outcome.verdict for outcome in target.apply(changes)} == {Verdict.DONE}


def _bare(url: str, index: str, encoded: Sequence[str]) -> None:
    client = OpenSearch(url, timeout=120, max_retries=0)
    for first in range(0, len(encoded), _REQUEST):
        lines = [
            f'{{"index":{{"_index":"{index}","_id":"{at}","version":{at + 1},"version_type":"external"}}}}\n{text}\n'
            for at, text in enumerate(encoded[first : first + _REQUEST], start=first)
        ]
        assert not client.bulk(body="".join(lines))["errors"]
    client.close()


def _helpers(url: str, index: str, rows: Sequence[dict[str, Any]]) -> None:
    client = OpenSearch(url, timeout=120, max_retries=0)
    actions = (
        {
            "_op_type": "index",
            "_index": index,
            "_id": str(row["id"]),
            "version": row["id"] + 1,
            "version_type": "external",
            "_source": row,
        }
        for row in rows
    )
    done, _ = helpers.bulk(client, actions, chunk_size=_REQUEST)
    assert done == len(rows)
    client.close()
