"""Checks that Spark reads two texts as the same query: a view's own text, and the planner's form of it.

The planner's parser is not Spark's. If it read an operator, function or literal differently, the optimised plans of the
two differ, and the view is recomputed. Spark's canonical plans are compared. Windows and unions number columns
differently in these, and the operands of a comparison have no fixed order; then the plans are compared without numbers,
without lists of bare columns, and with ordered operands.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBER: Final = re.compile(r"#\d+L?")
_TREE: Final = re.compile(r"^[\s:+\-!']*")
_COMPARED: Final = re.compile(r" (<=>|<=|>=|<|>|=) ")
_OPPOSITE: Final = {">": "<", ">=": "<="}
_MANY: Final = "multicommutativeop("
_OPERATOR: Final = re.compile(r"class [\w.]+\.(\w+)")
_OPERANDS_MIN: Final = 3
_BARE: Final = re.compile(r"(?<=[\[ ])none(?: AS )?(, |(?=\]))")


def same_query(one: DataFrame, other: DataFrame) -> bool:
    """Whether both have the same columns and Spark would compute them in the same way. Runs neither."""
    if not same_columns(one, other):
        return False
    first, second = _optimised(one), _optimised(other)
    return bool(first.sameResult(second)) or _shape(first) == _shape(second)


def same_columns(one: DataFrame, other: DataFrame) -> bool:
    """Whether both have columns of the same names and types, in the same order."""
    return _columns(one) == _columns(other)


def _columns(frame: DataFrame) -> list[tuple[str, str]]:
    return [(field.name.lower(), field.dataType.simpleString()) for field in frame.schema.fields]


def _optimised(frame: DataFrame) -> Any:
    """Return the JVM's plan; Python has no API for it."""
    return frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - nothing public has it


def _shape(plan: Any) -> list[str]:
    """Return the steps of a plan without column numbers. A table has no order, so only a limit's sorts are included."""
    lines = []
    whole = str(plan.canonicalized().toString())
    for line in whole.splitlines():
        text = _without_many(_NUMBER.sub("", _TREE.sub("", line))).replace("Join Cross", "Join Inner")
        text = text.replace("named_struct(", "struct(")  # one expression, shown by the name that the text has
        if text.startswith("Project"):
            text = _without_bare(text).replace("[]", "")
            if text.strip() == "Project":
                continue
        elif text.startswith("Aggregate"):
            by, found, results = text.partition("], [")
            text = by + found + _without_bare("[" + results)
        elif text.startswith("Filter "):
            text = "Filter " + " AND ".join(sorted(map(_turned, _conditions(text.removeprefix("Filter ")))))
        if not text.startswith("Filter "):
            text = _all_turned(text)
        if text and ("GlobalLimit " in whole or not text.startswith("Sort ")):
            lines.append(text)
    return lines


def _without_many(text: str) -> str:
    """Write Spark's form of three and more operands, ``multicommutativeop(b, a, c, class ...And, None)``, as pairs.

    Spark does not order them: they are in the order of the query, or of numbers of columns.
    """
    while (begin := text.rfind(_MANY)) >= 0:
        depth, parts, place = 0, [""], begin + len(_MANY)
        while place < len(text) and (depth or text[place] != ")"):
            depth += (text[place] in "([") - (text[place] in ")]")
            if not depth and text.startswith(", ", place):
                parts.append("")
                place += 1
            else:
                parts[-1] += text[place]
            place += 1
        named = _OPERATOR.fullmatch(parts[-2]) if len(parts) > _OPERANDS_MIN else None
        if named is None or place == len(text):
            return text  # of a literal
        pairs = f" {named[1].upper()} ".join(sorted(map(_turned, parts[:-2])))
        text = f"{text[:begin]}({pairs}){text[place + 1 :]}"
    return text


def _conditions(text: str) -> list[str]:
    """Return the parts of ``((a AND b) AND c)``. Spark orders them by numbers of columns, which differ."""
    if not (text.startswith("(") and text.endswith(")")):
        return [text]
    depth, ends = 0, []
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and place < len(text) - 1:
            return [text]  # the first and the last parenthesis are no pair
        if depth == 1 and text.startswith(" AND ", place):
            ends.append(place)
    starts = [1, *(end + len(" AND ") for end in ends)]
    parts = [text[start:end] for start, end in zip(starts, [*ends, len(text) - 1], strict=True)]
    return [one for part in parts for one in _conditions(part)] if ends else [text]


def _all_turned(text: str) -> str:
    """Apply `_turned` to every parenthesis, innermost first."""
    pieces: list[list[str]] = [[]]
    for character in text:
        if character == "(":
            pieces.append([])
        elif character == ")" and len(pieces) > 1:
            inner = "".join(pieces.pop())
            pieces[-1].append(_turned(f"({inner})"))
        else:
            pieces[-1].append(character)
    return "".join(pieces[0]) if len(pieces) == 1 else text


def _turned(condition: str) -> str:
    """Return ``(a > b)`` as ``(b < a)``, and operands of ``=`` in order of their text.

    Spark orders operands by hashes. That of a subquery differs between ``join`` and ``cross join`` with a condition.
    """
    depth, found = 0, []
    for place, character in enumerate(condition):
        depth += (character == "(") - (character == ")")
        if depth == 1 and (match := _COMPARED.match(condition, place)):
            found.append(match)
    if len(found) != 1 or not condition.endswith(")"):
        return condition
    operator, left, right = found[0][1], condition[1 : found[0].start()], condition[found[0].end() : -1]
    if operator in _OPPOSITE or (operator == "=" and right < left):
        return f"({right} {_OPPOSITE.get(operator, operator)} {left})"
    return condition


def _without_bare(text: str) -> str:
    """Remove columns from a list that are taken unchanged."""
    return _BARE.sub("", text).replace(", ]", "]")
