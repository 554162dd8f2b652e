"""What fields an index has for a table, and what a row must become to fit them. Pure.

The mapping is strict and made from the schema record. It says how a column is searched; the document itself is the row
as the topic has it, byte for byte, so no value loses a digit to its field's type. A value that its field cannot index
although the column's type allows it (NaN, infinity, a date BC) is kept in the document and not found by that field.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from cdc.errors import DecodeError, SinkUnfit
from cdc.model.progress_record import SchemaColumn, SchemaRecord

JsonForm: TypeAlias = Literal["string", "object", "flat_object"]
Field: TypeAlias = Mapping[str, Any]

KEYWORD_CHARS_MAX: Final = 8191
"""Lucene's longest term has 32,766 bytes, and a character has up to four; longer ones would refuse the document."""
_EXACT_CHARS_MAX: Final = 256
"""Of a text's `keyword`: what OpenSearch itself takes where it makes mappings."""
_WHOLE: Final = {"int2": "short", "int4": "integer"}
_KEYWORD: Final = {"type": "keyword", "ignore_above": KEYWORD_CHARS_MAX}
_TEXT: Final = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": _EXACT_CHARS_MAX}}}
_STORED: Final = {"type": "keyword", "index": False, "doc_values": False}
_DATE: Final = {"type": "date", "format": "strict_date_optional_time", "ignore_malformed": True}
_DOUBLE: Final = {"type": "double", "ignore_malformed": True}
_LONG: Final = {"type": "long", "ignore_malformed": True}
_BY_ENCODING: Final[Mapping[str, Field]] = {
    "boolean": {"type": "boolean"},
    "integer_string": _LONG,
    "decimal": _DOUBLE,
    "decimal_number": _DOUBLE,
    "float": _DOUBLE,
    "date": _DATE,
    "timestamp": _DATE,
    "timestamp_utc": _DATE,
    "epoch_days": _LONG,
    "day_micros": _LONG,
    "epoch_micros": _LONG,
    "hexadecimal": _STORED,
    "base64": _STORED,
    "base64url": _STORED,
    "interval_parts": {"properties": {part: {"type": "long"} for part in ("months", "days", "micros")}},
    "hstore_json": {"type": "flat_object"},
}
_JSON: Final[Mapping[JsonForm, Field]] = {
    "string": _KEYWORD,
    "object": {"type": "object", "dynamic": True},
    "flat_object": {"type": "flat_object"},
}
_TEXTS: Final = frozenset({"text", "varchar", "bpchar", "citext", "name", "xml", "tsvector"})
_STRUCTURED: Final = frozenset({"object", "nested", "flat_object"})
# https://docs.opensearch.org/latest/field-types/metadata-fields/index/
_RESERVED: Final = frozenset({"_id", "_index", "_source", "_routing", "_ignored", "_field_names", "_meta", "_type"})
_RESERVED_MORE: Final = frozenset(
    {"_version", "_seq_no", "_primary_term", "_doc_count", "_nested_path", "_data_stream"}
)

_VALUES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_CONTENT: Final = msgspec.json.Decoder(dict[str, object], float_hook=Decimal)
_STRING: Final = msgspec.json.Decoder(str)


class Form(NamedTuple):
    """A table as an index takes it.

    Attributes:
        fields: column -> its field, as the mapping's `properties` have it.
        parsed: columns whose value is JSON in a string and must be that JSON itself.
        printed: columns whose value is JSON and must be a string.
    """

    fields: Mapping[str, Field]
    parsed: frozenset[str] = frozenset()
    printed: frozenset[str] = frozenset()


PLAIN: Final = Form({})
"""Rows that go as they are."""


