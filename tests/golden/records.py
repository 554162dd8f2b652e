"""Writes and reads one sample of every durable record, with the code of any release: JSON lines in, JSON lines out.

    python tests/golden/records.py write > tests/golden/0.2.0/written.jsonl
    python tests/golden/records.py read < tests/golden/0.1.0/written.jsonl

`tests.unit.cdc.test_golden_records` runs it with the code of the previous release, in a process of its own. So it
imports product code only, and skips what that release does not have.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from cdc.errors import TailraceError
from cdc.model import audit_record, outbox_record, progress_record, signal_record, sink_report, snapshot_record
from cdc.model import table_facts as facts
from cdc.model.log_record import LogRecord
from cdc.progress import record_format, recorded_catalog, restore
from sinks.deadletters import blocked_keys, dead_letter_record
from sinks.state import claim_records, offset_metadata, pause_records, read_topics
from sinks.warehouse.lake import cut_position, layout, location, manifest, plan_run
from sinks.warehouse.topics import view_positions
from sinks.warehouse.views import generations
from snapshot import signal_parsing

try:
    from cdc.control import action_record
    from cdc.model import stop_record
except ImportError:  # before 0.2.0
    NEW = False
else:
    NEW = True

NAME: Final = "shop"
TABLE: Final = "public.orders"
TOPIC: Final = f"{NAME}.{TABLE}"
HASH: Final = "00000000000000ff"
NOW_MS: Final = 1_795_000_000_000
PLACE: Final = (TOPIC, 1)
ROW_KEY: Final = b'{"id":1}'

Sample = tuple[bytes, bytes]  # key and value; headers are a third part of dead letters only

PROGRESS: Final = {
    "progress": (
        record_format.progress_key(NAME),
        progress_record.Progress(
            epoch=1, end_lsn=28_708_224, commit_lsn=28_708_176, verified_lsn=28_708_224, pending_visibility=(770,)
        ),
    ),
    "identity": (
        record_format.identity_key(NAME),
        progress_record.Identity(
            system_identifier="7480000000000000000",
            timeline=1,
            database="shop",
            database_oid=16384,
            slot="cdc_shop",
            publication="cdc_shop",
            publication_oid=16400,
            server_version=180_000,
            partitions={TOPIC: 2},
            topic_ids={TOPIC: "AAAAAAAAAAAAAAAAAAAAAQ"},
            tables={TABLE: (16385, 16401)},
        ),
    ),
    "snapshot": (
        record_format.snapshot_key(NAME, TABLE),
        snapshot_record.SnapshotRecord(
            table=TABLE,
            relation=16385,
            state="running",
            number=2,
            began_lsn=28_000_000,
            row_count=100,
            leaves={"16385": snapshot_record.LeafRecord(filenode=16386, done=((0, 10), (20, None)))},
            form="5e1f",
            byte_count=4096,
            asked=True,
            again=True,
            begun=True,
            owed=(snapshot_record.IncompleteKey(ROW_KEY, {"id": "1"}),),
            sweep=(7, 9),
        ),
    ),
    "signals": (
        record_format.signals_key(NAME),
        signal_record.SignalsRecord(
            topic_id="AAAAAAAAAAAAAAAAAAAAAg",
            next_offset=3,
            answers=(
                signal_record.SignalAnswer(offset=2, id="one", action="start", done=(TABLE,), refused={"a.b": "no"}),
            ),
        ),
    ),
    "catalog": (
        record_format.catalog_key(NAME),
        facts.CatalogScope(lsn=28_708_224, xid=771, all_tables=False, schemas=("sales",), selected=("public.*",)),
    ),
    "catalog-table": (
        record_format.table_key(NAME, TABLE),
        facts.TableRecord(
            facts=facts.TableFacts(
                16385,
                "public",
                "orders",
                16401,
                760,
                (facts.ColumnFacts(1, "id", 23, -1, 760, 0, missing=False, settable=True),),
                (facts.LeafFacts(16385, "public", "orders", 16386, born=False),),
            ),
            findings=(
                facts.DdlFinding(
                    kind="type_changed", table=TABLE, what="changed", hint="read it", epoch=1, since_lsn=1, lsn=2
                ),
            ),
        ),
    ),
    "accepted": (record_format.accepted_key(NAME, TABLE), facts.AcceptedFindings(epoch=1, lsn=28_708_224)),
    "outbox": (
        record_format.outbox_key(NAME),
        outbox_record.OutboxRecord(
            table="outbox.outbox", relation=16500, seen="770:770:", seen_to_lsn=28_708_224, event_count=4
        ),
    ),
    "audit": (record_format.audit_key(NAME), audit_record.AuditRecord(epoch=1, end_lsn=28_708_224, cuts_offset=12)),
}  # fmt: skip
CUT: Final = progress_record.Cut(
    epoch=1,
    end_lsn=28_708_224,
    commit_lsn=28_708_176,
    verified_lsn=28_708_224,
    full=True,
    tables={TABLE: "complete"},
    changed={f"{TOPIC}-1": (12, 10, HASH)},
)
SCHEMA: Final = progress_record.SchemaRecord(
    table=TABLE,
    topic=TOPIC,
    schema_id="ae920cb4",
    epoch=1,
    lsn=28_708_176,
    replica_identity="d",
    key=("id",),
    columns=(
        progress_record.SchemaColumn(
            name="id", type="int4", type_oid=23, type_modifier=-1, encoding="integer", key=True
        ),
        progress_record.SchemaColumn(
            name="state", type="state", type_oid=16600, type_modifier=-1, encoding="text", key=False, kind="enum"
        ),
    ),
    format="flat",
    left_out=("total",),
)
POSITION: Final = cut_position.CutPosition(
    1, 28_708_224, 28_708_176, 13, {PLACE: (12, 10)}, {TABLE: "complete"}, 0
)  # fmt: skip


def written() -> Iterator[tuple[str, bytes, bytes, list[tuple[str, bytes]]]]:
    """Yield name, key, value and headers of each sample, as this release writes them."""
    for name, (key, record) in PROGRESS.items():
        yield name, key, record_format.encode(record), []  # type: ignore[arg-type]  # one of the known records
    yield "cut", b"", record_format.encode(CUT), []
    schema_key = record_format.encode(progress_record.SchemaKey(TABLE, SCHEMA.schema_id))
    yield "schema", schema_key, record_format.encode(SCHEMA), []
    published = view_positions.Published(
        table="views/sums/g1", version=3, key=("k",), topic_id="AAAAAAAAAAAAAAAAAAAAAw", partition_count=2
    )
    view_cut = view_positions.ViewCut(
        epoch=1, end_lsn=28_708_224, tables={"views.sums": "complete"}, changed={}, published={"sums": published}, cut=4
    )
    yield "view-cut", b"", msgspec.json.encode(view_cut), []
    yield "signal", NAME.encode(), b'{"id":"one","command":"start","tables":["public.orders"],"where":"id > 1"}', []
    yield "mark", b"", offset_metadata.metadata("AAAAAAAAAAAAAAAAAAAAAQ", NOW_MS / 1000).encode(), []
    yield "pause", pause_records.PAUSE_KEY, pause_records.pause_value("p1", NOW_MS), []
    yield "paused", pause_records.paused_key("member"), pause_records.pause_value("p1"), []
    # The writers of these two are methods that need a topic.
    claim = b'{"what":"rebuild","who":"ann@host","since_ms":%d,"until_ms":%d}' % (NOW_MS, NOW_MS + 30_000)
    yield "claim", b'{"control":"claim","id":"00ff"}', claim, []
    yield "read", read_topics._key(PLACE), read_topics._value("AAAAAAAAAAAAAAAAAAAAAQ"), []
    report = sink_report.SinkReport(
        at_ms=NOW_MS, state="RUNNING", host="host", pid=7, turn_age_s=0.5, lag_records=3, lag_seconds=1.5,
        error={"class": "SinkUnreachable", "message": "no answer"},
    )  # fmt: skip
    yield "report", sink_report.worker_key("host:7"), sink_report.encode(report), []
    block = blocked_keys.Block(12, 15, 2, 0, NOW_MS, 1, "mapper_parsing_exception")
    yield "block", blocked_keys.blocked_key(PLACE, ROW_KEY), blocked_keys.encode_block(block), []
    retry = blocked_keys.encode_request(blocked_keys.KeyRequest("retry", "r1"))
    yield "retry", blocked_keys.request_key(PLACE, b"\xff"), retry, []
    refused = LogRecord(TOPIC, 1, 12, NOW_MS, ROW_KEY, b'{"id":1}', [("own", b"1")])
    headers = dead_letter_record.headers_of(refused, "refused", "too long", NOW_MS)
    yield "dead-letter", ROW_KEY, b'{"id":1}', [(name, value or b"") for name, value in headers]
    yield from _lake()
    if NEW:
        yield from _new()


def _lake() -> Iterator[tuple[str, bytes, bytes, list[tuple[str, bytes]]]]:
    table = manifest.TableState(version=4, schema_id="ae920cb4", rows=10, key=("id",), columns={"id": "int"})
    plan = manifest.PlanRecord(
        plan="affected", reason="cheapest", seconds=0.5, keys=2, rows=2, runs={"affected": (plan_run.Run(0.5, 3),)}
    )
    view = manifest.ViewState(
        version=2, generation=1, reason="", cut=4, sql_sha="00ff", text="00fe", newest=1, plan=plan
    )
    cut = manifest.Manifest(
        cut=4,
        name=NAME,
        position=POSITION,
        tables={"mirror/public.orders": table},
        views={"sums": view},
        unbuilt={"bad": manifest.Unbuilt(reason="no such column", text="00fd")},
        committed_at_us=NOW_MS * 1000,
    )
    yield "manifest", layout.CURRENT_FILE.encode(), manifest.encode(cut), []
    pending = manifest.Pending(
        cut=1,
        start_cut=0,
        position=POSITION,
        plans={"sums": "affected"},
        serve={"sums": 2},
        texts={"sums": "00fe"},
        pieces=({TABLE: (0, 12)},),
        attempts=1,
        failures=1,
        suspect="sums",
        left={"bad": "Spark failed"},
    )
    yield "pending", layout.PENDING_FILE.encode(), manifest.encode(pending), []
    yield "swap", layout.swap_request_file("sums").encode(), msgspec.json.encode(generations.SwapRequest("sums", 2)), []


def _new() -> Iterator[tuple[str, bytes, bytes, list[tuple[str, bytes]]]]:
    """Yield samples of what 0.2.0 added: formats, and fields that earlier releases must be able to ignore."""
    stop = stop_record.StopRecord(at_ms=NOW_MS, state="GAP", error="Gap", message="the slot lost WAL", hint="repair")
    yield "stop", stop_record.stop_key(NAME), stop_record.encode(stop), []
    action = action_record.ActionRecord(
        at="2026-11-28T15:00:00Z",
        who="ann",
        origin="host:7",
        via="cli",
        action="sink pause",
        arguments={"sink": "cache"},
        result="failed",
        error=action_record.ActionError("SinkUnfit", "not now"),
    )
    yield "action", NAME.encode(), action_record.encode(action), []
    report = sink_report.SinkReport(at_ms=NOW_MS, state="RUNNING", records=7, behind_bytes=100, cut=4)
    yield "report-0.2.0", sink_report.worker_key("host:8"), sink_report.encode(report), []


class _Topic:
    """Implements the part of `cdc.progress.restore.TopicReader` that reads the newest records."""

    def __init__(self, records: Mapping[bytes, bytes]) -> None:
        self._records = records

    def last_records(self, topic: str, *, keys: Any = None) -> dict[bytes, tuple[int, bytes]]:
        """Return the records with these keys."""
        del topic
        found = {key: value for key, value in self._records.items() if keys is None or key in keys}
        return {key: (offset, value) for offset, (key, value) in enumerate(found.items())}


def read_progress(records: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Read a whole progress topic as a start does, and return what it found."""
    topic: Any = _Topic(records)
    found = restore.recorded_position(topic, NAME)
    catalog = recorded_catalog.recorded_catalog(topic, NAME)
    return {
        "position": str(found.position),
        "identity": found.identity,
        "snapshots": restore.recorded_snapshots(topic, NAME),
        "signals": restore.recorded_signals(topic, NAME),
        "outbox": restore.recorded_outbox(topic, NAME),
        "tables": sorted(catalog.tables),
        "accepted": catalog.accepted,
    }


