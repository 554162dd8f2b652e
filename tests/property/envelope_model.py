"""A model of the envelope with dicts and `json.dumps`: slow, obvious, and without code of `cdc.encode`."""

from __future__ import annotations

import json
from dataclasses import dataclass

from cdc.wire.pgoutput import UNCHANGED, Begin
from tests.property.rows import Cell, CellOrNot, Change, Json, Table


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row stands: its transaction, its own LSN and its ordinal."""

    begin: Begin
    epoch: int
    lsn: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class Expected:
    """A record. Values are JSON texts with fixed order of members."""

    key: str | None
    value: str | None
    headers: tuple[tuple[str, str], ...] = ()


def expected_records(table: Table, change: Change, place: Place) -> list[Expected]:
    """The records of one change, in order."""
    old = change.old if change.old_kind else None
    before = _image(table, change.old) if change.old_kind == "O" else None
    if change.op == "insert":
        return [Expected(_key(table, change.new), _envelope(table, "c", None, change.new, place))]
    if change.op == "delete":
        assert old is not None
        return _removal(table, old, before, place, ())
    new = change.new
    if old is not None:
        new = tuple(_filled(table, change, index) for index in range(len(new)))
        old_key, new_key = _key(table, old), _key(table, new)
        if old_key != new_key:
            assert old_key is not None
            assert new_key is not None
            created = _envelope(table, "c", None, new, place)
            return [
                *_removal(table, old, before, place, (("__debezium.newkey", new_key),)),
                Expected(new_key, created, (("__debezium.oldkey", old_key),)),
            ]
    return [Expected(_key(table, new), _envelope(table, "u", before, new, place))]


def normal(data: bytes | None) -> str | None:
    """JSON of any spelling in one spelling; the order of members is kept, because it is promised."""
    return None if data is None else json.dumps(json.loads(data))


def compact(text: str) -> bytes:
    """The spelling of keys: no blanks, no needless escapes. A key's bytes decide its partition."""
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False).encode()


def _filled(table: Table, change: Change, index: int) -> CellOrNot:
    cell = change.new[index]
    known = change.old_kind == "O" or index in table.key
    return change.old[index] if cell is UNCHANGED and known else cell


def _removal(
    table: Table,
    old: tuple[CellOrNot, ...],
    before: dict[str, Json] | None,
    place: Place,
    headers: tuple[tuple[str, str], ...],
) -> list[Expected]:
    key = _key(table, old)
    if before is None:
        before = _key_object(table, old)
    event = Expected(key, _document(table, "d", before, None, place, []), headers)
    return [event] if key is None else [event, Expected(key, None)]


def _envelope(table: Table, op: str, before: dict[str, Json] | None, new: tuple[CellOrNot, ...], place: Place) -> str:
    unchanged = [name for name, cell in zip(table.column_names, new, strict=True) if cell is UNCHANGED]
    return _document(table, op, before, _image(table, new), place, unchanged)


def _document(
    table: Table,
    op: str,
    before: dict[str, Json] | None,
    after: dict[str, Json] | None,
    place: Place,
    unchanged: list[str],
) -> str:
    relation, begin = table.schema.relation, place.begin
    source: dict[str, Json] = {
        "version": "1",
        "connector": "postgresql",
        "name": "shop",
        "db": "the db",
        "schema": relation.namespace,
        "table": relation.name,
        "schema_id": table.schema.schema_id,
        "snapshot": "false",
        "ts_ms": begin.commit_us // 1000,
        "ts_us": begin.commit_us,
        "txId": begin.xid,
        "epoch": place.epoch,
        "commit_lsn": int(begin.commit_lsn),
        "sequence": f'["{int(begin.commit_lsn)}","{place.lsn}"]',
        "lsn": place.lsn,
        "ordinal": place.ordinal,
    }
    if unchanged:
        source["unchanged"] = list(unchanged)
    ts_ms = begin.commit_us // 1000
    return json.dumps(
        {"before": before, "after": after, "source": source, "op": op, "ts_ms": ts_ms, "transaction": None}
    )


def _image(table: Table, cells: tuple[CellOrNot, ...]) -> dict[str, Json]:
    return {
        name: cell.json if isinstance(cell, Cell) else None
        for name, cell in zip(table.column_names, cells, strict=True)
        if cell is not UNCHANGED
    }


def _key_object(table: Table, cells: tuple[CellOrNot, ...]) -> dict[str, Json]:
    image = _image(table, cells)
    return {table.column_names[index]: image[table.column_names[index]] for index in table.key}


def _key(table: Table, cells: tuple[CellOrNot, ...]) -> str | None:
    return json.dumps(_key_object(table, cells)) if table.key else None
