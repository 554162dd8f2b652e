"""From a relation in the stream to key, topic and schema record."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cdc.capture.table_planner import TablePlanner
from cdc.config.load import parse
from cdc.encode.avro_transcoder import AvroTranscoder
from cdc.encode.flat_transcoder import FlatTranscoder
from cdc.errors import RegistryRefused, SourceRefused
from cdc.lsn import Lsn
from cdc.model.incomplete_record import IncompleteRecords
from cdc.model.progress_record import AvroIds, AvroSchemas, KeyColumn, KeyForm, TopicForm, key_width
from cdc.model.relation import Column, Relation, ReplicaIdentity
from cdc.model.type_facts import TypeFacts
from tests.fixtures.capture.source_builders import table

_CONFIG = """
name = "shop"
[source]
dsn = "host=h"
tables = ["public.*", "!public.audit_*"]
keyless = ["public.log"]
[kafka]
bootstrap = "h:9092"
"""
_AVRO = f'{_CONFIG}[encode]\nformat = "avro"\n[registry]\nurl = "http://h:8081"\n'
_AT = Lsn(77)


class Planning:
    """A planner whose catalog is a dictionary; records the requests and the opened topics."""

    def __init__(
        self,
        *,
        keys: Mapping[int, tuple[str, ...]] | None = None,
        types: Mapping[int, TypeFacts] | None = None,
        config: str = _CONFIG,
        recorded: Mapping[str, TopicForm] | None = None,
        key_id: int = 7,
    ) -> None:
        self.registered: list[tuple[str, AvroSchemas, str]] = []
        self._key_id = key_id
        self._keys = keys or {}
        self._types = types or {}
        self.roots: dict[int, Sequence[str]] = {}
        self.generated: dict[int, Sequence[str]] = {}
        self.asked: list[list[int]] = []
        self.topics: list[tuple[str, bool]] = []
        self.planner = TablePlanner(
            parse(config, {}),
            "shop_db",
            self,
            self._open,
            epoch=2,
            forms=recorded or {},
            holes=IncompleteRecords(),
            registry=self,
        )

    def register(self, topic: str, schemas: AvroSchemas, table: str) -> AvroIds:
        self.registered.append((topic, schemas, table))
        return AvroIds(self._key_id, 8)

    def ancestors(self, oid: int) -> Sequence[str]:
        return self.roots.get(oid, ())

    def key_columns(self, oid: int, wanted: Sequence[str]) -> tuple[str, ...]:
        return self._keys.get(oid, ())

    def generated_columns(self, oid: int) -> Sequence[str]:
        return self.generated.get(oid, ())

    def types(self, oids: Sequence[int]) -> dict[int, TypeFacts]:
        self.asked.append(list(oids))
        return {oid: self._types[oid] for oid in oids if oid in self._types}

    def _open(self, topic: str, compacted: bool) -> int:
        self.topics.append((topic, compacted))
        return 3


def _relation(
    name: str = "orders",
    *,
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT,
    key: Sequence[str] = ("id",),
    type_oid: int = 25,
    oid: int = 16384,
) -> Relation:
    full = identity is ReplicaIdentity.FULL
    columns = (("id", 23), ("region", 23), ("thing", type_oid))
    return Relation(
        oid,
        "public",
        name,
        identity,
        tuple(Column(column, kind, -1, full or column in key) for column, kind in columns),
    )


def test_table_outside_the_configuration_is_left_out() -> None:
    planning = Planning()

    assert planning.planner.plan(_relation("audit_log"), _AT) is None
    assert planning.topics == []


def test_key_is_the_identity_the_stream_names_in_column_order() -> None:
    planned = Planning().planner.plan(_relation(key=("region", "id"), identity=ReplicaIdentity.INDEX), _AT)

    assert planned is not None
    assert planned.transcoder.schema.key == (0, 1)


def test_key_of_a_full_table_is_its_primary_key_and_not_every_column() -> None:
    planning = Planning(keys={16384: ("region", "id")})

    planned = planning.planner.plan(_relation(identity=ReplicaIdentity.FULL), _AT)

    assert planned is not None
    assert planned.transcoder.schema.key == (0, 1)


@pytest.mark.parametrize("identity", [ReplicaIdentity.DEFAULT, ReplicaIdentity.NOTHING, ReplicaIdentity.FULL])
def test_table_without_a_key_is_passed_over_alone_with_what_to_do(identity: ReplicaIdentity) -> None:
    planning = Planning()
    left: list[str] = []
    planning.planner.leave = left.append

    assert planning.planner.plan(_relation(identity=identity, key=()), _AT) is None
    assert planning.planner.plan(_relation(identity=identity, key=()), _AT) is None

    found = planning.planner.left_out["public.orders"]
    assert found.reason == "no_key"
    assert "add a primary key" in found.statement
    assert left == ["public.orders"], "told once"
    assert planning.topics == []


def test_table_that_has_a_key_again_is_planned() -> None:
    planning = Planning()
    planning.planner.plan(_relation(key=()), _AT)

    assert planning.planner.plan(_relation(), _AT) is not None
    assert planning.planner.left_out == {}


def test_table_that_may_be_keyless_has_a_topic_that_is_not_compacted() -> None:
    planning = Planning()

    planned = planning.planner.plan(_relation("log", identity=ReplicaIdentity.FULL, key=()), _AT)

    assert planned is not None
    assert planned.transcoder.schema.key == ()
    assert planning.topics == [("shop.public.log", False)]
    assert not planned.buffer.compacted


@pytest.mark.parametrize(
    ("former", "message"),
    [
        ((KeyColumn("id", "int4", "integer"),), ""),
        ((KeyColumn("id", "int8", "integer"),), ""),
        (
            (KeyColumn("id", "numeric", "decimal", -1),),
            r"key column 'id' .* written as integer of int4 now.* decimal of num",
        ),
        ((KeyColumn("region", "int4", "integer"),), r"its key is \(id\) now, and its topic has rows under \(region\)"),
    ],
)
def test_table_whose_keys_look_otherwise_than_those_of_its_topic_is_passed_over(former: KeyForm, message: str) -> None:
    planning = Planning(recorded={"public.orders": TopicForm(former)})

    planned = planning.planner.plan(_relation(), _AT)

    assert (planned is None) == bool(message)
    if message:
        found = planning.planner.left_out["public.orders"]
        assert found.reason == "key_changed"
        assert re.search(message, found.problem)


def test_option_that_writes_keys_otherwise_is_refused_for_all_tables() -> None:
    former = (KeyColumn("id", "int4", "integer_string"),)

    with pytest.raises(SourceRefused, match=r"key column 'id' .* would be written as integer now"):
        Planning(recorded={"public.orders": TopicForm(former)}).planner.plan(_relation(), _AT)


def test_topic_keeps_the_format_it_has() -> None:
    """A reader of rows would take envelopes for rows, and vice versa."""
    key = (KeyColumn("id", "int4", "integer"),)
    config = f'{_CONFIG}[encode]\nformat = "flat"\n'

    with pytest.raises(SourceRefused, match=r"records in the format 'json'; encode\.format is 'flat' now"):
        Planning(config=config, recorded={"public.orders": TopicForm(key)}).planner.plan(_relation(), _AT)
    planned = Planning(config=config, recorded={"public.orders": TopicForm(key, "flat")}).planner.plan(_relation(), _AT)

    assert planned is not None
    assert isinstance(planned.transcoder, FlatTranscoder)
    assert planned.schemas[0].format == "flat"


def test_schemas_are_registered_before_a_row_is_planned() -> None:
    planning = Planning(config=_AVRO)

    planned = planning.planner.plan(_relation(), _AT)

    assert planned is not None
    assert isinstance(planned.transcoder, AvroTranscoder)
    ((topic, schemas, table),) = planning.registered
    assert (topic, table) == ("shop.public.orders", "public.orders")
    assert '"namespace":"shop.public.orders"' in schemas.value
    assert planned.schemas[0].registered == AvroIds(7, 8)


def test_keys_that_the_registry_has_under_another_id_are_not_written() -> None:
    """The id is part of the key's bytes: the same row would have two keys."""
    recorded = {"public.orders": TopicForm((KeyColumn("id", "int4", "integer"),), "avro", 7)}

    assert Planning(config=_AVRO, recorded=recorded).planner.plan(_relation(), _AT) is not None
    with pytest.raises(RegistryRefused, match=r"schema id 9 for the keys of public\.orders, but the topic has id 7"):
        Planning(config=_AVRO, recorded=recorded, key_id=9).planner.plan(_relation(), _AT)


