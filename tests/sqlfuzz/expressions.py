"""Generates typed expressions over the columns of a scope."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tests.sqlfuzz.kinds import SIMPLE
from tests.sqlfuzz.rules import AGGREGATES, LITERALS, SCALARS, WINDOWS, Rule
from tests.sqlfuzz.tables import COLUMNS, TABLES
from tests.sqlfuzz.tree import Node, filled, leaf

_COLUMN_SHARE: Final = 0.75
_RARE_SHARE: Final = 0.03
_TYPES: Final = {
    "boolean": "bool",
    "numeric(12,3)": "numeric",
    "numeric(30,10)": "numeric",
    "varchar(12)": "varchar",
    "char(6)": "char",
    "char(3)": "char",
}
Scope = Mapping[str, Sequence[str]]
"""Type -> columns, as they are written."""


def columns_of(table: str, alias: str = "") -> dict[str, list[str]]:
    """Return the scope of one table."""
    found: dict[str, list[str]] = {}
    for name in TABLES[table]:
        kind = _TYPES.get(COLUMNS[name], COLUMNS[name])
        found.setdefault(kind, []).append(f"{alias}.{name}" if alias else name)
    return found


def merged(scopes: Sequence[Scope]) -> dict[str, list[str]]:
    """Return the columns of several tables."""
    found: dict[str, list[str]] = {}
    for scope in scopes:
        for kind, names in scope.items():
            found.setdefault(kind, []).extend(names)
    return found


class Expressions:
    """Draws expressions.

    Args:
        drawn: the source of chance.
        left_out: names and families of rules that are not generated.
        rare: names of rules that are drawn seldom, because views refuse them.
    """

    def __init__(self, drawn: random.Random, left_out: Collection[str] = (), rare: Collection[str] = ()) -> None:
        self._drawn = drawn
        self._rare = frozenset(rare)
        self._scalars = _enabled(SCALARS, left_out)
        self._aggregates = _enabled(AGGREGATES, left_out)
        self._windows = _enabled(WINDOWS, left_out)
        self._by_result: dict[str, list[Rule]] = {}
        for rule in self._scalars:
            self._by_result.setdefault(rule.result, []).append(rule)

    def _choice(self, rules: Sequence[Rule]) -> Rule:
        if self._rare and self._drawn.random() >= _RARE_SHARE:
            rules = [rule for rule in rules if rule.name not in self._rare] or rules
        return self._drawn.choice(rules)

    def any(self, scope: Scope, depth: int) -> Node:
        """Return an expression of any type; every rule is as likely as another."""
        rule = self._choice(self._scalars)
        return self._filled(rule, scope, depth)

    def probe(self, rule: Rule, scope: Scope) -> Node:
        """Return a rule over columns and literals."""
        return self._filled(rule, scope, 0)

    def of(self, kind: str, scope: Scope, depth: int) -> Node:
        """Return an expression of a type."""
        rules = self._by_result.get(kind, ())
        if depth > 0 and rules and self._drawn.random() < 0.7:
            return self._filled(self._choice(rules), scope, depth)
        if kind in LITERALS:
            return leaf(kind, self._drawn.choice(LITERALS[kind]))
        columns = scope.get(kind, ())
        if columns and self._drawn.random() < _COLUMN_SHARE:
            return leaf(kind, self._drawn.choice(columns))
        return leaf(kind, self._drawn.choice(SIMPLE[kind]))

    def column(self, kind: str, scope: Scope) -> Node:
        """Return a column of a type, or a literal if there is none."""
        columns = scope.get(kind, ()) or SIMPLE[kind]
        return leaf(kind, self._drawn.choice(columns))

    def aggregate(self, scope: Scope, key: str, depth: int) -> Node:
        """Return an aggregate; `key` orders the rows totally."""
        made = self._filled(self._choice(self._aggregates), scope, depth, key)
        if self._drawn.random() < 0.2:
            return filled(made.kind, "{0} filter (where {1})", [made, self.of("bool", scope, 1)], "filter")
        return made

    def window(self, scope: Scope, key: str, depth: int) -> Node:
        """Return a window function; `key` orders the rows totally."""
        rule = self._choice(self._windows)
        arguments = [self._typed(self.of(kind, scope, self._drawn.randint(0, depth))) for kind in rule.arguments]
        return filled(rule.result, rule.template.replace("{@}", key), arguments, rule.name)

    def _typed(self, node: Node) -> Node:
        """Return it with a type: PostgreSQL finds none for an untyped literal in a window function."""
        untyped = len(node.parts) == 1 and str(node).startswith("'") and "::" not in str(node)
        return (
            filled(node.kind, f"{{0}}::{'char(6)' if node.kind == 'char' else node.kind}", [node]) if untyped else node
        )

    def _filled(self, rule: Rule, scope: Scope, depth: int, key: str = "id") -> Node:
        arguments = [self.of(kind, scope, self._drawn.randint(0, depth - 1) if depth else 0) for kind in rule.arguments]
        return filled(rule.result, rule.template.replace("{@}", key), arguments, rule.name)


def _enabled(rules: Sequence[Rule], left_out: Collection[str]) -> list[Rule]:
    return [rule for rule in rules if rule.name not in left_out and rule.family not in left_out]
