from __future__ import annotations

import msgspec
import pytest

from sinks.search.index_names import document_id, index_of


def encoded(key: object) -> bytes:
    return msgspec.json.encode(key)


def test_index_of_a_topic_that_was_made_again_has_another_name() -> None:
    assert index_of("a.b.c.d", 1, "one") != index_of("a.b.c.d", 1, "two")


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ({"id": 1}, "1"),
        ({"id": -5}, "-5"),
        ({"id": "a0eebc99-9c0b"}, "a0eebc99-9c0b"),
        ({"a": 1, "b": "x,y"}, "1,x%2Cy"),
        ({"id": "a b"}, "a%20b"),
    ],
)
def test_id_is_what_a_person_would_ask_for(key: object, name: str) -> None:
    assert document_id(encoded(key)) == name