def test_nothing_is_registered_for_a_topic_that_has_another_format() -> None:
    planning = Planning(config=_AVRO, recorded={"public.orders": TopicForm((KeyColumn("id", "int4", "integer"),))})

    with pytest.raises(SourceRefused, match="in the format 'json'"):
        planning.planner.plan(_relation(), _AT)

    assert planning.registered == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("int2", "integer"), ("public.positive", "integer"), True),
        (("text", "string"), ("varchar", "string"), True),
        (("text", "string"), ("bpchar", "string", 14), False),  # padded
        (("bpchar", "string", 14), ("bpchar", "string", 15), False),
        (("inet", "string"), ("cidr", "string"), False),  # 10.0.0.1 and 10.0.0.1/32
        (("float4", "float"), ("float8", "float"), False),  # 0.1 and 0.10000000149011612
        (("time", "time"), ("timetz", "time"), False),
        (("timestamp", "timestamp"), ("timestamptz", "timestamp_utc"), False),
        (("numeric", "decimal", 2), ("numeric", "decimal", 3), False),  # 1.50 and 1.500
        (("numeric", "decimal", 2), ("numeric", "decimal", 2), True),
        (("uuid", "uuid"), ("text", "string"), False),
        (("text[]", "array<string>"), ("bpchar[]", "array<string>"), False),
    ],
)
def test_types_whose_keys_are_the_same_bytes(one: tuple[Any, ...], other: tuple[Any, ...], same: bool) -> None:
    first, second = KeyColumn("k", *one), KeyColumn("k", *other)

    assert first.written_as(second) is second.written_as(first) is same


