r"""What a record of ``<name>.__signals`` asks for: ours, or Debezium's. Pure.

    {"id":"…","command":"start","tables":["public.orders","sales.*"],"where":"id >= 100","keys":[{"id":7}]}
    {"type":"execute-snapshot","data":{"type":"incremental","data-collections":["public\\.orders"]}}

`command` is start, pause, resume or stop; without `tables` the last three are for all. Debezium's names of tables are
regular expressions that match the whole name; ours are shell patterns. A record's key is the pipeline's name, or it has
none: others are somebody else's.

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
"""Empty: the record could not be understood."""

KEYS_MAX: Final = 10_000  # of one signal; they are in the record of their snapshot until they are read
KEYS_BYTES_MAX: Final = 1 << 20
PAYLOAD_BYTES_MAX: Final = 2 << 20  # of a record's value: the keys, with room for escapes and spaces
_SHOWN_MAX: Final = 200  # characters of a message or id that the sender chose
_TABLES_MAX: Final = 1000
_NUMBER_MAX: Final = 132_000  # characters: a numeric of PostgreSQL has at most 131,072 digits before the point
_Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=PATTERN_MAX)]
_Where = Annotated[str, msgspec.Meta(max_length=LENGTH_MAX)]


class SignalError(Exception):
    """A record that nothing can be made of; the message says why, and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Signal:
    """Something to be done.

    Attributes:
        id: as the sender chose it; may be empty.
        tables: names, or patterns of them; empty: all. `regular` says which kind of patterns.
        where: condition for every table, as text; empty for none.
        wheres: table pattern -> condition of its own.
        keys: as the log has them; rows of these are read, and no others.
        message: to be logged.
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
    """Those of Debezium's fields that are obeyed, and those that cannot be."""

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
        raise SignalError(f"it is no signal: {_without_values(str(error))}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise SignalError("it is not JSON") from None
    raise SignalError("it has neither `command` nor `type`")


def encode(signal: Signal) -> bytes:
    """One of our own, as `parse` reads it."""
    keys = b",".join(signal.keys)
    head = {"id": signal.id, "command": signal.action, "tables": signal.tables, "where": signal.where}
    return msgspec.json.encode(head)[:-1] + b',"keys":[' + keys + b"]}"


def key_of(text: bytes) -> bytes:
    """A key as the log writes it: an object on one line, without spaces. Raises SignalError."""
    try:
        found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise SignalError("a key is a JSON object of its columns, as the log has it") from None
    return _key(found, found)


def in_order(key: bytes, columns: Sequence[str]) -> bytes:
    """Return a key with its columns in this order. Raises SignalError when it has others."""
    found = msgspec.json.decode(key, type=dict[str, msgspec.Raw])
    if found.keys() != set(columns):
        raise SignalError(f"keys of this table have the columns {', '.join(columns)}")
    return _key(found, columns)


def _key(found: Mapping[str, msgspec.Raw], columns: Iterable[str]) -> bytes:
    """Numbers stay as they are written; text is escaped as in the log."""
    pieces = []
    for name in columns:
        raw = bytes(found[name])
        if raw[:1] in b"[{n":
            raise SignalError("the columns of a key are numbers, text, true or false")
        value = msgspec.json.encode(msgspec.json.decode(raw)) if raw[:1] == b'"' else _checked(raw)
        pieces.append(msgspec.json.encode(name) + b":" + value)
    if not pieces:
        raise SignalError("a key has at least one column")
    return b"{" + b",".join(pieces) + b"}"


def _checked(number: bytes) -> bytes:
    """The number (or true, false) as it is written. Raises SignalError when no column can have it."""
    too_large = b"e" in number.lower() and number[:1] not in b"tf" and isinf(float(number))
    if too_large or len(number) > _NUMBER_MAX:
        raise SignalError("a number of a key is out of range")
    return number


def _ours(found: _Ours) -> Signal:
    if found.command == "start" and not found.tables:
        raise SignalError("start names no tables")
    if found.command != "start" and (found.where or found.keys):
        raise SignalError(f"{found.command} takes no rows")
    if found.where and found.keys:
        raise SignalError("it has a condition and keys; one of them says which rows")
    keys = tuple(dict.fromkeys(_key(key, key) for key in found.keys))
    if len(keys) > KEYS_MAX or sum(map(len, keys)) > KEYS_BYTES_MAX:
        raise SignalError(f"it has {len(keys)} keys; at most {KEYS_MAX} with {KEYS_BYTES_MAX} bytes are taken")
    return Signal(found.id[:_SHOWN_MAX], found.command, found.tables, where=found.where, keys=keys)


def _debezium(found: _Debezium) -> Signal:
    action, data = _ACTIONS.get(found.type), found.data or _Data()
    if action is None:
        raise SignalError("signals of this type are not known")
    tables = data.collections or ()
    if action != "log" and data.kind.lower() != "incremental":
        raise SignalError("only incremental snapshots are taken")
    if action == "start" and not tables:
        raise SignalError("execute-snapshot names no data-collections")
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
    """What msgspec says, without what the record says: an invalid enum value is quoted by it."""
    where = message.rpartition(" - at ")[2].strip("`") if " - at " in message else "its fields"
    return f"{where} is not what it must be" if "Invalid enum value" in message else message
