"""Debezium's envelope as sinks and commands read it; row images stay encoded until they are needed.

`cdc.verify` has structs of its own, because it must not share code with what it checks.
"""

from __future__ import annotations

import msgspec


class EventSource(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `source` that readers use.

    Attributes:
        unchanged: columns that are not in the row, because PostgreSQL did not send them.
        omitted: columns that capture left out because the row was too large.
    """

    epoch: int
    commit_lsn: int
    ordinal: int = 0
    schema: str = ""
    table: str = ""
    schema_id: str = ""
    unchanged: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()


class EventEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """The value of an event."""

    after: msgspec.Raw
    source: EventSource
    op: str
    ts_ms: int
    before: msgspec.Raw = msgspec.Raw(b"null")


decode_envelope = msgspec.json.Decoder(EventEnvelope).decode
"""Decode the value of an event. Raises msgspec.MsgspecError."""
