"""Hypothesis strategies for tables and row changes, each value with its expected JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hypothesis import strategies as st

from cdc.encode.relation_schema import TableSchema, table_schema
from cdc.encode.values import EncodeOptions
from cdc.model.relation import Column, Relation, ReplicaIdentity
from cdc.wire.pgoutput import UNCHANGED, Delete, Insert, Tuple, Unchanged, Update
from tests.fixtures.capture.array_text import array_text
from tests.property.messages import names, texts

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True, slots=True)
class Cell:
    """A value: the server's text and the JSON it must become."""

    text: bytes
    json: Json


CellOrNot: TypeAlias = Cell | Unchanged | None


def _is_its_text(text: str) -> Cell:
    return Cell(text.encode(), text)


def _array(elements: list[str | None]) -> Cell:
    return Cell(array_text(elements).encode(), list(elements))


_INTEGERS = st.integers(-(2**63), 2**63 - 1).map(lambda n: Cell(b"%d" % n, n))
_TEXTS = texts(max_size=4).map(_is_its_text)
_CELLS: dict[int, st.SearchStrategy[Cell]] = {
    16: st.sampled_from([Cell(b"t", True), Cell(b"f", False)]),
    17: st.binary(max_size=6).map(lambda b: _is_its_text(f"\\x{b.hex()}")),
    20: _INTEGERS,
    23: st.integers(-(2**31), 2**31 - 1).map(lambda n: Cell(b"%d" % n, n)),
    25: _TEXTS,
    701: st.sampled_from([Cell(b"1.5", 1.5), Cell(b"-1e-07", -1e-07), _is_its_text("NaN"), _is_its_text("-Infinity")]),
    1009: st.lists(st.one_of(st.none(), texts(max_size=3)), max_size=3).map(_array),
    1184: st.sampled_from([Cell(b"2024-02-29 12:00:00.5+00", "2024-02-29T12:00:00.5+00:00"), _is_its_text("infinity")]),
    1700: st.sampled_from(["0.10", "-123456789012345678901234567890.5", "NaN"]).map(_is_its_text),
    3802: st.sampled_from(['{"a": null}', "[]", '"\\u0000"']).map(_is_its_text),
    99999: _TEXTS,  # a type nobody knows
}


@dataclass(frozen=True, slots=True)
class Table:
    """A relation with its key, as a transcoder gets it."""

    schema: TableSchema
    partition_count: int

    @property
    def key(self) -> tuple[int, ...]:
        return self.schema.key

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in self.schema.relation.columns]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a row. `old` of kind K has None where the column is not of the key."""

    op: str
    old_kind: str
    old: tuple[CellOrNot, ...]
    new: tuple[CellOrNot, ...]

    def message(self, oid: int) -> Insert | Update | Delete:
        """What the server sends of it."""
        if self.op == "insert":
            return Insert(oid, _wire(self.new))
        if self.op == "delete":
            return Delete(oid, self.old_kind, _wire(self.old))
        return Update(oid, self.old_kind, _wire(self.old) if self.old_kind else None, _wire(self.new))


@st.composite
def tables(draw: st.DrawFn, *, keyed: bool | None = None, type_oids: tuple[int, ...] = tuple(_CELLS)) -> Table:
    """A table of one to five columns; the key is any of them in any order, or there is none."""
    column_names = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    indexes = range(len(column_names))
    with_key = draw(st.booleans()) if keyed is None else keyed
    key = draw(st.permutations(indexes))[: draw(st.integers(1, len(column_names)))] if with_key else []
    columns = tuple(
        Column(name, draw(st.sampled_from(type_oids)), draw(st.integers(-1, 9)), index in key)
        for index, name in enumerate(column_names)
    )
    identity = draw(st.sampled_from([ReplicaIdentity.DEFAULT, ReplicaIdentity.INDEX, ReplicaIdentity.FULL]))
    relation = Relation(draw(st.integers(1, 2**32 - 1)), draw(names), draw(names), identity, columns)
    schema = table_schema(relation, [column_names[index] for index in key], {}, EncodeOptions())
    return Table(schema, draw(st.integers(1, 7)))


KINDS = (("insert", ""), ("update", ""), ("update", "K"), ("update", "O"), ("delete", "K"), ("delete", "O"))
"""Every operation with every kind of old row."""


@st.composite
def changes(draw: st.DrawFn, table: Table, kind: tuple[str, str] | None = None) -> Change:
    """A change the server can send for the table, of one kind or any; K only when it has a key."""
    possible = [found for found in KINDS if table.key or found[1] != "K"]
    op, old_kind = kind or draw(st.sampled_from(possible))
    new = draw(_cells(table))
    if op == "insert":
        return Change(op, "", (), new)
    old = draw(_cells(table))
    if op == "delete":
        return Change(op, old_kind, _as_sent(old, old_kind, table), ())
    if draw(st.booleans()):
        new = tuple(old[index] if index in table.key else cell for index, cell in enumerate(new))
    unchanged = draw(st.sets(st.sampled_from(range(len(new)))))
    new = tuple(
        UNCHANGED if index in unchanged and (old_kind or index not in table.key) else cell
        for index, cell in enumerate(new)
    )
    return Change(op, old_kind, _as_sent(old, old_kind, table), new)


def _cells(table: Table) -> st.SearchStrategy[tuple[CellOrNot, ...]]:
    """One value per column; never null in the key."""
    cells = [_CELLS[column.type_oid] for column in table.schema.relation.columns]
    return st.tuples(*(cell if index in table.key else st.one_of(cell, st.none()) for index, cell in enumerate(cells)))


def _as_sent(old: tuple[CellOrNot, ...], kind: str, table: Table) -> tuple[CellOrNot, ...]:
    if kind == "O":
        return old
    return tuple(cell if index in table.key else None for index, cell in enumerate(old)) if kind == "K" else ()


def _wire(cells: tuple[CellOrNot, ...]) -> Tuple:
    return tuple(cell.text if isinstance(cell, Cell) else cell for cell in cells)
