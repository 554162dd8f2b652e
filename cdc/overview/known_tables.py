"""Lists the tables of a pipeline: captured ones with their schemas and snapshots, and selected ones left out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from cdc.errors import TopicMismatch, UsageError
from cdc.lsn import Lsn
from cdc.model.progress_record import SchemaColumn, SchemaRecord
from cdc.model.topic_names import data_topic, schema_topic
from cdc.overview.log_access import ANSWER_S, LogAccess
from cdc.progress.bounded_reader import BoundedReader
from cdc.progress.record_format import decode_schema
from cdc.progress.recorded_catalog import CatalogFollower, RecordedCatalog
from cdc.telemetry.capture_status import ddl_document

if TYPE_CHECKING:
    from cdc.clock import Clock
    from cdc.config.settings import Config
    from cdc.model.left_out import LeftOut

ShownState: TypeAlias = Literal["captured", "snapshot", "left_out", "gone"]
STATES: Final = ("all", "captured", "snapshot", "left_out", "gone")
_FRESH_S: Final = 3.0  # several requests of one page read Kafka once

_FOLLOWED_S: Final = 3600.0  # Kafka keeps the deletion of a key for a day: after a longer pause all is read again


@dataclass(slots=True)
class _Known:
    """What the topics say. `schemas`: table -> its schemas in the order of the log."""

    schemas: dict[str, dict[str, SchemaRecord]] = field(default_factory=dict)
    next_offset: int = 0
    catalog: RecordedCatalog = field(default_factory=lambda: RecordedCatalog(None, {}, {}))
    follower: CatalogFollower | None = None


class KnownTables:
    """Reads schemas and the recorded catalog; only what is new is read again. Thread-safe."""

    def __init__(self, config: Config, log: LogAccess, clock: Clock, left_out: Callable[[], Sequence[LeftOut]]) -> None:
        self._name = config.name
        self._access = log
        self._clock = clock
        self._left_out = left_out
        self._lock = threading.Lock()
        self._known = _Known()
        self._read_s = -_FRESH_S

    def page(
        self, snapshots: Sequence[Mapping[str, Any]], *, search: str, state: str, offset: int, limit: int
    ) -> dict[str, Any]:
        """Return the tables whose name contains `search`, in order of their names. Raises BrokerUnreachable."""
        if state not in STATES:
            raise UsageError(f"unknown state {state!r}", hint=f"expected {', '.join(STATES)}")
        known = self._look()
        by_table = {str(one["table"]): one for one in snapshots}
        left_out = {one.table: one for one in self._left_out()}
        names = sorted({*known.schemas, *_captured(known), *left_out})
        wanted = search.casefold()
        shown: list[tuple[str, ShownState]] = [
            (name, found)
            for name in names
            if wanted in name.casefold()
            for found in [_state(name, known, left_out, by_table.get(name))]
            if state in {"all", found}
        ]
        rows = [
            self._row(name, found, known, left_out.get(name), by_table.get(name))
            for name, found in shown[offset : offset + limit]
        ]
        return {"count": len(shown), "offset": offset, "tables": rows}

    def table(self, name: str, snapshots: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return one table: its columns, and what changed from one schema to the next. Raises UsageError."""
        known = self._look()
        left_out = {one.table: one for one in self._left_out()}.get(name)
        schemas = list(known.schemas.get(name, {}).values())
        if not schemas and name not in _captured(known) and left_out is None:
            raise UsageError(f"no table {name!r} is known", hint="write schema.table")
        snapshot = next((one for one in snapshots if one["table"] == name), None)
        newest = schemas[-1] if schemas else None
        row = self._row(
            name, _state(name, known, {name: left_out} if left_out else {}, snapshot), known, left_out, snapshot
        )
        return row | {
            "columns": [_column(one) for one in newest.columns] if newest else [],
            "schemas": list(_versions(schemas)),
            "findings": [one for one in self.findings() if one["table"] == name],
        }

    def findings(self) -> list[dict[str, str]]:
        """Return all open DDL findings."""
        return [ddl_document(one) for one in self._look().catalog.unsettled]

    def topics(self) -> dict[str, str]:
        """Return topic -> table, also for tables that are no longer captured."""
        known = self._look()
        found = {data_topic(self._name, *name.split(".", 1)): name for name in _captured(known)}
        return found | {record.topic: name for name, each in known.schemas.items() for record in each.values()}

    def schemas(self) -> Mapping[str, SchemaRecord]:
        """Return the newest schema of each table."""
        return {name: list(each.values())[-1] for name, each in self._look().schemas.items()}

    def _row(
        self,
        name: str,
        state: ShownState,
        known: _Known,
        left_out: LeftOut | None,
        snapshot: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        schemas = list(known.schemas.get(name, {}).values())
        newest = schemas[-1] if schemas else None
        topic = newest.topic if newest else data_topic(self._name, *name.split(".", 1)) if state != "left_out" else None
        return {
            "table": name,
            "topic": topic,
            "key": list(newest.key) if newest else None,
            "format": newest.format if newest else None,
            "state": state,
            "snapshot": dict(snapshot) if snapshot else None,
            "left_out": left_out.document() if left_out else None,
            "schemas": len(schemas),
            "schema_since": str(Lsn(newest.lsn)) if newest else None,
        }

    def _look(self) -> _Known:
        """Return what the topics have; empty before the first start of capture."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if now_s - self._read_s < _FRESH_S:
                return self._known
            if now_s - self._read_s > _FOLLOWED_S:
                self._known.follower = None
            with self._access.reader() as reader:
                bounded = BoundedReader(reader, ANSWER_S)
                try:
                    self._read_schemas(bounded)
                    self._known.follower = self._known.follower or CatalogFollower(self._name)
                    self._known.catalog = self._known.follower.read(bounded)
                except TopicMismatch:
                    self._known = _Known()
            self._read_s = self._clock.monotonic_s()
            return self._known

    def _read_schemas(self, reader: BoundedReader) -> None:
        topic, known = schema_topic(self._name), self._known
        low, high = reader.end_offsets([topic])[topic, 0]
        if known.next_offset > high:  # the topic was made again
            known.schemas.clear()
            known.next_offset = 0
        for batch in reader.read({(topic, 0): max(low, known.next_offset)}, {(topic, 0): high}):
            for record in batch:
                if record.value is not None:
                    schema = decode_schema(record.value, topic)
                    known.schemas.setdefault(schema.table, {}).setdefault(schema.schema_id, schema)
        known.next_offset = high


def _captured(known: _Known) -> set[str]:
    return {name for name, record in known.catalog.tables.items() if record.facts is not None}


def _state(name: str, known: _Known, left_out: Mapping[str, object], snapshot: Mapping[str, Any] | None) -> ShownState:
    if name in left_out:
        return "left_out"
    if name not in _captured(known) and known.catalog.scope is not None:
        return "gone"
    return "snapshot" if snapshot is not None and snapshot["state"] != "complete" else "captured"


def _column(column: SchemaColumn) -> dict[str, Any]:
    return {"name": column.name, "type": column.type, "key": column.key}


def _versions(schemas: Sequence[SchemaRecord]) -> Iterator[dict[str, Any]]:
    """Yield each schema with its difference to the one before, the newest first."""
    before: dict[str, str] = {}
    found = []
    for number, schema in enumerate(schemas):
        columns = {column.name: column.type for column in schema.columns}
        changed = [one for one in columns if one in before and columns[one] != before[one]]
        found.append(
            {
                "id": schema.schema_id,
                "since_lsn": str(Lsn(schema.lsn)),
                "columns": list(columns),
                "added": [name for name in columns if number and name not in before],
                "dropped": [name for name in before if name not in columns],
                "changed": [f"{one}: {before[one]} to {columns[one]}" for one in changed],
            }
        )
        before = columns
    yield from reversed(found)
