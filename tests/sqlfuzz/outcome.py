"""One query on both sides: equal, refused, raised on both, or a difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import sqlglot
from sqlglot import exp

from tests.sqlfuzz.comparison import difference
from tests.sqlfuzz.on_postgres import Answer, Raised

if TYPE_CHECKING:
    from tests.sqlfuzz.as_view import Views
    from tests.sqlfuzz.on_postgres import Postgres

Result = Literal["equal", "refused", "raised", "gives up", "unchecked", "invalid", "differs", "answers", "raises"]
"""What the comparison of a query found.

    equal         the same rows
    refused       the product refuses the view
    raised        both raise
    gives up      PostgreSQL answers, the view raises on purpose, as for a number of more than 38 digits; or a window
                  function does not need every row in PostgreSQL, and a value of such a row is an error
    unchecked     PostgreSQL raises, and SQL does not define whether it must: a query's parts have no order,
                  and Spark skips the second operand where the first is null
    invalid       PostgreSQL does not accept the text: a fault of the generator
    differs       other rows: a difference
    answers       PostgreSQL raises, and the view has rows: a difference
    raises        PostgreSQL answers, and the view raises: a difference
"""
DIFFERENCES: Final = frozenset({"differs", "answers", "raises"})
REASONED: Final = ("unchecked", "gives up", "refused")
"""Results that are counted by their reason."""
_GIVES_UP: Final = (
    "NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION",
    "NUMERIC_VALUE_OUT_OF_RANGE.WITHOUT_SUGGESTION",
    "[USER_RAISED_EXCEPTION]",
)
"""Conditions of Spark for a value that the translation cannot compute as PostgreSQL does: the view is left behind."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one query, and its detail: the reason, or both answers."""

    result: Result
    detail: str = ""


@dataclass(slots=True)
class Tally:
    """Counts of a run."""

    results: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_feature: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, outcome: Outcome, features: Sequence[str] | frozenset[str]) -> None:
        """Count an outcome."""
        self.results[outcome.result] += 1
        if outcome.result in REASONED:
            self.reasons[outcome.result, outcome.detail] += 1
        for feature in features:
            self.by_feature.setdefault(feature, Counter())[outcome.result] += 1


def compared(postgres: Postgres, views: Views, sql: str) -> Outcome:
    """Run a query on both sides."""
    answer = postgres.answer(sql)
    if isinstance(answer, Raised) and answer.invalid:
        return Outcome("invalid", f"{answer.state} {answer.message}")
    view = views.read(sql)
    if isinstance(view, str):
        return Outcome("refused", view)
    found = judged(answer, views.rows(view))
    if found.result == "raises" and _skips_rows(sql):
        return Outcome("gives up", "an error in a row that a window function does not need")
    if found.result == "raises" and _compares_with_a_query(sql):
        return Outcome(
            "gives up", "an error in what is compared with a query, which PostgreSQL does not need without rows"
        )
    return found


def _skips_rows(sql: str) -> bool:
    """Whether PostgreSQL may leave an argument of a window function uncomputed in some rows."""
    return any(
        isinstance(one.this, exp.Lag | exp.Lead | exp.FirstValue | exp.LastValue | exp.NthValue)
        or (spec is not None and "CURRENT ROW" not in {spec.args.get("start"), spec.args.get("end") or "CURRENT ROW"})
        for one in sqlglot.parse_one(sql, dialect="postgres").find_all(exp.Window)
        for spec in [one.args.get("spec")]
    )


def _compares_with_a_query(sql: str) -> bool:
    """Whether a computed value is compared by IN, ANY or ALL with the rows of a query, which may have none."""
    return any(
        not isinstance(one.this, exp.Column | exp.Literal)
        for one in sqlglot.parse_one(sql, dialect="postgres").find_all(
            exp.In, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE
        )
        if one.args.get("query") is not None
        or (isinstance(one.args.get("expression"), exp.Any | exp.All) and one.expression.find(exp.Select) is not None)
    )


def judged(answer: Answer | Raised, rows: Sequence[tuple[object, ...]] | Raised) -> Outcome:
    """Compare the answer of PostgreSQL with the rows of a view."""
    if isinstance(rows, Raised):
        if rows.state.startswith(("42", "0A")) or rows.state == "refused":
            return Outcome("refused", f"by Spark: {rows.message}")
        if isinstance(answer, Raised):
            return Outcome("raised", f"{answer.state} {rows.message}")
        if any(one in rows.message for one in _GIVES_UP):
            return Outcome("gives up", rows.message)
        return Outcome("raises", f"PostgreSQL answers, view raises {rows.message}")
    if isinstance(answer, Raised):
        return Outcome("answers", f"PostgreSQL raises {answer.state} {answer.message}, view {rows[:2]}")
    found = difference(answer, rows)
    return Outcome("differs", found) if found else Outcome("equal")
