"""Records what Debezium writes for values of every type, for `tests/unit/cdc/test_debezium_values.py`.

``make debezium-values`` creates one table per type, lets Debezium's PostgreSQL connector snapshot and stream the same
rows, and writes both values of each row to `tests/golden/debezium.json`, with the server's text of the value,
Debezium's version and the date. Values there are captured, never typed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import psycopg
from confluent_kafka import Consumer, TopicPartition

from cdc.encode.values import unknown_types
from cdc.local.local_server import ServerOptions
from cdc.local.stack import Stack
from cdc.model.type_facts import TypeFacts
from cdc.replication.catalog_queries import types
from cdc.replication.connect import SESSION
from tests.bench.connect import Connect, version
from tests.fixtures.capture.debezium_comparison import MISSING
from tests.fixtures.capture.debezium_types import PREPARE, TYPES

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "debezium.json"
OPTION_SETS: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {},
    "strings": {
        "decimal.handling.mode": "string",
        "time.precision.mode": "microseconds",
        "interval.handling.mode": "string",
        "binary.handling.mode": "hex",
        "hstore.handling.mode": "map",
    },
    "doubles": {
        "decimal.handling.mode": "double",
        "time.precision.mode": "connect",
        "binary.handling.mode": "base64",
    },
    "adaptive_time": {
        "time.precision.mode": "adaptive_time_microseconds",
        "binary.handling.mode": "base64-url-safe",
    },
    "isostring": {"time.precision.mode": "isostring"},
    "nanoseconds": {"time.precision.mode": "nanoseconds"},
}
_STILL_S: Final = 120.0
_STREAMED: Final = 1000  # ids of the rows that are streamed begin here


def main() -> int:
    """Record all values and write the file."""
    options = {"postgres": ServerOptions(), "kafka": ServerOptions(heap="512m")}
    with (
        Stack(f"golden-{os.getpid()}", ("postgres", "kafka"), wipe=True, options=options) as stack,
        tempfile.TemporaryDirectory() as folder,
    ):
        texts, facts, skipped = _tables(stack)
        found: dict[str, Any] = {}
        envelope: dict[str, Any] = {}
        with Connect(stack, Path(folder), "golden", exactly_once=False) as connect:
            for name in OPTION_SETS:
                sys.stderr.write(f"{name}: {len(texts)} types\n")
                found[name] = _capture(stack, connect, name, texts, envelope)
    document = {
        "debezium": version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "options": OPTION_SETS,
        "envelope": envelope,
        "skipped": skipped,
        "facts": facts,
        "types": [
            {
                "type": one["type"],
                "oid": one["oid"],
                "modifier": one["modifier"],
                "rows": [
                    {"text": text, **{name: values[number][row] for name, values in found.items()}}
                    for row, text in enumerate(one["texts"])
                ],
            }
            for number, one in enumerate(texts)
        ],
    }
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return 0


def _tables(stack: Stack) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """Create one table per type with one row per value. Returns the rows, facts of pg_type, and rejected values."""
    texts: list[dict[str, Any]] = []
    skipped: list[str] = []
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        for statement in PREPARE:
            try:
                sql.execute(statement.encode())
            except psycopg.Error as error:
                skipped.append(f"{statement}: {error.diag.message_primary}")
        for kind, values in TYPES.items():
            table = f"m{len(texts)}"
            try:
                sql.execute(f"create table {table} (id int primary key, v {kind})".encode())
                for number, value in enumerate(values):
                    sql.execute(f"insert into {table} values (%s, %s::text::{kind})".encode(), [number, value])
            except psycopg.Error as error:
                skipped.append(f"{kind}: {error.diag.message_primary}")
                sql.execute(f"drop table if exists {table}".encode())
                continue
            fact = sql.execute(
                "select atttypid::int8, atttypmod from pg_attribute where attrelid = %s::regclass and attname = 'v'",
                [table],
            ).fetchone()
            assert fact is not None
            texts.append({"type": kind, "oid": fact[0], "modifier": fact[1]})
        for statement in SESSION:
            sql.execute(statement.encode())
        for number, one in enumerate(texts):
            result = sql.execute(f"select v from public.m{number} order by id".encode()).pgresult
            assert result is not None  # its values are what the types' output functions print, as in the stream
            one["texts"] = [(result.get_value(row, 0) or b"").decode() for row in range(result.ntuples)]
        known: dict[int, TypeFacts] = {}
        wanted = unknown_types({one["oid"] for one in texts})
        while wanted:
            new = types(sql, sorted(wanted))
            known |= new
            wanted = unknown_types({oid for fact in new.values() for oid in (fact.base_oid, fact.element_oid) if oid})
            wanted -= known.keys()
    return texts, [asdict(fact) for _, fact in sorted(known.items())], skipped


def _capture(
    stack: Stack, connect: Connect, name: str, texts: list[dict[str, Any]], envelope: dict[str, Any]
) -> list[list[dict[str, Any]]]:
    """Return for each type and row the values of snapshot and stream, one value if they are equal."""
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as sql:
        tables = [f"m{number}" for number in range(len(texts))]
        for table in tables:
            sql.execute(f"delete from {table} where id >= {_STREAMED}".encode())
        sql.execute(f"create publication cdc_{name} for table {', '.join(tables)}".encode())
        sql.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
        connect.start(name, "public.m[0-9]+", slot=name, snapshot="initial", tuned=False, more=OPTION_SETS[name])
        counts = {table: len(one["texts"]) for table, one in zip(tables, texts, strict=True)}
        found = _read(stack, name, counts, 0, envelope)
        for table in tables:
            sql.execute(f"insert into {table} select id + {_STREAMED}, v from {table} order by id".encode())
        streamed = _read(stack, name, counts, _STREAMED, envelope)
        connect.stop(name)
    result = []
    for table, one in zip(tables, texts, strict=True):
        rows = []
        for row in range(len(one["texts"])):
            snapshot, stream = found[table].get(row, MISSING), streamed[table].get(row, MISSING)
            same = json.dumps(snapshot) == json.dumps(stream)
            rows.append({"value": stream} if same else {"snapshot": snapshot, "stream": stream})
        result.append(rows)
    return result


def _read(
    stack: Stack, name: str, counts: Mapping[str, int], first: int, envelope: dict[str, Any]
) -> dict[str, dict[int, Any]]:
    """Return for each table id - `first` -> value, once all rows from that id on have arrived."""
    consumer = Consumer(
        {"bootstrap.servers": stack.kafka.bootstrap, "group.id": f"golden-{name}", "enable.auto.commit": False}
    )
    deadline_s = time.monotonic() + _STILL_S
    while True:
        topics = consumer.list_topics(timeout=60).topics
        if all(f"{name}.public.{table}" in topics for table in counts):
            break
        if time.monotonic() > deadline_s:
            missing = [table for table in counts if f"{name}.public.{table}" not in topics]
            raise SystemExit(f"no topic of {missing}")
        time.sleep(1)
    consumer.assign(
        [
            TopicPartition(topic, partition, 0)
            for topic in (f"{name}.public.{table}" for table in counts)
            for partition in topics[topic].partitions
        ]
    )
    found: dict[str, dict[int, Any]] = {table: {} for table in counts}
    while any(len(rows) < counts[table] for table, rows in found.items()):
        if time.monotonic() > deadline_s:
            raise SystemExit(f"not all rows: { {t: len(r) for t, r in found.items() if len(r) < counts[t]} }")
        for message in consumer.consume(1000, 1.0):
            value, topic = message.value(), message.topic()
            if message.error() is not None or value is None or topic is None:
                continue
            event = json.loads(value)
            envelope[event["op"]] = event
            after = event["after"]
            if after is not None and first <= after["id"] < first + _STREAMED:
                found[topic.rpartition(".")[2]][after["id"] - first] = after.get("v", MISSING)
    consumer.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
