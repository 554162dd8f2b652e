"""The constant parts of Debezium's JSON envelope, prepared once per relation and once per transaction. Pure.

    {"before":…,"after":{…},"source":{version,connector,name,db,schema,table,schema_id,
      snapshot,ts_ms,ts_us,txId,epoch,commit_lsn,sequence,lsn,ordinal},"op":"c","ts_ms":…,"transaction":null}

Fields are Debezium's (https://debezium.io/documentation/reference/stable/connectors/postgresql.html) plus `epoch`,
`commit_lsn`, `ordinal` (the position) and `schema_id`. Their order is fixed: what is constant for a relation comes
first, then what is constant for a transaction, then what is the row's, so that a row costs one `%`.
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
"""Version of the envelope, in `source.version`. Not the version of the program: replaying must give the same bytes."""


ROW_TAIL: Final = b'%d\\"]","lsn":%d,"ordinal":%d}'
"""The row's own fields of `source`, behind those of its stamp: a `%` template of LSN, LSN and ordinal."""
_NO_PLACE: Final = b'"transaction":null}'


def stamp(begin: Begin, epoch: int) -> Stamp:
    """Prepare the fields of a transaction. `ts_ms` is the commit time: no clock of ours is read."""
    ts_ms = begin.commit_us // 1000
    source = (
        b'"snapshot":"false","ts_ms":%d,"ts_us":%d,"txId":%d,"epoch":%d,"commit_lsn":%d,"sequence":"[\\"%d\\",\\"'
        % (ts_ms, begin.commit_us, begin.xid, epoch, begin.commit_lsn, begin.commit_lsn)
    )
    tail = b'"ts_ms":%d,%b' % (ts_ms, _NO_PLACE)
    return Stamp(begin.commit_lsn, source, tail, begin.xid, epoch, begin.commit_us)


def snapshot_stamp(at: int, at_us: int, epoch: int) -> Stamp:
    """As `stamp`, of rows that were read from a table and stand at the boundary `at`, before what commits there."""
    ts_ms = at_us // 1000
    source = (
        b'"snapshot":"incremental","ts_ms":%d,"ts_us":%d,"txId":null,"epoch":%d,"commit_lsn":%d,"sequence":"[\\"%d\\",\\"'
        % (ts_ms, at_us, epoch, at, at)
    )
    return Stamp(at, source, b'"ts_ms":%d,%b' % (ts_ms, _NO_PLACE), None, epoch, at_us)


def placed(stamp: Stamp, place: EventOrder) -> Stamp:
    """The stamp of one row, with its place in the transaction and among the rows of its table there."""
    tail = b'%b"transaction":%b}' % (stamp.tail.removesuffix(_NO_PLACE), place_object(place))
    return replace(stamp, tail=tail, place=place)


def place_object(place: EventOrder) -> bytes:
    """A place as Debezium's `transaction` has it."""
    return b'{"id":"%b","total_order":%d,"data_collection_order":%d}' % (
        place.transaction.encode(),
        place.total_order,
        place.data_collection_order,
    )


def source_head(name: str, database: str, table: tuple[str, str], schema_id: str = "") -> bytes:
    """The fields of `source` that are constant for a table, (schema, name), with the opening brace and a last comma."""
    fields = {"version": VERSION, "connector": "postgresql", "name": name, "db": database}
    fields |= {"schema": table[0], "table": table[1]}
    return _json(fields | ({"schema_id": schema_id} if schema_id else {}))[:-1] + b","


def literal(template: bytes) -> bytes:
    """Text that stands for itself inside a `%` template."""
    return template.replace(b"%", b"%%")


def member(name: str) -> bytes:
    """A JSON object's member name with its colon."""
    return _json(name) + b":"


def object_format(names: Sequence[bytes]) -> bytes:
    """A `%` template of a JSON object with one `%b` per member."""
    return b"{%b}" % b",".join(literal(name) + b"%b" for name in names)
