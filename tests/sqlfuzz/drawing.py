"""Draws the parts of queries: chance, names, and expressions that a view accepts.

A random expression is often one that a view refuses, and a query of many would be refused almost always. So a refused
part is drawn again a few times. Whether a part is accepted is all that the generator asks; it knows no answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.sqlfuzz.expressions import Expressions
from tests.sqlfuzz.tree import Node, filled, listed

Accepts = Callable[[str], bool]
"""Whether a view with this query is accepted."""
_TRIES: Final = 5
_AS_DRAWN: Final = 0.02
"""The share of parts that are not drawn again."""


@dataclass(frozen=True, slots=True)
class Source:
    """A FROM clause, the columns it offers, and a list of columns that identifies a row."""

    node: Node
    scope: dict[str, list[str]]
    key: str


@dataclass(slots=True)
class Drawing:
    """The state of one generator.

    Attributes:
        drawn: the source of chance.
        expressions: draws expressions.
        left_out: constructs that are not generated.
        accepts: whether a view is accepted; without it, parts are as they are drawn.
        ctes: those of the current query.
    """

    drawn: random.Random
    expressions: Expressions
    left_out: Collection[str] = ()
    accepts: Accepts | None = None
    ctes: list[Node] = field(default_factory=list)
    _alias: int = 0

    def begin(self) -> None:
        """Begin a query."""
        self._alias = 0
        self.ctes = []

    def alias(self) -> str:
        """Return a new name."""
        self._alias += 1
        return f"r{self._alias}"

    def may(self, construct: str) -> bool:
        """Whether a construct is generated."""
        return construct not in self.left_out

    def chance(self, construct: str, share: float) -> bool:
        """Draw whether a query has a construct."""
        return self.may(construct) and self.drawn.random() < share

    def pick(self, *constructs: str) -> str:
        """Draw one of some constructs; empty if all of them are left out."""
        return self.drawn.choice([one for one in constructs if self.may(one)] or [""])

    def with_ctes(self, query: Node) -> Node:
        """Return a query behind the CTEs that it may use."""
        return filled("query", "with {0} {1}", [listed("ctes", self.ctes), query]) if self.ctes else query

    def item(self, source: Source, make: Callable[[], Node]) -> Node:
        """Return an expression for SELECT, if possible one that is accepted over a source."""
        return self._tried(make, lambda one: filled("query", "select {0} as x from {1}", [one, source.node]))

    def items(self, source: Source, make: Callable[[], Node], most: int) -> list[Node]:
        """Return up to so many expressions for SELECT."""
        return [self.item(source, make) for _ in range(self.drawn.randint(1, most))]

    def condition(self, source: Source, make: Callable[[], Node]) -> Node:
        """Return a condition, if possible one that is accepted over a source."""
        return self._tried(make, lambda one: filled("query", "select 1 as x from {1} where {0}", [one, source.node]))

    def joined(self, make: Callable[[], Source]) -> Source:
        """Return a source, if possible one that is accepted."""
        before = list(self.ctes)
        found = make()
        for _ in range(_TRIES if self._again() else 0):
            if self._accepted(filled("query", "select 1 as x from {0}", [found.node])):
                break
            self.ctes = list(before)
            found = make()
        return found

    def column(self, kind: str, scope: dict[str, list[str]]) -> Node:
        """Return a column of a type, or a literal."""
        return self.expressions.column(kind, scope)

    def _tried(self, make: Callable[[], Node], query: Callable[[Node], Node]) -> Node:
        found = make()
        for _ in range(_TRIES if self._again() else 0):
            if self._accepted(query(found)):
                break
            found = make()
        return found

    def _again(self) -> bool:
        return self.accepts is not None and self.drawn.random() >= _AS_DRAWN

    def _accepted(self, query: Node) -> bool:
        return self.accepts is None or self.accepts(str(self.with_ctes(query)))


def one_of(scope: dict[str, list[str]], kinds: Sequence[str]) -> list[str]:
    """Return the types of a list that a scope has."""
    return [kind for kind in kinds if kind in scope]


def empty(kind: str) -> Node:
    """Return a clause that is not there."""
    return Node(kind, ())
