"""Syntax trees of generated SQL, and smaller trees for the shrinker.

A node knows its text only as pieces around its children. That suffices to print it, and to remove parts of it: a
smaller tree that is not valid SQL is refused by PostgreSQL and dropped by the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a query.

    Attributes:
        kind: the type of an expression, or the name of a clause.
        parts: text and children, in order.
        feature: name of the rule that made it; empty for plain parts.
        optional: whether the query stays complete without it.
        between: separator of a list; None for other nodes. A list keeps at least one item.
    """

    kind: str
    parts: tuple[Part, ...]
    feature: str = ""
    optional: bool = False
    between: str | None = None

    def __str__(self) -> str:
        return (self.between or "").join(map(str, self.parts))

    @property
    def features(self) -> frozenset[str]:
        """The names of all rules in it."""
        return frozenset(node.feature for node in self.walk() if node.feature)

    @property
    def size(self) -> int:
        """The number of nodes."""
        return sum(1 for _ in self.walk())

    def walk(self) -> Iterator[Node]:
        """Yield it and everything below it."""
        yield self
        for part in self.parts:
            if isinstance(part, Node):
                yield from part.walk()


Part: TypeAlias = "str | Node"


def leaf(kind: str, text: str, feature: str = "") -> Node:
    """Return a node without children."""
    return Node(kind, (text,), feature)


def listed(kind: str, items: Sequence[Node], between: str = ", ") -> Node:
    """Return a list of which the shrinker may remove items."""
    return Node(kind, tuple(items), between=between)


def filled(kind: str, template: str, arguments: Sequence[Node], feature: str = "", *, optional: bool = False) -> Node:
    """Return a node for a template with ``{0}``, ``{1}``, ...; an argument may occur twice."""
    parts: list[Part] = []
    rest = template
    while "{" in rest:
        text, _, rest = rest.partition("{")
        number, _, rest = rest.partition("}")
        parts += [text, arguments[int(number)]]
    return Node(kind, (*parts, rest), feature, optional)


def smaller(node: Node, leaves: Mapping[str, Sequence[str]]) -> Iterator[Node]:
    """Yield trees with one part removed or replaced, large steps first; `leaves` has simple texts of each kind."""
    if node.optional and node.parts:
        yield Node(node.kind, ())
    below = [part for part in node.walk() if part is not node and part.kind == node.kind and not part.optional]
    yield from below
    if len(node.parts) > 1 and node.between is None:
        for text in leaves.get(node.kind, ()):
            yield leaf(node.kind, text)
    if node.between is not None and len(node.parts) > 1:
        for index in range(len(node.parts)):
            yield replace(node, parts=(*node.parts[:index], *node.parts[index + 1 :]))
    for index, part in enumerate(node.parts):
        if isinstance(part, Node):
            for one in smaller(part, leaves):
                yield replace(node, parts=(*node.parts[:index], one, *node.parts[index + 1 :]))
