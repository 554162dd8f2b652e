from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import DecodeError
from sinks.search.mapping import PLAIN, form_of, source_of
from tests.fixtures.sinks.search_targets import column, schema

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from("abc"), JSON))
def test_row_without_json_columns_is_the_document(row: dict[str, Any]) -> None:
    text = json.dumps(row).encode()

    assert source_of(text, PLAIN) == text


@given(JSON, st.integers())
def test_json_in_a_string_becomes_the_json_itself_where_the_field_has_structure(value: Any, other: int) -> None:
    form = form_of(schema(column("doc", "jsonb", "json"), column("n", "int8", "integer")), {}, "object")
    row = json.dumps({"doc": json.dumps(value, indent=1), "n": other}).encode()

    source = source_of(row, form)

    assert json.loads(source) == {"doc": value, "n": other}
    assert b"\n" not in source


@given(JSON)
def test_json_value_becomes_its_text_where_the_field_has_none(value: Any) -> None:
    form = form_of(schema(column("doc", "jsonb", "json_value")), {}, "string")

    doc = json.loads(source_of(json.dumps({"doc": value}).encode(), form))["doc"]

    assert (doc is None) if value is None else (json.loads(doc) == value)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_row_or_an_error(row: bytes) -> None:
    form = form_of(schema(column("doc", "jsonb", "json")), {}, "object")
    with contextlib.suppress(DecodeError):
        msgspec.json.decode(source_of(row, form))
