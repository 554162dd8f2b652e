"""Documents as the server of the page answers them: a shop with a search index, a cache and a lake."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any, Final

Document = dict[str, Any]

HOSTILE: Final = '<img src=x onerror="window.ran.push(1)"><script>window.ran.push(2)</script>'
"""A name or value that would run as a script if the page parsed it as markup."""

_HISTORY_VALUES: Final = 720
_SLOWED: Final = "the load guard, at 25 % of full speed: a commit takes 812 ms"


def at(seconds_ago: float = 0.0) -> str:
    """A time in the documents' form."""
    return (
        (datetime.now(UTC) - timedelta(seconds=seconds_ago)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def node(name: str, kind: str, title: str, **changed: Any) -> Document:
    """A node of the picture that is healthy unless changed."""
    healthy: Document = {"state": "RUNNING", "level": "ok", "facts": [], "says": "", "detail": "", "error": None}
    return {"id": name, "kind": kind, "title": title, **healthy, **changed}


def edge(source: str, target: str, rate: float | None, unit: str | None, **changed: Any) -> Document:
    """An edge of the picture without lag unless changed."""
    still: Document = {"level": "ok", "lag": 0, "lag_unit": "records", "lag_seconds": 0.0}
    return {"from": source, "to": target, "rate": rate, "rate_unit": unit, **still, **changed}


def _server() -> Document:
    return {"name": "shop", "version": "0.1.0", "at": at()}


def picture() -> Document:
    """A pipeline in which everything runs."""
    return _server() | {
        "with_sinks": True,
        "state": "RUNNING",
        "level": "ok",
        "nodes": [
            node(
                "source",
                "source",
                "PostgreSQL",
                detail="db.example.com:5432/shop",
                facts=[["WAL written", "1.2 MB/s"], ["checked", "0.4 s ago"]],
            ),
            node(
                "slot",
                "slot",
                "Slot cdc_shop",
                state="ACTIVE",
                detail="pgoutput, publication cdc_shop",
                facts=[["WAL kept", "18 MB"], ["limit", "64 GB"]],
            ),
            node(
                "log",
                "log",
                "Kafka",
                detail="kafka.example.com:9092",
                facts=[["last commit", "0.1 s ago"], ["batch", "812 rows"]],
            ),
            node(
                "sink:search",
                "search",
                "search",
                detail="OpenSearch https://search.example.com:9200",
                facts=[["workers", "2"], ["dead letters", "0"]],
            ),
            node(
                "sink:cache",
                "cache",
                "cache",
                state="CATCHING_UP",
                level="busy",
                detail="Valkey cache.example.com:6379",
                facts=[["workers", "1"]],
            ),
            node(
                "sink:lake",
                "lake",
                "lake",
                detail="s3://shop-lake",
                facts=[["newest cut", "120"], ["published", "4 s ago"]],
            ),
            node("views:lake", "views", "12 views", state="CURRENT", detail="of lake"),
        ],
        "edges": [
            edge("source", "slot", 1_203_450.0, "B/s", lag=1234, lag_unit="B", lag_seconds=None),
            edge("slot", "log", 812.4, "rows/s", lag=0, lag_unit="B", lag_seconds=0.1),
            edge("log", "sink:search", 800.1, "records/s", lag=12, lag_seconds=0.4),
            edge("log", "sink:cache", 2500.0, "records/s", level="busy", lag=48_210, lag_seconds=31.0),
            edge("log", "sink:lake", 640.0, "records/s", lag=2_400_000, lag_unit="B", lag_seconds=4.0),
            edge("sink:lake", "views:lake", None, None, lag=None, lag_unit=None, lag_seconds=None),
        ],
        "snapshots": [snapshot("public.orders"), snapshot("public.clicks", waits_for=[_SLOWED])],
        "snapshots_count": 3,
        "snapshots_open": 1,
        "attention": [],
        "counts": {"ddl": 0, "left_out": 0, "blocked_keys": 0},
    }


def broken_picture() -> Document:
    """Kafka is down: the log is bad, capture waits, and the list of what needs attention says so."""
    found = picture()
    by_id = {one["id"]: one for one in found["nodes"]}
    by_id["log"] |= {
        "state": "WAITING",
        "level": "bad",
        "says": "Kafka at kafka.example.com:9092 does not answer for 12 s.",
        "error": {
            "error": "BrokerUnreachable",
            "message": "kafka.example.com:9092 does not answer",
            "hint": "check that the brokers run and that this machine reaches them",
            "command": "cdc doctor",
        },
    }
    by_id["slot"] |= {"state": "INACTIVE", "level": "warn", "says": "WAL is kept for the slot: 18 MB of 64 GB."}
    for one in found["edges"]:
        if "log" in (one["from"], one["to"]):
            one |= {"level": "bad", "rate": 0.0}
    return found | {
        "state": "WAITING",
        "level": "bad",
        "attention": [
            {
                "level": "bad",
                "what": "broker",
                "says": "Kafka does not answer since 12 s; capture waits.",
                "hint": "capture continues when it answers",
                "command": "cdc doctor",
                "page": "alarms",
                "runbook": "docs/howto/states.md",
            },
            {
                "level": "warn",
                "what": "slot",
                "says": "The slot keeps 18 MB of WAL.",
                "hint": "",
                "command": "",
                "page": "alarms",
                "runbook": "docs/howto/wal-pressure.md",
            },
        ],
        "counts": {"ddl": 2, "left_out": 1, "blocked_keys": 3},
    }


def snapshot(table: str, **changed: Any) -> Document:
    """A snapshot in progress unless changed."""
    reading: Document = {
        "number": 1,
        "state": "reading",
        "again": False,
        "rows": 1_204_000,
        "bytes": 310_000_000,
        "blocks_done": 4200,
        "blocks": 10_000,
        "keys_left": 0,
        "rows_per_second": 21_000.0,
        "eta_seconds": 190.0,
        "chunks_reading": 4,
        "chunks_waiting": 1,
        "waits_for": [],
    }
    return {"table": table, **reading, **changed}


def history() -> Document:
    """An hour of charts; a restart left a gap."""

    def wave(middle: float, period: int, *, gap: bool = False) -> list[float | None]:
        found: list[float | None] = [
            round(middle * (1 + 0.5 * math.sin(n / period) + 0.2 * math.sin(n / 7)), 2) for n in range(_HISTORY_VALUES)
        ]
        if gap:
            found[300:330] = [None] * 30
        return found

    series = {
        "rows_per_second": wave(600, 60, gap=True),
        "lag_seconds": wave(0.6, 40, gap=True),
        "retained_bytes": wave(18e6, 90),
        "wal_bytes_per_second": wave(1.2e6, 60),
        "sink:search:lag_seconds": wave(0.5, 50),
        "sink:cache:lag_seconds": wave(9, 80),
        "sink:search:lag_records": wave(300, 50),
        "sink:cache:lag_records": wave(9000, 80),
        "sink:search:records_per_second": wave(580, 60),
        "sink:cache:records_per_second": wave(900, 60),
        "sink:lake:behind_bytes": wave(2.4e6, 30),
    }
    return {"every_s": 5, "end": at(), "series": series}


def table(number: int) -> Document:
    """One of many tables."""
    name = f"public.table_{number:05d}"
    return {
        "table": name,
        "topic": f"shop.{name}",
        "key": ["id"],
        "format": "json",
        "state": "captured",
        "snapshot": None,
        "left_out": None,
        "schemas": 1,
        "schema_since": "0/1A2B",
    }


def tables() -> list[Document]:
    """A few tables in different states."""
    left_out: Document = {
        "reason": "not in the publication",
        "problem": "table public.audit is not in publication cdc_shop",
        "statement": "alter publication cdc_shop add table public.audit",
        "by": "postgres",
    }
    orders = {"table": "public.orders", "topic": "shop.public.orders"}
    audit: Document = {
        "table": "public.audit",
        "topic": None,
        "key": [],
        "format": None,
        "state": "left_out",
        "schemas": None,
    }
    ready = snapshot("public.items", state="complete", blocks=0, blocks_done=0, eta_seconds=None)
    return [
        table(0) | audit | {"left_out": left_out},
        table(0) | {"table": "public.items", "topic": "shop.public.items", "snapshot": ready},
        table(0) | orders | {"state": "snapshot", "snapshot": snapshot("public.orders"), "schemas": 3},
        table(1) | {"key": []},
        table(2) | {"key": ["tenant", "id"], "format": "avro"},
    ]


def page_of(rows: list[Document], name: str, query: dict[str, str]) -> Document:
    """What the server answers for one page of a searched list."""
    search, state = query.get("search", ""), query.get("state", "")
    found = [one for one in rows if search in str(one) and state in ("", "all", one.get("state"))]
    offset, limit = int(query.get("offset", "0")), int(query.get("limit", "100"))
    return {"count": len(found), "offset": offset, name: found[offset : offset + limit]}


def table_details() -> Document:
    """A table with three schema versions."""
    columns = [
        ("id", "bigint", True),
        ("customer", "text", False),
        ("amount", "numeric(12,2)", False),
        ("note", "text", False),
    ]
    first = {
        "id": "a1",
        "since_lsn": "0/1A2B",
        "columns": ["id", "customer", "amount"],
        "added": [],
        "dropped": [],
        "changed": [],
    }
    second = {"id": "b2", "since_lsn": "0/2C00", "columns": ["id", "customer", "amount", "note"], "added": ["note"]}
    return {
        "table": "public.orders",
        "topic": "shop.public.orders",
        "columns": [{"name": name, "type": kind, "key": key} for name, kind, key in columns],
        "schemas": [first | second | {"dropped": [], "changed": ["amount"]}, first],
        "findings": findings()["findings"][:1],
        "snapshot": snapshot("public.orders"),
    }


def topics() -> list[Document]:
    """Topics of every kind."""
    plain = {"partitions": 4, "records": 1_234_567, "cleanup_policy": "compact", "offline": 0, "table": None}
    return [
        {"topic": "shop.public.orders", "what": "table", **plain, "table": "public.orders"},
        {"topic": "shop.public.items", "what": "table", **plain, "table": "public.items", "offline": 1},
        {"topic": "shop.views.sales_by_day", "what": "view", **plain, "records": 365},
        {"topic": "shop.orders", "what": "outbox", **plain, "cleanup_policy": "delete"},
        {"topic": "shop.__progress", "what": "own", **plain, "partitions": 1},
    ]


def sinks() -> Document:
    """A search index that waits for its store, a paused cache, a lake."""
    plain: Document = {"state": "RUNNING", "level": "ok", "reason": "", "error": None, "workers": 2}
    plain |= {"members": 2, "lag_records": 12, "lag_seconds": 0.4, "lsn": "0/1F", "heartbeat_age_seconds": 1.2}
    plain |= {"restarts": 0, "busy": "", "blocked_keys": 0, "behind_bytes": None, "cut": None, "views_behind": {}}
    error = {
        "error": "StoreUnreachable",
        "message": "https://search.example.com:9200 does not answer",
        "hint": "check that OpenSearch is running and healthy",
        "command": "curl https://search.example.com:9200/_cluster/health",
    }
    search = {"name": "search", "kind": "search", "detail": "OpenSearch https://search.example.com:9200"}
    waiting = {"state": "WAITING", "level": "bad", "reason": "store", "error": error, "lag_records": 48_210}
    cache = {"name": "cache", "kind": "cache", "detail": "Valkey cache.example.com:6379", "workers": 1}
    lake = {
        "name": "lake",
        "kind": "lake",
        "detail": "s3://shop-lake",
        "lag_records": None,
        "cut": 120,
        "behind_bytes": 2_400_000,
    }
    behind = {"views_behind": {"sales_by_day": "division by zero in the view"}}
    return {
        "sinks": [
            plain | search | waiting | {"restarts": 3},
            plain | cache | {"state": "PAUSED", "level": "off"},
            plain | lake | behind,
        ]
    }


def lakes() -> Document:
    """A lake with two views, one of them behind."""
    costs = [
        {
            "cut": 90 + n,
            "at": at(300 - 10 * n),
            "plan": "recompute" if n % 9 == 4 else "affected",
            "seconds": 2.4 if n % 9 == 4 else 0.2 + 0.02 * (n % 5),
            "rows": 12 + n,
        }
        for n in range(30)
    ]
    view = {
        "name": "sales_by_day",
        "cut": 120,
        "lsn": "0/1F",
        "rows": 365,
        "reason": None,
        "plan": "affected",
        "seconds": 0.4,
    }
    view |= {"plan_reason": "12 of 365 keys are affected", "costs": costs}
    behind = {"name": "margins", "cut": 97, "reason": "division by zero", "plan": "recompute", "costs": costs[:3]}
    cuts = [{"cut": 120 - n, "lsn": f"0/{0x1F000 - n:X}", "at": at(4 + 10 * n)} for n in range(30)]
    cuts = [cut | {"views": 2, "computed": 1, "slowest_seconds": 0.4} for cut in cuts]
    lake = {
        "name": "lake",
        "where": "s3://shop-lake",
        "cut": 120,
        "lsn": "0/1F000",
        "published_at": at(4),
        "error": None,
    }
    return {"lakes": [lake | {"cuts": cuts, "views": [view, view | behind]}]}


def lineage() -> Document:
    """The columns of sales_by_day."""

    def column(name: str, expression: str, *sources: tuple[str, str]) -> Document:
        return {"column": name, "expression": expression, "from": [{"table": t, "column": c} for t, c in sources]}

    orders = "public.orders"
    return {
        "view": "sales_by_day",
        "inputs": [orders, "public.items", "margins"],
        "error": None,
        "columns": [
            column("day", "date_trunc('day', o.created_at)", (orders, "created_at")),
            column("total", "sum(o.amount)", (orders, "amount")),
            column("margin", "sum(o.amount - i.cost)", (orders, "amount"), ("public.items", "cost")),
            column("orders", "count(*)"),
        ],
    }


def dead_letters(*, keys: bool) -> Document:
    """A group of refused records; its keys for those that have the token."""
    group = {
        "sink": "search",
        "table": "public.orders",
        "error": "MappingConflict",
        "keys": 2,
        "records": 5,
        "since": at(3600),
    }
    one = {
        "sink": "search",
        "table": "public.orders",
        "records": 4,
        "tries": 3,
        "since": at(3600),
        "error": "MappingConflict",
    }
    one |= {"key": {"id": 7}, "reason": "field amount is a keyword", "requested": ""}
    return {
        "groups": [group],
        "keys": [one, one | {"key": {"id": 8}, "requested": "retry"}] if keys else None,
        "unread": {},
    }


def event(offset: int, op: str = "u", **changed: Any) -> Document:
    """An event with values."""
    before = {"id": offset, "customer": "Ada", "amount": "10.50", "note": None}
    found: Document = {"at": at(), "lsn": f"0/{0x1F00 + offset:X}", "op": op, "table": "public.orders"}
    found |= {
        "topic": "shop.public.orders",
        "partition": 0,
        "offset": offset,
        "txid": 900 + offset,
        "key": {"id": offset},
    }
    found |= {"before": before if op in "ud" else None, "after": None if op == "d" else before | {"amount": "12.00"}}
    return found | changed


def events(cursor: str, *, values: bool) -> Document:
    """Five events first, then one more for each request."""
    first = int(cursor or "0")
    found = [event(n, "cuudr"[n % 5]) for n in (range(5) if not cursor else range(first, first + 1))]
    if not values:
        found = [one | {"key": None, "before": None, "after": None} for one in found]
    return {"cursor": str(first + 1 if cursor else 5), "events": found, "values": values, "hint": ""}


def findings() -> Document:
    """Two open DDL findings."""
    one = {"table": "public.orders", "kind": "type_changed", "what": "column amount changed from integer to numeric"}
    one |= {
        "hint": "check that consumers accept decimals",
        "command": "cdc ddl accept public.orders",
        "since_lsn": "0/2C00",
    }
    other = one | {"table": "public.items", "kind": "column_dropped", "what": "column color was dropped"}
    return {"findings": [one | {"lsn": "0/2C10"}, other | {"lsn": "0/2D00"}]}


def alarms() -> Document:
    """One alarm of each level."""
    one = {"level": "bad", "what": "slot", "page": "", "says": "The slot loses WAL in 12 min at this rate."}
    one |= {"hint": "free space for WAL, or raise max_slot_wal_keep_size", "command": "cdc status"}
    one |= {"runbook": "docs/howto/alerts.md"}
    return {"alarms": [one, one | {"level": "warn", "what": "sink cache", "says": "cache is WAITING: its store"}]}


def why() -> Document:
    """A diagnosis with one cause."""
    cause = {
        "code": "broker-unreachable",
        "part": "Kafka",
        "level": "stopped",
        "needs_operator": False,
        "says": "Kafka does not answer",
        "evidence": ["connect to :9092: refused"],
    }
    cause |= {"hint": "start the broker", "command": "cdc doctor", "page": "docs/howto/states.md"}
    return {
        "healthy": False,
        "causes": [cause],
        "checked": ["source", "log"],
        "unread": {"sinks": "Kafka does not answer"},
    }


def settings() -> Document:
    """A configuration with a masked password."""
    rows = [
        ("name", "shop", "file"),
        ("source.dsn", "postgresql://cdc:***@db.example.com:5432/shop", "file"),
        ("kafka.bootstrap", "kafka.example.com:9092", "environment"),
        ("http.token", "***", "environment"),
        ("http.listen", "127.0.0.1:8087", "default"),
    ]
    return {
        "file": "/etc/tailrace/cdc.toml",
        "pending": {"reload": [], "restart": []},
        "settings": [{"key": key, "value": value, "origin": origin} for key, value, origin in rows],
    }


def actions() -> Document:
    """Two recorded actions."""
    one: Document = {"at": at(60), "who": "token", "from": "127.0.0.1:5000", "via": "http", "action": "sink.pause"}
    one |= {"arguments": {"sink": "cache"}, "result": "done", "error": None}
    error = {"class": "UsageError", "message": "unknown sink pond"}
    return {"actions": [one, one | {"result": "refused", "error": error}], "unreadable": 0}
