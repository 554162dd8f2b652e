"""Topic names: two tables never share a topic, and every name is valid."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cdc.model.topic_names import TOPIC_LENGTH_MAX, cuts_topic, data_topic, escape, progress_topic, schema_topic
from tests.property.messages import texts

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # org.apache.kafka.common.internals.Topic
_close = st.text(st.sampled_from("ab_-2e.h% é"), min_size=1, max_size=6)
_NAME_BYTES_MAX = 63  # NAMEDATALEN - 1: no identifier of PostgreSQL is longer
_long = texts(min_size=1, max_size=_NAME_BYTES_MAX).map(
    lambda name: name.encode()[:_NAME_BYTES_MAX].decode(errors="ignore")
)
identifiers = st.one_of(_close, _long.filter(bool))
pairs = st.tuples(identifiers, identifiers)


@given(pairs, pairs)
def test_two_tables_never_share_a_topic(one: tuple[str, str], other: tuple[str, str]) -> None:
    assume(one != other)

    assert data_topic("shop", *one) != data_topic("shop", *other)


@given(st.lists(st.sampled_from(["é" * 31, "-" * 40, "a" * 63, "ß𝄞" * 8, "x"]), min_size=4, max_size=4))
def test_long_names_are_cut_and_still_differ(parts: list[str]) -> None:
    one, other = (parts[0], parts[1]), (parts[2], parts[3])
    assume(one != other)

    assert data_topic("s" * 40, *one) != data_topic("s" * 40, *other)


@given(pairs)
def test_every_topic_name_is_legal_and_short_enough(table: tuple[str, str]) -> None:
    topic = data_topic("s" * 40, *table)

    assert len(topic) <= TOPIC_LENGTH_MAX
    assert _LEGAL.fullmatch(topic)


@given(st.sampled_from(["shop", "s" * 40]), pairs)
@example("s" * 40, ("-" * _NAME_BYTES_MAX, "t"))
@example("s" * 40, ("é" * 31 + "-", "é" * 31))
def test_no_table_takes_the_name_of_a_topic_of_ours(name: str, table: tuple[str, str]) -> None:
    """Data topics have three parts, ours have two; also where a long name was cut."""
    topic = data_topic(name, *table)

    assert topic.count(".") == 2
    assert topic not in {progress_topic(name), cuts_topic(name), schema_topic(name)}


@given(identifiers, identifiers)
def test_escaping_is_injective(one: str, other: str) -> None:
    """Also for a name that looks like the escaped form of another."""
    for impostor in (other, escape(one), one.replace("-", "")):
        assert (escape(one) == escape(impostor)) == (one == impostor)


@pytest.mark.parametrize(
    ("table", "topic"),
    [
        (("public", "orders"), "shop.public.orders"),
        (("public", "Order Items"), "shop.public.Order-20Items"),
        (("public", "a.b"), "shop.public.a-2eb"),
        (("public", "a-b"), "shop.public.a-2db"),
        (("public", "a\tb"), "shop.public.a-09b"),
        (("public", "é"), "shop.public.-c3-a9"),
    ],
)
def test_names_of_topics_never_change(table: tuple[str, str], topic: str) -> None:
    assert data_topic("shop", *table) == topic


def test_cut_name_says_so_and_keeps_its_hash() -> None:
    topic = data_topic("shop", "é" * 31, "é" * 31)

    assert len(topic) == TOPIC_LENGTH_MAX
    assert re.search(r"-h[0-9a-f]{16}$", topic)
    assert topic == data_topic("shop", "é" * 31, "é" * 31)