def form_of(record: SchemaRecord, overrides: Mapping[str, Field], json: JsonForm) -> Form:
    """The form of a schema; `overrides` has fields by column.

    Raises:
        SinkUnfit: an override names no column, or OpenSearch cannot have a column of that name, or such a key.
    """
    unknown = sorted(set(overrides) - {column.name for column in record.columns})
    if unknown:
        raise SinkUnfit(
            f"{record.table} has no column {', '.join(unknown)}, for which the sink's `fields` has an entry",
            hint="correct [sinks.NAME.fields]",
            table=record.table,
        )
    fields: dict[str, Field] = {}
    parsed, printed = set(), set()
    for column in record.columns:
        _check(record.table, column)
        field = overrides.get(column.name) or _field(column, json)
        fields[column.name] = field
        structured = "properties" in field or field.get("type") in _STRUCTURED
        if column.encoding == "json" and structured:
            parsed.add(column.name)
        elif column.encoding == "json_value" and not structured:
            printed.add(column.name)
    return Form(fields, frozenset(parsed), frozenset(printed))


def source_of(row: bytes, form: Form) -> bytes:
    """The document of a row: itself, unless a column must change; on one line. Raises DecodeError."""
    if form.parsed or form.printed:
        try:
            row = _changed(row, form)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise DecodeError("a row", 0, detail="is not the JSON that its schema says") from None
    # Type json keeps line breaks between its tokens, and a bulk request ends a document with one. Those inside of
    # strings are escaped.
    return row.replace(b"\n", b" ") if b"\n" in row else row


def with_kept(source: bytes, held: bytes, kept: tuple[str, ...]) -> bytes:
    """The document with the values that the store has for `kept`, as far as it has any. Raises DecodeError."""
    try:
        values, old = _VALUES.decode(source), _VALUES.decode(held)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise DecodeError("a document", 0, detail="is no JSON object") from None
    values.update({name: old[name] for name in kept if name in old})
    return msgspec.json.encode(values)


def values_of(source: bytes) -> dict[str, object]:
    """A document by column, numbers with all of their digits. Raises DecodeError."""
    try:
        return _CONTENT.decode(source)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise DecodeError("a document", 0, detail="is no JSON object") from None


def _changed(row: bytes, form: Form) -> bytes:
    values = _VALUES.decode(row)
    for name in form.parsed & values.keys():
        raw = bytes(values[name])
        if raw[:1] == b'"':
            values[name] = msgspec.Raw(_STRING.decode(raw).encode())
    for name in form.printed & values.keys():
        raw = bytes(values[name])
        if raw != b"null":
            values[name] = msgspec.Raw(msgspec.json.encode(raw.decode()))
    return msgspec.json.encode(values)


def _field(column: SchemaColumn, json: JsonForm) -> Field:
    if column.fields:
        # Each document of an array is to be matched by itself: two fields of one order line, not of any two.
        kind = "nested" if column.type.endswith("[]") else "object"
        return {"type": kind, "properties": {field.name: _field(field, json) for field in column.fields}}
    encoding = column.encoding
    while encoding.startswith("array<"):
        # OpenSearch has no arrays: a field may have many values. Those of JSON would have to be taken apart.
        encoding = encoding[len("array<") : -1]
    if encoding in {"json", "json_value"}:
        return _JSON[json]
    if encoding == "integer":
        return {"type": _WHOLE.get(column.type.lstrip("_"), "long")}
    if encoding in _BY_ENCODING:
        return _BY_ENCODING[encoding]
    return _TEXT if column.type.removesuffix("[]").lstrip("_") in _TEXTS else _KEYWORD


def _check(table: str, column: SchemaColumn) -> None:
    if "." in column.name or not column.name.strip() or column.name in _RESERVED | _RESERVED_MORE:
        raise SinkUnfit(
            f"{table} has a column {column.name!r}, which OpenSearch cannot have as a field",
            hint="it reads a dot as a path and keeps some names for itself: rename the column, or leave the table out",
            table=table,
            column=column.name,
        )
    if column.key and column.encoding == "json_value":
        raise SinkUnfit(
            f"{table} has the JSON column {column.name!r} in its key",
            hint='as values, 1 and "1" would be one document; use encode.json = "string", or leave the table out',
            table=table,
            column=column.name,
        )
