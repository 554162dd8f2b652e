r"""Parses records of ``<name>.__signals``, in Tailrace's or Debezium's format. Pure.

    {"id":"…","command":"start","tables":["public.orders","sales.*"],"where":"id >= 100","keys":[{"id":7}]}
    {"type":"execute-snapshot","data":{"type":"incremental","data-collections":["public\\.orders"]}}

`command` is start, pause, resume or stop. Without `tables`, the last three apply to every table. Table names in
Debezium's format are regular expressions that match the whole name; in Tailrace's format they are shell patterns. The
key of a record is the name of the pipeline, or empty; records with another key are ignored.

https://debezium.io/documentation/reference/stable/configuration/signalling.html
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isinf
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from snapshot.condition import LENGTH_MAX
from snapshot.table_patterns import PATTERN_MAX, PatternError, check_comparisons, selected

Action: TypeAlias = Literal["start", "pause", "resume", "stop", "log", ""]
"""The action of a signal; empty if the record is invalid."""

KEYS_MAX: Final = 10_000  # per signal; the record of the snapshot contains them until they are read
KEYS_BYTES_MAX: Final = 1 << 20
PAYLOAD_BYTES_MAX: Final = 2 << 20  # of a record's value: the keys, with room for escapes and spaces
_SHOWN_MAX: Final = 200  # characters of the sender's message or id
_TABLES_MAX: Final = 1000
_NUMBER_MAX: Final = 132_000  # characters: a numeric of PostgreSQL has at most 131,072 digits before the point
_Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=PATTERN_MAX)]
_Where = Annotated[str, msgspec.Meta(max_length=LENGTH_MAX)]


class SignalError(Exception):
    """The signal is invalid or cannot be carried out; the message says why, and quotes nothing of the record."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A parsed signal.

    Attributes:
        id: chosen by the sender; may be empty.
        tables: names or patterns; empty: every table.
        regular: the patterns are regular expressions, not shell patterns.
        where: text of a condition for every table; empty for none.
        wheres: by table pattern, the text of its own condition.
        keys: keys as the log has them; if there are any, only their rows are read.
        message: text to log.
    """

    id: str
    action: Action
    tables: tuple[str, ...] = ()
    regular: bool = False
    where: str = ""
    wheres: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[bytes, ...] = ()
    message: str = ""

    def matching(self, pattern: str, names: Collection[str]) -> list[str]:
        """Return those of `names` that a pattern selects. Raises SignalError when the pattern cannot be used."""
        try:
            return selected(pattern, names, regular=self.regular)
        except PatternError as error:
            raise SignalError(str(error)) from None

    def check(self, names: Collection[str]) -> None:
        """Raise SignalError when comparing its patterns with `names` would take too long."""
        patterns = [one for one in (*self.tables, *self.wheres) if one not in names]
        try:
            check_comparisons(patterns, len(names))
        except PatternError as error:
            raise SignalError(str(error)) from None

    def where_of(self, table: str) -> str:
        """Return the condition for a table; empty for none. Raises SignalError."""
        own = next((text for pattern, text in self.wheres.items() if self.matching(pattern, {table})), None)
        return self.where if own is None else own


class _Ours(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Literal["start", "pause", "resume", "stop"]
    id: str = ""
    tables: Annotated[tuple[_Pattern, ...], msgspec.Meta(max_length=_TABLES_MAX)] = ()
    where: _Where = ""
    keys: tuple[dict[str, msgspec.Raw], ...] = ()


class _Additional(msgspec.Struct, frozen=True):
    collection: _Pattern = msgspec.field(name="data-collection")
    filter: _Where = ""


class _Data(msgspec.Struct, frozen=True):
    """The supported fields of Debezium's `data`, and those that are refused."""

    collections: Annotated[tuple[_Pattern, ...], msgspec.Meta(max_length=_TABLES_MAX)] | None = msgspec.field(
        name="data-collections", default=None
    )
    kind: str = msgspec.field(name="type", default="incremental")
    conditions: Annotated[tuple[_Additional, ...], msgspec.Meta(max_length=_TABLES_MAX)] | None = msgspec.field(
        name="additional-conditions", default=None
    )
    condition: _Where | None = msgspec.field(name="additional-condition", default=None)
    message: str = ""


class _Debezium(msgspec.Struct, frozen=True):
    type: str
    id: str | None = None
    data: _Data | None = None


class _Either(msgspec.Struct, frozen=True):
    command: object = msgspec.UNSET
    type: object = msgspec.UNSET


_ACTIONS: Final[Mapping[str, Action]] = {
    "execute-snapshot": "start",
    "pause-snapshot": "pause",
    "resume-snapshot": "resume",
    "stop-snapshot": "stop",
    "log": "log",
}