@pytest.mark.parametrize(
    ("type_name", "modifier", "width"),
    [("numeric", -1, -1), ("numeric", (10 << 16 | 2) + 4, 2), ("numeric", (10 << 16 | 2046) + 4, -2), ("text", 9, 0)],
)
def test_width_of_a_key_is_what_its_text_shows(type_name: str, modifier: int, width: int) -> None:
    assert key_width(type_name, modifier) == width


def test_topic_is_opened_once_and_its_buffer_stays_when_the_shape_changes() -> None:
    planning = Planning()

    first = planning.planner.plan(_relation(), _AT)
    second = planning.planner.plan(_relation(type_oid=23), _AT)

    assert first is not None
    assert second is not None
    assert first.buffer is second.buffer
    assert planning.topics == [("shop.public.orders", True)]
    assert len(first.buffer.partitions) == 3


def test_schema_record_comes_once_for_each_shape() -> None:
    planning = Planning()

    plans = [planning.planner.plan(_relation(type_oid=oid), _AT) for oid in (25, 23, 25, 25)]

    assert [len(planned.schemas) for planned in plans if planned is not None] == [1, 1, 0, 0]
    assert plans[0] is not None
    (record,) = plans[0].schemas
    assert (record.table, record.topic, record.epoch, record.lsn) == ("public.orders", "shop.public.orders", 2, 77)


def test_types_that_are_not_built_in_are_asked_for_down_to_what_they_stand_on() -> None:
    types = {
        20000: TypeFacts(20000, "moods[]", "b", element_oid=20001),
        20001: TypeFacts(20001, "mood", "d", base_oid=20002),
        20002: TypeFacts(20002, "raw_mood", "e"),
    }
    planning = Planning(types=types)

    planned = planning.planner.plan(_relation(type_oid=20000), _AT)

    assert planning.asked == [[20000], [20001], [20002]]
    assert planned is not None
    assert planned.transcoder.schema.encodings[2].encoding == "array<string>"


def test_type_the_catalog_does_not_know_any_more_is_its_text() -> None:
    """A replay can contain a type that was dropped since."""
    planned = Planning().planner.plan(_relation(type_oid=20000), _AT)

    assert planned is not None
    assert planned.transcoder.schema.encodings[2].encoding == "text"


def test_built_in_types_need_no_catalog() -> None:
    planning = Planning()

    planning.planner.plan(_relation(), _AT)

    assert planning.asked == []


def test_settings_reach_the_encoding() -> None:
    planning = Planning(config=_CONFIG + '[encode]\nnumeric = "number"\nint64 = "string"\n')

    planned = planning.planner.plan(_relation(type_oid=1700), _AT)

    assert planned is not None
    assert planned.transcoder.schema.encodings[2].encoding == "decimal_number"


@pytest.mark.parametrize("listed", [False, True])
def test_schema_of_the_catalog_is_the_schema_of_the_stream(listed: bool) -> None:
    """Otherwise a start would announce ids that no row ever names."""
    planning = Planning()
    source = table("orders")
    shown = source.columns[: 1 + len(source.columns) // 2] if listed else source.columns
    columns = tuple(Column(c.name, c.type_oid, c.type_modifier, c.name in source.key) for c in shown)
    streamed = Relation(source.oid, "public", "orders", ReplicaIdentity.DEFAULT, columns)

    introduced = planning.planner.introduce([source], {source.oid: {c.name for c in shown}}, _AT)
    planned = planning.planner.plan(streamed, _AT)

    assert planned is not None
    assert [record.schema_id for record in introduced] == [planned.transcoder.schema.schema_id]
    assert planned.schemas == []


def test_partition_of_a_captured_table_gets_no_topic_of_its_own() -> None:
    planning = Planning()
    relation = _relation("orders_2026")
    planning.roots = {relation.oid: ["public.orders"]}

    assert planning.planner.plan(relation, Lsn(1)) is None
    assert planning.topics == []
