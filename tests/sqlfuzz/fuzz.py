"""A run of the fuzzer: expressions in batches, then queries; counts, and a minimal case of each class of difference."""

from __future__ import annotations

import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sqlglot import exp, parse_one

from tests.sqlfuzz.batches import Batches, statement
from tests.sqlfuzz.expressions import Expressions, columns_of
from tests.sqlfuzz.on_postgres import Answer, Raised
from tests.sqlfuzz.outcome import DIFFERENCES, Outcome, Tally, compared
from tests.sqlfuzz.queries import Queries
from tests.sqlfuzz.rules import AGGREGATES, SCALARS, WINDOWS
from tests.sqlfuzz.shrinking import Case, Shrinker
from tests.sqlfuzz.tables import values

if TYPE_CHECKING:
    from tests.sqlfuzz.as_view import Views
    from tests.sqlfuzz.on_postgres import Postgres
    from tests.sqlfuzz.tree import Node

BATCH: Final = 200
_PRODUCT_BATCHES: Final = 50
"""One of so many batches, and of so many queries, runs with the settings of a sink, over files."""
_DEPTH: Final = 3
_TRIES: Final = 4
_AS_DRAWN: Final = 0.05
"""The share of expressions and queries that are compared as they are drawn, accepted or not."""
_WILD_SHARE: Final = 0.35
_REPORT_S: Final = 30.0
_PROBES: Final = 6  # a rule may be refused for one column, or literal, and not for another
_EXPRESSIONS_SHARE: Final = 0.6  # of a limited time
_LIMIT: Final = re.compile(r" limit \d+( offset \d+)?$")


@dataclass(slots=True)
class Differences:
    """Minimal cases, each with the number of differing queries that contain all its constructs."""

    cases: list[Case] = field(default_factory=list)
    counts: Counter[frozenset[str]] = field(default_factory=Counter)

    def known(self, node: Node) -> bool:
        """Whether a case explains the difference; counts it."""
        families = _families(node)
        for case in self.cases:
            if _families(case.node) <= families:
                self.counts[case.node.features] += 1
                return True
        return False


class Fuzz:
    """One run on two open sides.

    Args:
        left_out: names of constructs that are not generated.
        refused: names of rules that views refuse, which are drawn seldom.
        classes_max: after so many classes of differences, others are only counted.
    """

    def __init__(
        self,
        postgres: Postgres,
        views: Views,
        *,
        seed: int,
        left_out: Collection[str],
        refused: Collection[str],
        classes_max: int = 20,
    ) -> None:
        self._postgres = postgres
        self._views = views
        self._drawn = random.Random(seed)
        self._left_out = left_out
        self._classes_max = classes_max
        self._shrinker = Shrinker(postgres, views)
        self.expressions = Tally()
        self.queries = Tally()
        self.differences = Differences()
        self.invalid: Counter[str] = Counter()
        self.refused = refused

    def run(self, *, expressions: int, queries: int, seconds: float = float("inf")) -> None:
        """Compare expressions, then queries; at most for this time."""
        start = time.monotonic()
        self.run_expressions(expressions, start + seconds * (_EXPRESSIONS_SHARE if queries else 1))
        self.run_queries(queries, start + seconds)

    def run_expressions(self, count: int, until: float = float("inf")) -> None:
        """Compare expressions, until so many are done or the monotonic clock says so."""
        made = Expressions(self._drawn, self._left_out, self.refused)
        batches = Batches(self._postgres, self._views)
        scope = columns_of("mild")
        done, said = 0, time.monotonic()
        while done < count and time.monotonic() < until:
            nodes = []
            for _ in range(min(BATCH, count - done)):
                table = "wild" if self._drawn.random() < _WILD_SHARE else "mild"
                node = self._drawn_again(
                    lambda: made.any(scope, self._drawn.randint(1, _DEPTH)),
                    lambda one: self._accepts(statement("mild", one)),
                )
                nodes.append((node, table))
            with self._views.product() if done // BATCH % _PRODUCT_BATCHES == _PRODUCT_BATCHES - 1 else nullcontext():
                found = list(batches.outcomes(nodes))
            done += len(nodes)
            for node, sql, found_outcome in found:
                outcome = found_outcome
                if outcome.result == "answers" and self._raises(f"explain {sql}"):
                    outcome = Outcome("unchecked", "PostgreSQL raises an error of a constant while it plans")
                self._take(self.expressions, node, sql, outcome, _again(sql, node))
            said = self._progress("expressions", done, said)

    def run_queries(self, count: int, until: float = float("inf")) -> None:
        """Compare queries, as `run_expressions`."""
        made = Queries(self._drawn, self._left_out, self.refused, self._answers)
        said = time.monotonic()
        for done in range(count):
            if time.monotonic() > until:
                return
            node = self._drawn_again(made.query, lambda one: self._answers(str(one)))
            with self._views.product() if done % _PRODUCT_BATCHES == _PRODUCT_BATCHES - 1 else nullcontext():
                outcome = compared(self._postgres, self._views, str(node))
            if outcome.result == "raises" and self._raises_without_limit(str(node)):
                outcome = Outcome("unchecked", "PostgreSQL does not compute what LIMIT leaves out")
            if outcome.result == "raises" and self._postgres.raises_with_another_plan(str(node)):
                outcome = Outcome("unchecked", "PostgreSQL raises with another plan of the query")
            if outcome.result == "raises" and any(map(self._raises, filters_computed(str(node)))):
                outcome = Outcome("unchecked", "PostgreSQL raises if it joins before it filters")
            if outcome.result == "raises" and any(map(self._raises, inputs_of_set_operations(str(node)))):
                outcome = Outcome("unchecked", "PostgreSQL need not read every input of INTERSECT and EXCEPT")
            if outcome.result == "answers":
                outcome = Outcome("unchecked", "PostgreSQL computes the parts of the query in its own order")
            self._take(self.queries, node, str(node), outcome, str)
            said = self._progress("queries", done + 1, said)

    def _accepts(self, sql: str) -> bool:
        return not isinstance(self._views.read(sql), str)

    def _answers(self, sql: str) -> bool:
        """Whether a view is accepted and PostgreSQL does not raise: an error hides the other parts of a query."""
        return self._accepts(sql) and isinstance(self._postgres.answer(sql), Answer)

    def _raises_without_limit(self, sql: str) -> bool:
        """Whether PostgreSQL raises for the rows that the query leaves out at its end."""
        return self._raises(_LIMIT.sub("", sql))

    def _raises(self, sql: str) -> bool:
        answer = self._postgres.answer(sql)
        return isinstance(answer, Raised) and not answer.invalid

    def _drawn_again(self, make: Callable[[], Node], good: Callable[[Node], bool]) -> Node:
        """Draw again what a view refuses, so that most of what is compared is accepted."""
        node = make()
        for _ in range(_TRIES if self._drawn.random() >= _AS_DRAWN else 0):
            if good(node):
                break
            node = make()
        return node

    def _take(
        self,
        tally: Tally,
        node: Node,
        sql: str,
        outcome: Outcome,
        written: Callable[[Node], str],
    ) -> None:
        tally.add(outcome, node.features)
        if outcome.result == "invalid":
            self.invalid[f"{outcome.detail}: {sql}"] += 1
        if outcome.result not in DIFFERENCES or self.differences.known(node):
            return
        if len(self.differences.cases) >= self._classes_max:
            return
        case = self._shrinker.shrunk(node, written) or Case(node, sql, {}, outcome)
        self.differences.cases.append(case)
        self.differences.counts[case.node.features] += 1
        print(described(case), file=sys.stderr, flush=True)

    def _progress(self, what: str, done: int, said: float) -> float:
        if time.monotonic() - said < _REPORT_S:
            return said
        tally = self.expressions if what == "expressions" else self.queries
        print(f"{done} {what}: {dict(tally.results)}", file=sys.stderr, flush=True)
        return time.monotonic()


