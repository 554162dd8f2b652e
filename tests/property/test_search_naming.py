from __future__ import annotations

import contextlib

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import DecodeError
from sinks.search.index_names import ID_BYTES_MAX, alias_of, document_id, index_of, key_of, parse_index

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="."), min_size=1, max_size=80)
PARTS = st.one_of(st.integers(), st.text(max_size=200), st.booleans())


def encoded(key: object) -> bytes:
    return msgspec.json.encode(key)


@given(NAMES, NAMES, NAMES, NAMES)
def test_alias_is_legal_and_no_other_tables(namespace: str, table: str, other: str, another: str) -> None:
    first = alias_of("shop", "Search", f"{namespace}.{table}")
    second = alias_of("shop", "Search", f"{other}.{another}")

    assert (first == second) == ((namespace, table) == (other, another))
    assert first == first.lower()
    assert len(index_of(first, 999_999_999, "id").encode()) <= 255
    assert not set(first) & set('\\/*?"<>| ,#:')


@given(NAMES, st.integers(1, 10**9 - 1))
def test_index_says_whose_it_is(table: str, generation: int) -> None:
    alias = alias_of("shop", "search", f"public.{table}")

    assert parse_index(index_of(alias, generation, "topic-id")) == (alias, generation)
    assert parse_index(alias) is None


@given(st.lists(PARTS, min_size=1, max_size=3), st.data())
def test_keys_of_one_table_never_share_an_id(values: list[object], data: st.DataObject) -> None:
    same_types = [{int: st.integers(), str: st.text(max_size=600), bool: st.booleans()}[type(v)] for v in values]
    other = [data.draw(kind) for kind in same_types]
    names = [f"c{n}" for n in range(len(values))]
    first, second = (document_id(encoded(dict(zip(names, key, strict=True)))) for key in (values, other))

    assert (first == second) == (values == other)
    assert 0 < len(first.encode()) <= ID_BYTES_MAX
    assert first.isascii()


@given(st.text(max_size=50), st.integers())
def test_key_is_read_back_from_the_document(text: str, number: int) -> None:
    key = encoded({"b": text, "a": number})
    row = msgspec.json.decode(encoded({"a": number, "x": None, "b": text}), type=dict[str, msgspec.Raw])

    assert key_of(row, ("b", "a")) == key
    assert key_of(row, ("b", "missing")) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_a_key_or_an_error(key: bytes) -> None:
    with contextlib.suppress(DecodeError):
        document_id(key)