def _stored(key: bytes, value: bytes, read: Callable[[manifest.ManifestStore], object]) -> object:
    with tempfile.TemporaryDirectory() as folder:
        cuts = Path(folder, layout.CUTS_FOLDER)
        cuts.mkdir()
        (cuts / key.decode()).write_bytes(value)
        found = read(manifest.ManifestStore(Path(folder)))
    return None if found is None else json.loads(manifest.encode(found))  # type: ignore[arg-type]  # one of two records


def _swap(key: bytes, value: bytes) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as folder:
        cuts = Path(folder, layout.CUTS_FOLDER)
        cuts.mkdir()
        (cuts / key.decode()).write_bytes(value)
        return generations.TextStore(location.Location.of(Path(folder), None)).requests()


class _Entries:
    """Implements `sinks.state.state_topic.StateEntries` over one record."""

    def __init__(self, key: bytes, value: bytes) -> None:
        self._record = {key: value}

    def load(self) -> dict[bytes, bytes]:
        """Return the record."""
        return self._record


def read(name: str, key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> Any:
    """Return what this release reads, as a value that JSON can hold. Raises what its reader raises."""
    if name in PROGRESS:
        return record_format.decode(value, type(PROGRESS[name][1]), f"{NAME}.__progress")  # type: ignore[type-var]
    if name.startswith("report"):
        return sink_report.decode(value)
    entries: Any = _Entries(key, value)
    record = LogRecord(f"{NAME}.__dlq.find", 0, 3, NOW_MS, key, value, list(headers))
    readers: dict[str, Callable[[], Any]] = {
        "cut": lambda: record_format.decode(value, progress_record.Cut, f"{NAME}.__cuts"),
        "schema": lambda: record_format.decode_schema(value, f"{NAME}.__schema"),
        "view-cut": lambda: view_positions.decoded(value, f"{NAME}.__cuts.lake"),
        "signal": lambda: repr(signal_parsing.parse(NAME.encode(), value, NAME)),
        "mark": lambda: offset_metadata.mark_of(value.decode()),
        "pause": lambda: [pause_records.pause_of(value), pause_records.until_ms(value)],
        "paused": lambda: sorted(pause_records.paused_members([(key, value)], pause_records.pause_of(value) or "")),
        "claim": lambda: claim_records.claims_of([(key, value)], NOW_MS - 1e12)[key],
        "read": lambda: [[*place, topic] for place, topic in read_topics.ReadPartitions(entries)._known.items()],
        "block": lambda: [blocked_keys.parse_key(key), blocked_keys.parse_block(value, "state")],
        "retry": lambda: [blocked_keys.parse_key(key), blocked_keys.parse_request(value)],
        "dead-letter": lambda: dead_letter_record.parse_dead_letter(record),
        "manifest": lambda: _stored(key, value, manifest.ManifestStore.current),
        "pending": lambda: _stored(key, value, manifest.ManifestStore.pending),
        "swap": lambda: _swap(key, value),
    }
    if NEW:
        readers["stop"] = lambda: stop_record.decode(value)
        readers["action"] = lambda: action_record.decode(value)
    return readers[name]() if name in readers else None


def _line(name: str, key: bytes, value: bytes, headers: list[tuple[str, bytes]]) -> dict[str, Any]:
    line: dict[str, Any] = {"name": name, "key": key.decode(), "value": value.decode()}
    return {**line, "headers": [[one, text.decode()] for one, text in headers]} if headers else line


def _plain(value: object) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, int):
        return int(value)
    return str(value)


def main(arguments: list[str]) -> None:
    """See the first lines of this file."""
    if arguments == ["write"]:
        for sample in written():
            sys.stdout.write(json.dumps(_line(*sample), ensure_ascii=False) + "\n")
        return
    progress: dict[bytes, bytes] = {}
    for line in sys.stdin:
        found = json.loads(line)
        name, key, value = found["name"], found["key"].encode(), found["value"].encode()
        if name in PROGRESS or name == "stop":
            progress[key] = value
        headers = [(one, text.encode()) for one, text in found.get("headers", [])]
        try:
            answer = msgspec.to_builtins(read(name, key, value, headers), enc_hook=_plain, str_keys=True)
            sys.stdout.write(json.dumps({"name": name, "key": found["key"], "read": answer}) + "\n")
        except TailraceError as error:
            sys.stdout.write(json.dumps({"name": name, "key": found["key"], "error": str(error)}) + "\n")
    if NAME.encode() in progress:
        whole = msgspec.to_builtins(read_progress(progress), enc_hook=_plain, str_keys=True)
        sys.stdout.write(json.dumps({"name": "__progress", "key": "", "read": whole}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
