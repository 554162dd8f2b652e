"""Names of rows in a cache: two rows never share a name, whatever their keys are."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import ConfigError, TopicMismatch
from sinks.cache.cached_rows import digits, mark_text, parsed_mark
from sinks.cache.row_names import DEFAULT, Names, check_apart, mark, value_of
from sinks.contract import Topic

VALUES = st.one_of(st.text(), st.integers(-(2**63), 2**63 - 1))
TEXTS = st.text(st.sampled_from("ab:/%{}*?[]\\ é\n-"), max_size=4)
PAIR = Topic("shop.public.items", "id", 1, "public.items", ("a", "b"))
TEMPLATES = (DEFAULT, "i:{a}/{b}", "{name}/{key}:x", "{table}:{b}:{a}:{b}")


def key_of(a: object, b: object) -> bytes:
    return json.dumps({"a": a, "b": b}, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize("template", TEMPLATES)
@given(one=st.tuples(TEXTS, TEXTS), other=st.tuples(TEXTS, TEXTS))
def test_two_keys_never_share_a_name(template: str, one: tuple[str, str], other: tuple[str, str]) -> None:
    names = Names(PAIR, "shop", "cache", template)

    assert (names.value(key_of(*one)) == names.value(key_of(*other))) == (one == other)


@given(a=VALUES, b=VALUES)
def test_a_name_is_what_an_application_makes_by_percent_encoding(a: object, b: object) -> None:
    found = Names(PAIR, "shop", "cache").value(key_of(a, b))

    assert found == f"shop:cache:public.items:{quote(str(a), safe='')}:{quote(str(b), safe='')}"
    assert value_of(mark(found)) == found
    assert not set(found) & set("{}*?[]\\ \n")


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("x:{a}", "lacks the key column b"),
        ("{a}:{b}", "begins with a value"),
        ("x:{a}{b}", "two values need : or /"),
        ("x:{a}-{b}", "two values need : or /"),
        ("x:{a}:{b}:{c}", r"unknown \{c\}; expected one of \{name\}, \{sink\}, \{table\}, \{key\}, \{a\}, \{b\}"),
        ("x*:{key}", "only contain letters"),
        ("x:{a}:{b", "only contain letters"),
    ],
)
def test_template_by_which_rows_could_share_a_name_is_refused_with_the_reason(template: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Names(PAIR, "shop", "cache", template)


def test_tables_whose_names_could_meet_are_refused() -> None:
    check_apart([("a", "x:"), ("b", "y:"), ("c", "xy:")])
    with pytest.raises(ConfigError, match="rows of a and b could have the same name"):
        check_apart([("c", "y:"), ("a", "x:"), ("b", "x:1")])


@pytest.mark.parametrize("key", [b"[1]", b"{", b'{"a":1}', b"\xff"])
def test_key_that_is_none_of_ours_is_refused_without_showing_it(key: bytes) -> None:
    with pytest.raises(TopicMismatch, match="not a JSON object with a, b"):
        Names(PAIR, "shop", "cache").value(key)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.text())
def test_versions_compare_as_their_digits_do_and_marks_read_back(one: int, other: int, key: str) -> None:
    assert (digits(one) < digits(other)) == (one < other)
    assert parsed_mark(mark_text(one, "r", "abcdef", key.encode()).encode()) == (one, "r", "abcdef", key.encode())


@given(st.binary(max_size=40))
def test_any_bytes_are_a_mark_or_none(text: bytes) -> None:
    found = parsed_mark(text)

    assert found is None or (b"%019d" % found.version, found.key) == (text[:19], text[26:])


@given(st.binary(max_size=12), st.integers(-(2**63), 2**63))
def test_short_way_of_a_number_is_the_long_one(noise: bytes, number: int) -> None:
    topic = PAIR._replace(key=("a",))
    names = Names(topic, "shop", "cache")

    assert names.value(b'{"a":%d}' % number) == names.value(b'{ "a" : %d }' % number)
    try:
        found = names.value(b'{"a":' + noise + b"}")
    except TopicMismatch:
        return
    assert found == names.value(b'{ "a":' + noise + b"}")
