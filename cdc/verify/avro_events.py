"""Decodes records in the format ``avro`` for `cdc verify`: record -> `Event` with the row as JSON.

The schema comes from the registry, by the id at the beginning of each record. The decoder shares no code with capture,
so that it detects faults of capture's encoder.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from cdc.errors import TopicMismatch
from cdc.model.log_record import LogRecord
from cdc.verify.log_events import Format, checked, checked_key, foreign
from cdc.verify.verify_rule import Event

_FRAME_BYTES: Final = 5
_XID_BITS: Final = 0xFFFF_FFFF
_Schema: TypeAlias = Any
_double: Final = struct.Struct("<d").unpack_from


class AvroFormat:
    """Reads the records of one topic. One thread.

    Args:
        schema: returns the text of a schema by its id in the registry. Raises the registry's errors.
        key_encodings: the encoding of each key column (`cdc.model.progress_record.SchemaColumn`).
    """

    def __init__(self, schema: Callable[[int], str], key_encodings: Mapping[str, str]) -> None:
        self._schema = schema
        self._key_encodings = key_encodings
        self._schemas: dict[int, tuple[_Schema, dict[str, _Schema]]] = {}

    @property
    def format(self) -> Format:
        """The functions with which `cdc.verify.key_states` reads the topic."""
        return Format(self.event, self.key)

    def key(self, key: bytes) -> bytes:
        """Return the key as a JSON object. Raises TopicMismatch for a key that does not match its schema."""
        try:
            schema, values = self._decoded(key)
            return _encoded({_name(f): _in_json(values[f["name"]], self._encoding(f)) for f in schema["fields"]})
        except (IndexError, KeyError, ValueError, TypeError, struct.error) as error:
            raise TopicMismatch(
                f"cannot decode a key of an Avro topic: {error!r}",
                hint="another program writes to the topic; Tailrace must be its only writer",
            ) from None

    def event(self, record: LogRecord) -> Event:
        """Read an envelope. Raises TopicMismatch for a record that capture did not write."""
        value = record.value
        checked_key(record)
        if value is None:
            return Event("", None)
        try:
            schema, found = self._decoded(value)
            source, unchanged = found["source"], set(found["source"]["unchanged"])
            columns = schema["fields"][0]["type"][1]["fields"]
            after = found["after"]
            row = None
            if after is not None:
                shown = ((_name(field), _in_json(after[field["name"]], field["encoding"])) for field in columns)
                row = _encoded({name: one for name, one in shown if name not in unchanged})
            event = Event(
                found["op"],
                row,
                tuple(source["unchanged"]),
                (),
                source["schema_id"],
                source["epoch"],
                source["commit_lsn"],
                found["ts_ms"],
                None if source["txId"] is None else source["txId"] & _XID_BITS,
            )
        except (IndexError, KeyError, ValueError, TypeError, struct.error) as error:
            raise foreign(record, f"it does not match its Avro schema ({error!r})") from None
        return checked(record, event)

    def _encoding(self, field: Mapping[str, Any]) -> str:
        return self._key_encodings.get(_name(field), "")

    def _decoded(self, data: bytes) -> tuple[_Schema, Any]:
        if len(data) < _FRAME_BYTES or data[0] != 0:
            raise ValueError("the frame with the schema id is missing")
        number = int.from_bytes(data[1:_FRAME_BYTES], "big")
        if number not in self._schemas:
            found = msgspec.json.decode(self._schema(number))
            self._schemas[number] = (found, dict(_records(found)))
        schema, named = self._schemas[number]
        reading = _Reading(data, _FRAME_BYTES, named)
        value = reading.value(schema)
        if reading.at != len(data):
            raise ValueError(f"{len(data) - reading.at} bytes are left over")
        return schema, value


class _Reading:
    """Reads Avro's binary encoding.

    https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
    """

    def __init__(self, data: bytes, at: int, named: Mapping[str, _Schema]) -> None:
        self.at = at
        self._data = data
        self._named = named

    def value(self, schema: _Schema) -> Any:
        """The next value."""
        if isinstance(schema, list):
            return self.value(schema[self._long()])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind == "record":
            return {field["name"]: self.value(field["type"]) for field in schema["fields"]}
        if isinstance(kind, dict | list):
            return self.value(kind)
        if kind == "array":
            return [self.value(schema["items"]) for _ in self._items()]
        if kind == "map":
            return {self._bytes().decode(): self.value(schema["values"]) for _ in self._items()}
        return self.value(self._named[kind]) if kind in self._named else self._plain(kind)

    def _plain(self, kind: str) -> Any:
        match kind:
            case "null":
                return None
            case "boolean":
                self.at += 1
                return self._data[self.at - 1] == 1
            case "long":
                return self._long()
            case "double":
                self.at += 8
                return _double(self._data, self.at - 8)[0]
            case "string":
                return self._bytes().decode()
            case "bytes":
                return self._bytes()
        raise ValueError(f"unsupported type {kind!r}")

    def _items(self) -> Any:
        """Yield once for each item of an array or a map."""
        while count := self._long():
            if count < 0:  # a block with its size in front
                count = -count
                self._long()
            yield from range(count)

    def _long(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def _bytes(self) -> bytes:
        size = self._long()
        found = self._data[self.at : self.at + size]
        if size < 0 or len(found) != size:
            raise ValueError("a text is truncated")
        self.at += size
        return found


def _records(schema: _Schema) -> Iterator[tuple[str, _Schema]]:
    """Yield name and schema of each record in a schema: other places refer to it by name."""
    if isinstance(schema, list):
        for part in schema:
            yield from _records(part)
    elif isinstance(schema, dict):
        if schema["type"] == "record":
            yield schema["name"], schema
        for part in (schema["type"], schema.get("items"), schema.get("values"), *schema.get("fields", ())):
            yield from _records(part)


def _name(field: Mapping[str, Any]) -> str:
    name: str = field.get("postgresql_name", field["name"])
    return name


def _encoded(row: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(row)


def _in_json(value: Any, encoding: str) -> Any:
    """Convert a value to its form in JSON (docs/reference/types.md)."""
    if isinstance(value, bytes):
        return _binary(value, encoding)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        inner = encoding.removeprefix("array<").removesuffix(">")
        return [_in_json(item, inner) for item in value]
    if isinstance(value, str) and (encoding.startswith("array<") or encoding == "json_value"):
        return msgspec.Raw(value.encode())  # an array of several dimensions is the text of its JSON form
    if isinstance(value, str) and encoding == "decimal_number" and value not in {"NaN", "Infinity", "-Infinity"}:
        return msgspec.Raw(value.encode())
    return value


def _binary(value: bytes, encoding: str) -> str:
    if encoding == "base64":
        return base64.b64encode(value).decode()
    if encoding == "base64url":
        return base64.urlsafe_b64encode(value).decode()
    return "\\x" + value.hex()
