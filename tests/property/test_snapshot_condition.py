"""Conditions of snapshots: parsed as written, and no text of them reaches PostgreSQL as SQL."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot.condition import (
    AllOf,
    AnyOf,
    Between,
    Compare,
    Condition,
    ConditionError,
    InList,
    IsNull,
    Not,
    as_sql,
    columns,
    parse,
)

_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
_NAME = _TEXT.filter(bool)
_OPERATOR = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
_LEAF: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Compare, _NAME, _OPERATOR, _TEXT),
    st.builds(InList, _NAME, st.lists(_TEXT, min_size=1, max_size=3).map(tuple)),
    st.builds(Between, _NAME, _TEXT, _TEXT),
    st.builds(IsNull, _NAME),
)


def _above(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    some = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(Not, inner), st.builds(AllOf, some), st.builds(AnyOf, some))


def text_of(condition: Condition) -> str:
    return as_sql(condition).as_string(None)


CONDITIONS = st.recursive(_LEAF, _above, max_leaves=8)


@given(CONDITIONS)
def test_condition_survives_its_own_text(condition: Condition) -> None:
    assert parse(text_of(condition)) == condition


@given(CONDITIONS)
def test_text_of_a_condition_is_made_of_fixed_words_quoted_names_and_quoted_literals(condition: Condition) -> None:
    bare = re.sub(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""", "?", text_of(condition), flags=re.DOTALL)

    assert set(re.split(r"[\s(),]+", bare)) <= {
        "", "?", "=", "<>", "<", "<=", ">", ">=", "and", "or", "not", "in", "between", "is", "null"
    }  # fmt: skip


@given(st.text(max_size=60) | st.lists(st.sampled_from(
    ["a", '"B"', "and", "or", "not", "(", ")", "1", "'x'", "=", "<>", "in", ",", "is", "null", "between", ";", "--"]
), max_size=14).map(" ".join))  # fmt: skip
def test_any_text_is_a_condition_or_a_named_error(text: str) -> None:
    with suppress(ConditionError):
        assert columns(parse(text))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Id>=-1.5e3", Compare("id", ">=", "-1.5e3")),
        ("\"Id\" != 'it''s'", Compare("Id", "<>", "it's")),
        ("a = 1 or b = 2 and not c is null",
         AnyOf((Compare("a", "=", "1"), AllOf((Compare("b", "=", "2"), Not(IsNull("c"))))))),
        ("(a = 1 or b = 2) and c in (1, 'x', true)",
         AllOf((AnyOf((Compare("a", "=", "1"), Compare("b", "=", "2"))), InList("c", ("1", "x", "true"))))),
        ("a between 1 and 2 and b not in (3)", AllOf((Between("a", "1", "2"), Not(InList("b", ("3",)))))),
    ],
)  # fmt: skip
def test_words_bind_as_in_sql(text: str, meant: Condition) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected a column at the end"),
        ("id", "a comparison"),
        ("id = 1; drop table t", "character 7"),
        ("id = 1 -- x", "character 8"),
        ("id = other", "a literal"),
        ("lower(id) = 'x'", "a comparison"),
        ("id = null", "use IS NULL"),
        ("id = 1 and", "expected a column at the end"),
        ("(id = 1", "expected ) at the end"),
        ("id = 'x", "character 6"),
        ("not " * 60 + "a = 1", "nested"),
        ("a = '\0'", "null character"),
        ("a = 1 " * 20_000, "characters"),
    ],
)
def test_invalid_condition_is_refused_with_its_position(text: str, why: str) -> None:
    with pytest.raises(ConditionError, match=re.escape(why)):
        parse(text)
