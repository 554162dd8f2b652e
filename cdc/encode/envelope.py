"""The constant parts of Debezium's JSON envelope, prepared once per relation and once per transaction. Pure.

    {"before":…,"after":{…},"source":{version,connector,name,db,schema,table,schema_id,
      snapshot,ts_ms,ts_us,txId,epoch,commit_lsn,sequence,lsn,ordinal},"op":"c","ts_ms":…,"transaction":null}

Fields are Debezium's (https://debezium.io/documentation/reference/stable/connectors/postgresql.html) plus `epoch`,
`commit_lsn`, `ordinal` (the position) and `schema_id`. Their order is fixed: what is constant for a relation comes
first, then what is constant for a transaction, then what is the row's, so that a row costs one `%`.
"""

from __future__ import annotations

import msgspec

from cdc.model.event import Stamp
from cdc.model.relation import Relation
from cdc.wire.pgoutput import Begin

_json = msgspec.json.encode

VERSION = "1"
"""Version of the envelope, in `source.version`. Not the version of the program: replaying must give the same bytes."""


def stamp(begin: Begin, epoch: int) -> Stamp:
    """Prepare the fields of a transaction. `ts_ms` is the commit time: no clock of ours is read."""
    ts_ms = begin.commit_us // 1000
    source = (
        b'"snapshot":"false","ts_ms":%d,"ts_us":%d,"txId":%d,"epoch":%d,"commit_lsn":%d,"sequence":"[\\"%d\\",\\"'
        % (ts_ms, begin.commit_us, begin.xid, epoch, begin.commit_lsn, begin.commit_lsn)
    )
    return Stamp(begin.commit_lsn, source, b'"ts_ms":%d,"transaction":null}' % ts_ms, begin.xid)


def source_head(name: str, database: str, relation: Relation, schema_id: str) -> bytes:
    """The fields of `source` that are constant for a relation, with the opening brace and a last comma."""
    fields = {
        "version": VERSION,
        "connector": "postgresql",
        "name": name,
        "db": database,
        "schema": relation.namespace,
        "table": relation.name,
        "schema_id": schema_id,
    }
    return _json(fields)[:-1] + b","


def literal(template: bytes) -> bytes:
    """Text that stands for itself inside a `%` template."""
    return template.replace(b"%", b"%%")


def member(name: str) -> bytes:
    """A JSON object's member name with its colon."""
    return _json(name) + b":"
