"""How the restart state and the cut index lie in Kafka: keys, bytes, and the versions we read. Pure.

``<name>.__progress`` (compacted) has these keys: ``<name>`` -> Progress, ``<name>/identity`` -> Identity (written when
it changes, so that the small record of every transaction stays small), ``<name>/snapshot/<table>`` -> SnapshotRecord,
``<name>/signals`` -> SignalsRecord, ``<name>/sentinel`` -> a nonce that tells a starting capture that it reads the
newest state, ``<name>/catalog`` -> CatalogScope, ``<name>/catalog/<table>`` -> TableRecord, both written when they
change. ``<name>/outbox`` -> OutboxRecord, where there is an outbox. ``<name>/accepted/<table>`` -> Accepted is written
by `cdc ddl accept` and ``<name>/audit`` -> AuditRecord by an audit, all others by capture alone.
``<name>.__cuts`` has no keys: one Cut per Kafka transaction.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from cdc.errors import ProgressDamaged
from cdc.model.audit_record import AUDIT_VERSION, AuditRecord
from cdc.model.outbox_record import OUTBOX_VERSION, OutboxRecord
from cdc.model.progress_record import CUT_VERSION, PROGRESS_VERSION, Cut, Identity, Progress, SchemaKey, SchemaRecord
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
    """An Lsn is written as the integer it is; msgspec knows int itself only."""
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"no record holds a {type(value).__name__}")


_encode: Final = msgspec.json.Encoder(enc_hook=_plain).encode
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


def progress_key(name: str) -> bytes:
    """Key of the Progress record."""
    return name.encode()


def identity_key(name: str) -> bytes:
    """Key of the Identity record."""
    return f"{name}/identity".encode()


def snapshot_key(name: str, table: str = "") -> bytes:
    """Key of the SnapshotRecord of a table; without one, what these keys begin with."""
    return f"{name}/snapshot/{table}".encode()


def signals_key(name: str) -> bytes:
    """Key of the SignalsRecord."""
    return f"{name}/signals".encode()


def sentinel_key(name: str) -> bytes:
    """Key of the sentinel."""
    return f"{name}/sentinel".encode()


def catalog_key(name: str) -> bytes:
    """Key of the CatalogScope."""
    return f"{name}/catalog".encode()


def table_key(name: str, table: str) -> bytes:
    """Key of the TableRecord of ``schema.table``."""
    return f"{name}/catalog/{table}".encode()


def accepted_key(name: str, table: str) -> bytes:
    """Key of what is accepted of ``schema.table``."""
    return f"{name}/accepted/{table}".encode()


def audit_key(name: str) -> bytes:
    """Key of the AuditRecord."""
    return f"{name}/audit".encode()


def outbox_key(name: str) -> bytes:
    """Key of the OutboxRecord."""
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
    """The bytes of a record; the same value gives the same bytes."""
    return _encode(value)


def decode(data: bytes, kind: type[_Value], where: str) -> _Value:
    """Read a record. Raises ProgressDamaged naming `where` for what is no such record or of another version."""
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version == _VERSIONS[kind]:
            return msgspec.json.decode(data, type=kind)
        found = f"version {version}, this program reads {_VERSIONS[kind]}"
    except (msgspec.MsgspecError, UnicodeDecodeError):
        found = "not readable"
    raise ProgressDamaged(
        f"the {kind.__name__.lower()} record in {where} is {found}",
        hint="it was written by another version of Tailrace, or by somebody else; nothing was changed",
        topic=where,
    )
