from __future__ import annotations

import pytest

from cdc.errors import SinkUnfit
from sinks.search.mapping import form_of, source_of, values_of, with_kept
from tests.fixtures.sinks.search_targets import column, schema


@pytest.mark.parametrize(
    ("type_name", "encoding", "field"),
    [
        ("int2", "integer", "short"),
        ("int4", "integer", "integer"),
        ("_int4", "array<integer>", "integer"),
        ("int8", "integer", "long"),
        ("numeric", "decimal", "double"),
        ("float8", "float", "double"),
        ("bool", "boolean", "boolean"),
        ("timestamptz", "timestamp_utc", "date"),
        ("date", "date", "date"),
        ("text", "string", "text"),
        ("_text", "array<string>", "text"),
        ("uuid", "uuid", "keyword"),
        ("mood", "string", "keyword"),
        ("bytea", "hexadecimal", "keyword"),
        ("jsonb", "json", "keyword"),
        ("hstore", "hstore_json", "flat_object"),
    ],
)
def test_field_follows_the_columns_type(type_name: str, encoding: str, field: str) -> None:
    form = form_of(schema(column("c", type_name, encoding)), {}, "string")

    assert form.fields["c"]["type"] == field


def test_settings_choose_a_field_and_must_name_a_column() -> None:
    record = schema(column("name"), column("doc", "jsonb", "json"))

    form = form_of(record, {"name": {"type": "text", "analyzer": "english"}, "doc": {"type": "flat_object"}}, "string")

    assert form.fields["name"]["analyzer"] == "english"
    assert form.parsed == {"doc"}
    with pytest.raises(SinkUnfit, match="nmae"):
        form_of(record, {"nmae": {"type": "text"}}, "string")


@pytest.mark.parametrize("name", ["a.b", "_id", "_source", " "])
def test_column_that_cannot_be_a_field_stops_the_sink_and_is_named(name: str) -> None:
    with pytest.raises(SinkUnfit) as caught:
        form_of(schema(column(name)), {}, "string")

    assert caught.value.facts["column"] == name


def test_key_of_json_values_is_refused_because_two_keys_would_be_one_document() -> None:
    with pytest.raises(SinkUnfit, match="key"):
        form_of(schema(column("id", "jsonb", "json_value", key=True)), {}, "string")


def test_document_stays_on_one_line_whatever_its_json_looks_like() -> None:
    form = form_of(schema(column("doc", "json", "json_value")), {}, "object")

    assert source_of(b'{"doc":{"a":\n1,"b":"\\n"}}', form) == b'{"doc":{"a": 1,"b":"\\n"}}'


def test_kept_columns_have_the_values_of_the_store_and_the_others_their_own() -> None:
    merged = with_kept(b'{"a":1,"b":2}', b'{"b":3.10,"c":4,"d":5}', ("b", "c", "x"))

    assert merged == b'{"a":1,"b":3.10,"c":4}'


def test_numbers_are_compared_with_all_their_digits() -> None:
    one, other = b'{"n":0.1234567890123456789}', b'{"n":0.1234567890123456788}'

    assert values_of(one) != values_of(other)
