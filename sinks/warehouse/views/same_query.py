"""Whether Spark reads two texts of a query as the same one: the text of a view's file, and the form its plans are of.

The planner's parser is not Spark's. Where it took an operator, a function or a literal for another one, the optimised
plans of the two differ, and the view is recomputed. Compared are Spark's canonical plans; where these number their
columns in another way, which windows and unions do, the plans without numbers, and without lists of bare columns.
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
    """The JVM's plan: its API has no name in Python."""
    return frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - nothing public has it


def _shape(plan: Any) -> list[str]:
    """What is done, step by step, whatever the columns are numbered. A table has no order, so none of it counts."""
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
    """A list without columns that are taken as they are."""
    return _BARE.sub("", text).replace(", ]", "]")
