"""Checks that Spark reads two texts as the same query: a view's own text, and the planner's form of it.

The planner's parser is not Spark's. If it read an operator, function or literal differently, the optimised plans of the
two differ, and the view is recomputed. Spark's canonical plans are compared. Windows and unions number columns
differently in these; then the plans are compared without numbers, and without lists of bare columns.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBER: Final = re.compile(r"#\d+L?")
_TREE: Final = re.compile(r"^[\s:+\-!']*")
_BARE: Final = re.compile(r"(?<=[\[ ])none(?: AS )?(, |(?=\]))")


def same_query(one: DataFrame, other: DataFrame) -> bool:
    """Whether both have the same columns and Spark would compute them in the same way. Runs neither."""
    if _columns(one) != _columns(other):
        return False
    first, second = _optimised(one), _optimised(other)
    return bool(first.sameResult(second)) or _shape(first) == _shape(second)


def _columns(frame: DataFrame) -> list[tuple[str, str]]:
    return [(field.name.lower(), field.dataType.simpleString()) for field in frame.schema.fields]


def _optimised(frame: DataFrame) -> Any:
    """Return the JVM's plan; Python has no API for it."""
    return frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - nothing public has it


def _shape(plan: Any) -> list[str]:
    """Return the steps of a plan without column numbers. A table has no order, so sorts are left out."""
    lines = []
    for line in str(plan.canonicalized().toString()).splitlines():
        text = _NUMBER.sub("", _TREE.sub("", line)).replace("Join Cross", "Join Inner")
        if text.startswith("Project"):
            text = _without_bare(text).replace("[]", "")
            if text.strip() == "Project":
                continue
        elif text.startswith("Aggregate"):
            by, found, results = text.partition("], [")
            text = by + found + _without_bare("[" + results)
        if text and not text.startswith("Sort "):
            lines.append(text)
    return lines


def _without_bare(text: str) -> str:
    """Remove columns from a list that are taken unchanged."""
    return _BARE.sub("", text).replace(", ]", "]")
