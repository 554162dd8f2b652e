"""Encodes and decodes the records of ``<name>.__progress`` and ``<name>.__cuts``: keys, bytes and versions. Pure.

Keys of ``<name>.__progress``, which is compacted:

- ``<name>``: Progress, in every Kafka transaction.
- ``<name>/identity``: Identity, when it changes. It is a record of its own because it grows with the number of tables
  (500 KB for 2,000), and Progress must stay small.
- ``<name>/snapshot/<table>``: SnapshotRecord.
- ``<name>/signals``: SignalsRecord.
- ``<name>/sentinel``: a nonce, by which a starting capture knows that it has read the newest state.
- ``<name>/catalog``: CatalogScope, and ``<name>/catalog/<table>``: TableRecord, when they change. One record per table:
  for 2,000 tables a single one would be 1 MB with each DDL.
- ``<name>/outbox``: OutboxRecord, if there is an outbox.
- ``<name>/accepted/<table>``: Accepted, written by `cdc ddl accept`.
- ``<name>/audit``: AuditRecord, written by an audit.

Capture alone writes all but the last two. ``<name>.__cuts`` has no keys: one Cut per Kafka transaction.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from cdc.errors import ProgressDamaged
from cdc.model.audit_record import AUDIT_VERSION, AuditRecord
from cdc.model.outbox_record import OUTBOX_VERSION, OutboxRecord
from cdc.model.progress_record import (
    CUT_VERSION,
    PROGRESS_VERSION,
    SCHEMA_VERSION,
    Cut,
    Identity,
    Progress,
    SchemaKey,
    SchemaRecord,
)
from cdc.model.signal_record import SIGNALS_VERSION, SignalsRecord
from cdc.model.snapshot_record import SNAPSHOT_VERSION, SnapshotRecord
from cdc.model.table_facts import CATALOG_VERSION, AcceptedFindings, CatalogScope, TableRecord

_Value = TypeVar(
    "_Value",
    Progress,
    Identity,
    Cut,
    SnapshotRecord,
    SignalsRecord,
    CatalogScope,
    TableRecord,
    AcceptedFindings,
    AuditRecord,
    OutboxRecord,
)


def _plain(value: object) -> int:
    """Encode an Lsn as the integer that it is; msgspec accepts int itself only."""
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"no record holds a {type(value).__name__}")


_encode: Final = msgspec.json.Encoder(enc_hook=_plain).encode
_schema: Final = msgspec.json.Decoder(SchemaRecord).decode
_VERSIONS: Final[dict[type, int]] = {
    Progress: PROGRESS_VERSION,
    Identity: PROGRESS_VERSION,
    Cut: CUT_VERSION,
    SnapshotRecord: SNAPSHOT_VERSION,
    CatalogScope: CATALOG_VERSION,
    TableRecord: CATALOG_VERSION,
    AcceptedFindings: CATALOG_VERSION,
    SignalsRecord: SIGNALS_VERSION,
    AuditRecord: AUDIT_VERSION,
    OutboxRecord: OUTBOX_VERSION,
}


class _Versioned(msgspec.Struct):
    version: int


class _MayBeVersioned(msgspec.Struct):
    version: int = 1


def progress_key(name: str) -> bytes:
    """Return the key of the Progress record."""
    return name.encode()


def identity_key(name: str) -> bytes:
    """Return the key of the Identity record."""
    return f"{name}/identity".encode()


def snapshot_key(name: str, table: str = "") -> bytes:
    """Return the key of a table's SnapshotRecord; without a table, the prefix of these keys."""
    return f"{name}/snapshot/{table}".encode()


def signals_key(name: str) -> bytes:
    """Return the key of the SignalsRecord."""
    return f"{name}/signals".encode()


def sentinel_key(name: str) -> bytes:
    """Return the key of the sentinel."""
    return f"{name}/sentinel".encode()


def catalog_key(name: str) -> bytes:
    """Return the key of the CatalogScope."""
    return f"{name}/catalog".encode()


def table_key(name: str, table: str) -> bytes:
    """Return the key of the TableRecord of ``schema.table``."""
    return f"{name}/catalog/{table}".encode()


def accepted_key(name: str, table: str) -> bytes:
    """Return the key of the Accepted record of ``schema.table``."""
    return f"{name}/accepted/{table}".encode()


def audit_key(name: str) -> bytes:
    """Return the key of the AuditRecord."""
    return f"{name}/audit".encode()


def outbox_key(name: str) -> bytes:
    """Return the key of the OutboxRecord."""
    return f"{name}/outbox".encode()


def encode(
    value: Progress
    | Identity
    | Cut
    | SchemaRecord
    | SchemaKey
    | SnapshotRecord
    | SignalsRecord
    | CatalogScope
    | TableRecord
    | AcceptedFindings
    | AuditRecord
    | OutboxRecord,
) -> bytes:
    """Return the bytes of a record. Equal values give equal bytes."""
    return _encode(value)


def decode(data: bytes, kind: type[_Value], where: str) -> _Value:
    """Read a record. Raises ProgressDamaged, naming `where`, if it is unreadable or of another version."""
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version == _VERSIONS[kind]:
            return msgspec.json.decode(data, type=kind)
        record = f"the {kind.__name__.lower()} record in {where}"
        raise ProgressDamaged.of_newer_release(record, version, _VERSIONS[kind], topic=where)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ProgressDamaged(
            f"the {kind.__name__.lower()} record in {where} is not readable",
            hint="another version of Tailrace or another program wrote it; nothing was changed",
            topic=where,
        ) from None


def decode_schema(data: bytes, topic: str) -> SchemaRecord:
    """Read a record of a schema topic. Raises ProgressDamaged if it is unreadable or of another version."""
    try:
        version = msgspec.json.decode(data, type=_MayBeVersioned).version
        if version != SCHEMA_VERSION:
            raise ProgressDamaged.of_newer_release(f"a schema record in {topic}", version, SCHEMA_VERSION, topic=topic)
        return _schema(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ProgressDamaged(f"a schema record in {topic} is not readable", topic=topic) from None
