"""Finds the column of each event field in an outbox table, once when the stream announces the table. Pure.

In tables of `cdc migrate`, columns have the names of the fields (`outbox.models`). For other tables, such as one made
for Debezium's EventRouter, `[outbox] columns` names them. Debezium's `aggregatetype` and `aggregateid` are recognized.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cdc.errors import SourceRefused
from cdc.model.relation import Column, Relation

FIELDS: Final = (
    "id", "aggregate_type", "aggregate_id", "type", "payload", "payload_bytes", "version", "content_type", "headers",
    "ordering_key", "created_at",
)  # fmt: skip
_REQUIRED: Final = ("id", "aggregate_type", "aggregate_id", "type")
_ALSO: Final = {"aggregate_type": "aggregatetype", "aggregate_id": "aggregateid"}  # Debezium's defaults
BYTEA: Final = 17
_JSON: Final = frozenset({114, 3802})  # json, jsonb
_BARE: Final = frozenset({21, 23, 20, 114, 3802})  # types whose text is valid JSON: integers and JSON
BOOL: Final = 16


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra column that is published with an event: as a header, or in an envelope around the payload.

    Attributes:
        kind: how its text becomes JSON: ``bare`` (it already is JSON), ``bool`` or ``text``.
    """

    index: int
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class RowForm:
    """The column index of each field; None if the table does not have it.

    Attributes:
        binary: whether the column `payload` is bytea.
        json: whether the column `payload` is json or jsonb.
    """

    table: str
    column_count: int
    id: int
    aggregate_type: int
    aggregate_id: int
    type: int
    payload: int | None
    payload_bytes: int | None
    version: int | None
    content_type: int | None
    headers: int | None
    ordering_key: int | None
    binary: bool
    json: bool
    in_headers: tuple[Extra, ...]
    in_envelope: tuple[Extra, ...]


def row_form(relation: Relation, columns: Mapping[str, str], extra: Mapping[str, str]) -> RowForm:
    """Find the columns of the fields. Raises SourceRefused if a required or configured column is missing."""
    places = {column.name: index for index, column in enumerate(relation.columns)}
    found = {field: _place(field, places, columns, relation.table) for field in FIELDS}
    for field in _REQUIRED:
        if found[field] is None:
            raise _missing(relation.table, columns.get(field, field), f"[outbox] columns = {{{field} = …}}")
    if found["payload"] is None and found["payload_bytes"] is None:
        raise _missing(relation.table, columns.get("payload", "payload"), "[outbox] columns = {payload = …}")
    payload = None if found["payload"] is None else relation.columns[found["payload"]].type_oid
    headers, envelope = _extra(relation, places, extra)
    if envelope and (payload is None or payload == BYTEA):
        raise SourceRefused(
            f"the payload of the outbox {relation.table} is bytes, but [outbox] extra needs an envelope in JSON",
            hint='publish the extra columns as headers: "header"',
            command=f'[outbox] extra = {{{envelope[0].name} = "header"}}',
            table=relation.table,
        )
    return RowForm(
        table=relation.table,
        column_count=len(relation.columns),
        id=found["id"] or 0,
        aggregate_type=found["aggregate_type"] or 0,
        aggregate_id=found["aggregate_id"] or 0,
        type=found["type"] or 0,
        payload=found["payload"],
        payload_bytes=found["payload_bytes"],
        version=found["version"],
        content_type=found["content_type"],
        headers=found["headers"],
        ordering_key=found["ordering_key"],
        binary=payload == BYTEA,
        json=payload in _JSON,
        in_headers=headers,
        in_envelope=envelope,
    )


def _place(field: str, places: Mapping[str, int], columns: Mapping[str, str], table: str) -> int | None:
    if field in columns:
        if columns[field] not in places:
            raise _missing(table, columns[field], f"[outbox] columns = {{{field} = …}}")
        return places[columns[field]]
    return places.get(field, places.get(_ALSO.get(field, field)))


def _extra(
    relation: Relation, places: Mapping[str, int], extra: Mapping[str, str]
) -> tuple[tuple[Extra, ...], tuple[Extra, ...]]:
    headers: list[Extra] = []
    envelope: list[Extra] = []
    for column, placement in extra.items():
        if column not in places:
            raise _missing(relation.table, column, f"[outbox] extra = {{{column} = …}}")
        where, _, name = placement.partition(":")
        one = Extra(places[column], name or column, _kind(relation.columns[places[column]]))
        (envelope if where == "envelope" else headers).append(one)
    return tuple(headers), tuple(envelope)


def _kind(column: Column) -> str:
    return "bare" if column.type_oid in _BARE else "bool" if column.type_oid == BOOL else "text"


def _missing(table: str, column: str, command: str) -> SourceRefused:
    return SourceRefused(
        f"the outbox {table} has no column {column!r}, or its publication leaves it out",
        hint="configure the name of the column; no event is lost, its rows are published afterwards",
        command=command,
        table=table,
        column=column,
    )


def column_of(there: Sequence[str], columns: Mapping[str, str], field: str) -> str | None:
    """Return the name of a field's column among the columns `there`, or None."""
    wanted = columns.get(field, field)
    if wanted in there:
        return wanted
    also = _ALSO.get(field)
    return also if field not in columns and also in there else None
