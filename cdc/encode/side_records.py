"""Encodes the records of Debezium's other topics: transactions, TRUNCATE, logical messages. Pure.

https://debezium.io/documentation/reference/stable/connectors/postgresql.html (transaction metadata, message events)
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec

from cdc.encode.envelope import ROW_TAIL, source_head
from cdc.model.change_records import Record, Stamp
from cdc.wire.pgoutput import LogicalMessage

_json = msgspec.json.encode


class SideRecords:
    """Encodes the records of one pipeline."""

    def __init__(self, name: str, database: str) -> None:
        self._name = name
        self._database = database

    def begin(self, transaction: str, ts_ms: int) -> Record:
        """Encode the begin of a transaction with events."""
        return self._status(transaction, "BEGIN", ts_ms, None, None)

    def end(self, transaction: str, ts_ms: int, counts: Mapping[str, int]) -> Record:
        """Encode the end of a transaction, with the number of events of each ``schema.table``."""
        collections = [{"data_collection": table, "event_count": count} for table, count in sorted(counts.items())]
        return self._status(transaction, "END", ts_ms, sum(counts.values()), collections)

    def truncate(self, transaction: str, table: tuple[str, str], stamp: Stamp, lsn: int, ordinal: int) -> Record:
        """Encode a TRUNCATE of (schema, table). Debezium's transaction topic has it; deletes are written anyway."""
        source = self._source(*table, stamp, lsn, ordinal)
        return _json({"id": transaction}), b'{"before":null,"after":null,%b,"op":"t",%b' % (source, stamp.tail), None

    def message(self, message: LogicalMessage, stamp: Stamp, lsn: int, ordinal: int) -> Record:
        """Encode a message of pg_logical_emit_message, with its bytes in base64."""
        content = base64.b64encode(message.content)
        value = b'{"op":"m",%b,"message":{"prefix":%b,"content":"%b"},%b' % (
            self._source("", "", stamp, lsn, ordinal),
            _json(message.prefix),
            content,
            stamp.tail,
        )
        return _json({"prefix": message.prefix}), value, None

    def _status(self, transaction: str, status: str, ts_ms: int, count: int | None, collections: object) -> Record:
        value = {"status": status, "id": transaction, "ts_ms": ts_ms, "event_count": count}
        return _json({"id": transaction}), _json({**value, "data_collections": collections}), None

    def _source(self, namespace: str, table: str, stamp: Stamp, lsn: int, ordinal: int) -> bytes:
        head = source_head(self._name, self._database, (namespace, table))
        return b'"source":%b%b%b' % (head, stamp.source, ROW_TAIL % (lsn, lsn, ordinal))
