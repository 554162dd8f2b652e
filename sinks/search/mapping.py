"""Generates the mapping of a table's index, and turns rows into documents that fit it. Pure.

The mapping is strict and generated from the schema record. It decides how a column is searched. The document is the row
as the topic has it, byte for byte, so numbers keep all digits. A value that the field cannot index although the
column's type allows it (NaN, infinity, a date BC) stays in the document, but the field does not find it.
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
"""Lucene's longest term has 32,766 bytes, a character up to four. OpenSearch refuses documents with longer terms."""
_EXACT_CHARS_MAX: Final = 256
"""Length of a text's `keyword`: the default of OpenSearch's own dynamic mappings."""
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
    """How the rows of a schema become documents.

    Attributes:
        fields: column -> field, as in the `properties` of the mapping.
        parsed: columns whose value is JSON in a string and must become that JSON.
        printed: columns whose value is JSON and must become a string.
    """

    fields: Mapping[str, Field]
    parsed: frozenset[str] = frozenset()
    printed: frozenset[str] = frozenset()


PLAIN: Final = Form({})
"""Rows are documents without a change."""


def form_of(record: SchemaRecord, overrides: Mapping[str, Field], json: JsonForm) -> Form:
    """Return the form of a schema; `overrides` has fields by column.

    Raises:
        SinkUnfit: an override names an unknown column, or OpenSearch does not support a column name or a key type.
    """
    unknown = sorted(set(overrides) - {column.name for column in record.columns})
    if unknown:
        raise SinkUnfit(
            f"the sink's `fields` name {', '.join(unknown)}, but {record.table} has no such column",
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
    """Return the document of a row, on one line: the row itself, unless a column must change. Raises DecodeError."""
    if form.parsed or form.printed:
        try:
            row = _changed(row, form)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise DecodeError("a row", 0, detail="is not the JSON that its schema says") from None
    # Type json keeps line breaks between tokens, and a line break ends a document in a bulk request. Line breaks inside
    # strings are escaped.
    return row.replace(b"\n", b" ") if b"\n" in row else row


def with_kept(source: bytes, held: bytes, kept: tuple[str, ...]) -> bytes:
    """Return the document with the stored values of the columns `kept`. Raises DecodeError."""
    try:
        values, old = _VALUES.decode(source), _VALUES.decode(held)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise DecodeError("a document", 0, detail="is not a JSON object") from None
    values.update({name: old[name] for name in kept if name in old})
    return msgspec.json.encode(values)


def values_of(source: bytes) -> dict[str, object]:
    """Return a document by column; numbers keep all digits. Raises DecodeError."""
    try:
        return _CONTENT.decode(source)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise DecodeError("a document", 0, detail="is not a JSON object") from None


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
        # Match each document of an array separately: two fields of the same order line, not of two lines.
        kind = "nested" if column.type.endswith("[]") else "object"
        return {"type": kind, "properties": {field.name: _field(field, json) for field in column.fields}}
    encoding = column.encoding
    while encoding.startswith("array<"):
        # OpenSearch has no array type: any field may have several values.
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
            f"OpenSearch does not support a field with the name of column {column.name!r} of {table}",
            hint="it reads dots as paths and reserves some names: rename the column, or remove the table from the sink",
            table=table,
            column=column.name,
        )
    if column.key and column.encoding == "json_value":
        raise SinkUnfit(
            f"{table} has the JSON column {column.name!r} in its key",
            hint='1 and "1" would be the same document; set encode.json = "string", or remove the table from the sink',
            table=table,
            column=column.name,
        )
