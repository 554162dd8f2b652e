"""Prepares the constant parts of Debezium's JSON envelope, per relation and per transaction. Pure.

    {"before":…,"after":{…},"source":{version,connector,name,db,schema,table,schema_id,
      snapshot,ts_ms,ts_us,txId,epoch,commit_lsn,sequence,lsn,ordinal},"op":"c","ts_ms":…,"transaction":null}

Fields are Debezium's (https://debezium.io/documentation/reference/stable/connectors/postgresql.html) plus `epoch`,
`commit_lsn`, `ordinal` (the position) and `schema_id`. `sequence` has the commit LSN and the row LSN of the same
transaction, because a previous commit would depend on where a restart began. The order of fields is fixed: constants of
the relation first, then those of the transaction, then the fields of the row, so that a row costs one `%`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from cdc.model.change_records import EventOrder, Stamp
from cdc.wire.pgoutput import Begin

_json = msgspec.json.encode

VERSION = "1"
"""Version of the envelope, in `source.version`. Not the program version: a replay must give the same bytes."""


ROW_TAIL: Final = b'%d\\"]","lsn":%d,"ordinal":%d}'
"""The row's own fields of `source`, after those of its stamp: a `%` template of LSN, LSN and ordinal."""
_NO_ORDER: Final = b'"transaction":null}'


def stamp(begin: Begin, epoch: int) -> Stamp:
    """Prepare the fields of a transaction. `ts_ms` is the commit time; the local clock is not used."""
    ts_ms = begin.commit_us // 1000
    source = (
        b'"snapshot":"false","ts_ms":%d,"ts_us":%d,"txId":%d,"epoch":%d,"commit_lsn":%d,"sequence":"[\\"%d\\",\\"'
        % (ts_ms, begin.commit_us, begin.xid, epoch, begin.commit_lsn, begin.commit_lsn)
    )
    tail = b'"ts_ms":%d,%b' % (ts_ms, _NO_ORDER)
    return Stamp(begin.commit_lsn, source, tail, begin.xid, epoch, begin.commit_us)


def snapshot_stamp(at: int, at_us: int, epoch: int) -> Stamp:
    """As `stamp`, for rows that were read from a table; their position is before what commits at LSN `at`."""
    ts_ms = at_us // 1000
    source = (
        b'"snapshot":"incremental","ts_ms":%d,"ts_us":%d,"txId":null,"epoch":%d,"commit_lsn":%d,"sequence":"[\\"%d\\",\\"'
        % (ts_ms, at_us, epoch, at, at)
    )
    return Stamp(at, source, b'"ts_ms":%d,%b' % (ts_ms, _NO_ORDER), None, epoch, at_us)


def with_order(stamp: Stamp, order: EventOrder) -> Stamp:
    """Return the stamp of one row, with its order in the transaction."""
    tail = b'%b"transaction":%b}' % (stamp.tail.removesuffix(_NO_ORDER), order_object(order))
    return replace(stamp, tail=tail, order=order)


def order_object(order: EventOrder) -> bytes:
    """Encode an order as Debezium's `transaction` block."""
    return b'{"id":"%b","total_order":%d,"data_collection_order":%d}' % (
        order.transaction.encode(),
        order.total_order,
        order.data_collection_order,
    )


def source_head(name: str, database: str, table: tuple[str, str], schema_id: str = "") -> bytes:
    """Encode the fields of `source` that are constant for a table, with the opening brace and a final comma.

    `table` is (schema, name).
    """
    fields = {"version": VERSION, "connector": "postgresql", "name": name, "db": database}
    fields |= {"schema": table[0], "table": table[1]}
    return _json(fields | ({"schema_id": schema_id} if schema_id else {}))[:-1] + b","


def literal(template: bytes) -> bytes:
    """Escape text for a `%` template."""
    return template.replace(b"%", b"%%")


def member(name: str) -> bytes:
    """Encode a member name of a JSON object, with its colon."""
    return _json(name) + b":"


def object_format(names: Sequence[bytes]) -> bytes:
    """Return a `%` template of a JSON object with one `%b` per member."""
    return b"{%b}" % b",".join(literal(name) + b"%b" for name in names)
