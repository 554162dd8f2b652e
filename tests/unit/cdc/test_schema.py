"""`schema_id` is the same for the same shape, and differs after every change that affects the bytes."""

from __future__ import annotations

import msgspec
import pytest

from cdc.encode.relation_schema import table_schema
from cdc.encode.values import EncodeOptions
from cdc.errors import SourceRefused
from cdc.lsn import Lsn
from cdc.model.relation import Column, Relation, ReplicaIdentity
from cdc.model.type_facts import TypeFacts
from cdc.progress.record_format import encode

_COLUMNS = (Column("id", 23, -1, True), Column("price", 1700, 655366, False), Column("mood", 20000, -1, False))
_RELATION = Relation(16384, "public", "goods", ReplicaIdentity.DEFAULT, _COLUMNS)
_TYPES = {20000: TypeFacts(20000, "public.mood", "e")}


def _id(relation: Relation = _RELATION, key: tuple[str, ...] = ("id",), options: EncodeOptions | None = None) -> str:
    return table_schema(relation, key, _TYPES, options or EncodeOptions()).schema_id


def test_schema_id_is_eight_hex_digits_that_never_change() -> None:
    """The literal must never change: consumers have stored it."""
    assert _id() == "22bfc5e0"


def test_schema_id_does_not_depend_on_oids_of_the_table() -> None:
    """A restored or copied database has other table oids and the same shape."""
    relation = Relation(99, "public", "goods", ReplicaIdentity.DEFAULT, _COLUMNS)

    assert _id(relation) == _id()


@pytest.mark.parametrize(
    "relation",
    [
        Relation(16384, "other", "goods", ReplicaIdentity.DEFAULT, _COLUMNS),
        Relation(16384, "public", "good", ReplicaIdentity.DEFAULT, _COLUMNS),
        Relation(16384, "public", "goods", ReplicaIdentity.DEFAULT, _COLUMNS[:2]),
        Relation(16384, "public", "goods", ReplicaIdentity.DEFAULT, (_COLUMNS[0], _COLUMNS[2], _COLUMNS[1])),
        Relation(16384, "public", "goods", ReplicaIdentity.DEFAULT, (*_COLUMNS[:2], Column("m", 20000, -1, False))),
        Relation(16384, "public", "goods", ReplicaIdentity.DEFAULT, (*_COLUMNS[:2], Column("mood", 25, -1, False))),
        Relation(16384, "public", "goods", ReplicaIdentity.DEFAULT, (*_COLUMNS[:2], Column("mood", 20000, 5, False))),
    ],
)
def test_every_change_of_shape_is_another_schema(relation: Relation) -> None:
    assert _id(relation) != _id()


def test_key_and_options_are_part_of_the_schema() -> None:
    ids = {
        _id(),
        _id(key=("price",)),
        _id(key=("id", "price")),
        _id(key=()),
        _id(options=EncodeOptions(numeric="number")),
        _id(options=EncodeOptions(int64="string")),
        _id(options=EncodeOptions(time="micros")),
        _id(options=EncodeOptions(bytea="base64")),
        _id(options=EncodeOptions(bytea="base64url")),
        _id(options=EncodeOptions(bytea="base64", time="micros")),
        _id(options=EncodeOptions(interval="parts")),
        _id(options=EncodeOptions(json="value")),
        _id(options=EncodeOptions(hstore="json")),
        _id(options=EncodeOptions(format="flat")),
        _id(options=EncodeOptions(format="avro")),
    }

    assert len(ids) == 15


def test_type_that_the_catalog_has_forgotten_is_another_schema() -> None:
    """Its rows have a different form, so their schema record must not replace the former one."""
    forgotten = table_schema(_RELATION, ("id",), {}, EncodeOptions())

    assert forgotten.encodings[2].encoding == "text"
    assert forgotten.schema_id != _id()


def test_record_explains_the_id_to_consumers() -> None:
    schema = table_schema(_RELATION, ("id",), _TYPES, EncodeOptions())

    record = msgspec.json.decode(encode(schema.record("shop.public.goods", 1, Lsn(77))))

    assert record == {
        "table": "public.goods",
        "topic": "shop.public.goods",
        "schema_id": schema.schema_id,
        "epoch": 1,
        "lsn": 77,
        "replica_identity": "d",
        "key": ["id"],
        "columns": [
            _column("id", "int4", 23, -1, "integer", key=True),
            _column("price", "numeric", 1700, 655366, "decimal", key=False),
            {**_column("mood", "public.mood", 20000, -1, "string", key=False), "kind": "enum"},
        ],
    }


def test_key_column_that_is_not_in_the_stream_is_refused_by_name() -> None:
    with pytest.raises(SourceRefused, match="'sku'") as caught:
        table_schema(_RELATION, ("id", "sku"), _TYPES, EncodeOptions())

    assert caught.value.facts["column"] == "sku"


def _column(name: str, type_name: str, oid: int, modifier: int, encoding: str, *, key: bool) -> dict[str, object]:
    return {
        "name": name,
        "type": type_name,
        "type_oid": oid,
        "type_modifier": modifier,
        "encoding": encoding,
        "key": key,
    }
