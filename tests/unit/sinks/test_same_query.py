"""The comparison of plans as texts."""

from __future__ import annotations

import pytest

from sinks.warehouse.views.same_query import _conditions, _turned, _without_many

AND = "class org.apache.spark.sql.catalyst.expressions.And, None"


@pytest.mark.parametrize(
    ("condition", "turned"),
    [
        ("(cast(none as decimal(38,6)) > scalar-subquery [])", "(scalar-subquery [] < cast(none as decimal(38,6)))"),
        ("(scalar-subquery [] < cast(none as decimal(38,6)))", "(scalar-subquery [] < cast(none as decimal(38,6)))"),
        ("(none >= 1)", "(1 <= none)"),
        ("(none = 1)", "(1 = none)"),
        ("(1 = none)", "(1 = none)"),
        ("((none + 1) = (none > 2))", "((none + 1) = (none > 2))"),
    ],
)
def test_one_comparison_has_one_text_whichever_operand_is_first(condition: str, turned: str) -> None:
    assert _turned(condition) == turned


@pytest.mark.parametrize(
    "text",
    [
        f"multicommutativeop(((0.9 * cast(none as decimal(20,0))) <= none), isnotnull(none), (none > 1), {AND})",
        f"multicommutativeop((1 < none), isnotnull(none), (none >= (0.9 * cast(none as decimal(20,0)))), {AND})",
    ],
)
def test_three_conditions_have_one_text_in_any_order(text: str) -> None:
    expected = ["((0.9 * cast(none as decimal(20,0))) <= none)", "(1 < none)", "isnotnull(none)"]

    assert _conditions(_without_many(text)) == expected


def test_operands_inside_operands_have_one_text_in_any_order() -> None:
    texts = {
        _without_many(f"multicommutativeop(none, multicommutativeop({one}, class s.Or, None), isnotnull(none), {AND})")
        for one in ("none IN (1,2), (none = 3), c", "c, none IN (1,2), (3 = none)")
    }

    assert texts == {"((3 = none) OR c OR none IN (1,2)) AND isnotnull(none) AND none".join("()")}


@pytest.mark.parametrize("text", ["(none = multicommutativeop()", "multicommutativeop(a, b, c)", "multicommutativeop("])
def test_literals_that_look_like_it_stay(text: str) -> None:
    assert _without_many(text) == text


@pytest.mark.parametrize("condition", ["isnotnull(none)", "(none = a > b)", "(none LIKE x)", "(NOT (none > 1))"])
def test_other_conditions_stay(condition: str) -> None:
    assert _turned(condition) == condition