def parse(key: bytes | None, value: bytes | None, name: str) -> Signal | None:
    """Return the signal of a record; None when its key is another pipeline's name. Raises SignalError."""
    if value is None or (key is not None and key != name.encode()):
        return None
    if len(value) > PAYLOAD_BYTES_MAX:
        raise SignalError(f"the record has {len(value)} bytes; at most {PAYLOAD_BYTES_MAX} are accepted")
    try:
        either = msgspec.json.decode(value, type=_Either)
        if either.command is not msgspec.UNSET:
            return _ours(msgspec.json.decode(value, type=_Ours))
        if either.type is not msgspec.UNSET:
            return _debezium(msgspec.json.decode(value, type=_Debezium))
    except msgspec.ValidationError as error:
        raise SignalError(f"invalid signal: {_without_values(str(error))}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise SignalError("it is not JSON") from None
    raise SignalError("it has neither `command` nor `type`")


def encode(signal: Signal) -> bytes:
    """Encode a signal in Tailrace's format; `parse` is the inverse."""
    keys = b",".join(signal.keys)
    head = {"id": signal.id, "command": signal.action, "tables": signal.tables, "where": signal.where}
    return msgspec.json.encode(head)[:-1] + b',"keys":[' + keys + b"]}"


def key_of(text: bytes) -> bytes:
    """Return a key in the form of the log: an object on one line, without spaces. Raises SignalError."""
    try:
        found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise SignalError("invalid key: expected a JSON object of the key columns, as in the topic") from None
    return _key(found, found)


def in_order(key: bytes, columns: Sequence[str]) -> bytes:
    """Return a key with its columns in this order. Raises SignalError if it has other columns."""
    found = msgspec.json.decode(key, type=dict[str, msgspec.Raw])
    if found.keys() != set(columns):
        raise SignalError(f"invalid key: keys of this table have the columns {', '.join(columns)}")
    return _key(found, columns)


def _key(found: Mapping[str, msgspec.Raw], columns: Iterable[str]) -> bytes:
    """Encode a key. Numbers stay as they are written; text is escaped as in the log."""
    pieces = []
    for name in columns:
        raw = bytes(found[name])
        if raw[:1] in b"[{n":
            raise SignalError("invalid key: values must be numbers, text, true or false")
        value = msgspec.json.encode(msgspec.json.decode(raw)) if raw[:1] == b'"' else _checked(raw)
        pieces.append(msgspec.json.encode(name) + b":" + value)
    if not pieces:
        raise SignalError("invalid key: expected at least one column")
    return b"{" + b",".join(pieces) + b"}"


def _checked(number: bytes) -> bytes:
    """Return the number (or true, false) as it is written. Raises SignalError if no column can have this value."""
    too_large = b"e" in number.lower() and number[:1] not in b"tf" and isinf(float(number))
    if too_large or len(number) > _NUMBER_MAX:
        raise SignalError("invalid key: a number is out of range")
    return number


def _ours(found: _Ours) -> Signal:
    if found.command == "start" and not found.tables:
        raise SignalError("`start` needs `tables`")
    if found.command != "start" and (found.where or found.keys):
        raise SignalError(f"`{found.command}` cannot have `where` or `keys`")
    if found.where and found.keys:
        raise SignalError("it has both `where` and `keys`; use one of them")
    keys = tuple(dict.fromkeys(_key(key, key) for key in found.keys))
    if len(keys) > KEYS_MAX or sum(map(len, keys)) > KEYS_BYTES_MAX:
        raise SignalError(f"it has {len(keys)} keys; at most {KEYS_MAX} with {KEYS_BYTES_MAX} bytes are accepted")
    return Signal(found.id[:_SHOWN_MAX], found.command, found.tables, where=found.where, keys=keys)


def _debezium(found: _Debezium) -> Signal:
    action, data = _ACTIONS.get(found.type), found.data or _Data()
    if action is None:
        raise SignalError("unsupported signal type")
    tables = data.collections or ()
    if action != "log" and data.kind.lower() != "incremental":
        raise SignalError("unsupported snapshot type; only incremental snapshots are supported")
    if action == "start" and not tables:
        raise SignalError("`execute-snapshot` needs `data-collections`")
    return Signal(
        (found.id or "")[:_SHOWN_MAX],
        action,
        tables,
        regular=True,
        where=data.condition or "",
        wheres={one.collection: one.filter for one in data.conditions or ()},
        message=data.message[:_SHOWN_MAX],
    )


def _without_values(message: str) -> str:
    """Return msgspec's message without values of the record; msgspec quotes an invalid enum value."""
    where = message.rpartition(" - at ")[2].strip("`") if " - at " in message else "a field"
    return f"{where} has an invalid value" if "Invalid enum value" in message else message
