"""The comparison of plans as texts."""

from __future__ import annotations

import pytest

from sinks.warehouse.views.same_query import _turned


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


@pytest.mark.parametrize("condition", ["isnotnull(none)", "(none = a > b)", "(none LIKE x)", "(NOT (none > 1))"])
def test_other_conditions_stay(condition: str) -> None:
    assert _turned(condition) == condition