def refused_rules(views: Views) -> frozenset[str]:
    """Return the rules that views refuse over columns and literals; reading a view needs no Spark."""
    made, scope = Expressions(random.Random(0)), columns_of("mild")
    refused = set()
    for rule in (*SCALARS, *AGGREGATES, *WINDOWS):
        texts = (f"select {made.probe(rule, scope)} as x from mild" for _ in range(_PROBES))
        if all(isinstance(views.read(text), str) for text in texts):
            refused.add(rule.name)
    return frozenset(refused)


def _families(node: Node) -> frozenset[str]:
    return frozenset(name.partition("(")[0] for name in node.features)


def _again(sql: str, node: Node) -> Callable[[Node], str]:
    """Return how the shrinker writes an expression: in the query that showed the difference."""
    text = str(node)
    before, _, after = sql.partition(text)
    return lambda smaller: f"{before}{smaller}{after}"


def filters_computed(sql: str) -> Iterator[str]:
    """Yield queries that compute each WHERE of a query for all rows of its FROM, as SQL is defined."""
    for part in parse_one(sql, dialect="postgres").find_all(exp.Select):
        where = part.args.get("where")
        if where is not None:
            made = exp.Select(expressions=[where.this.copy()])
            made.set("from_", part.args["from_"].copy())
            made.set("joins", [join.copy() for join in part.args.get("joins") or []])
            yield made.sql(dialect="postgres")


def inputs_of_set_operations(sql: str) -> Iterator[str]:
    """Yield the inputs of INTERSECT and EXCEPT: if one has no rows, PostgreSQL may not read the other."""
    for part in parse_one(sql, dialect="postgres").find_all(exp.Intersect, exp.Except):
        for one in (part.this, part.expression):
            yield one.sql(dialect="postgres")


def described(case: Case) -> str:
    """Return a difference for a person: constructs, query, rows of its tables, both answers."""
    lines = [f"--- {' + '.join(sorted(case.node.features)) or 'no construct'}", case.sql]
    for table, ids in case.rows.items():
        for row in values(table):
            if int(str(row["id"])) in ids:
                used = {name: value for name, value in row.items() if re.search(rf"(?<!')\b{name}\b(?!')", case.sql)}
                lines.append(f"  {table}: {used}")
    return "\n".join([*lines, f"  {case.outcome.result}: {case.outcome.detail}"])
