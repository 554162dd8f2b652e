"""A translated query: its columns with their types, and its Spark SQL. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.views.meaning.typed import Typed


@dataclass(frozen=True, slots=True)
class Selected:
    """A result column: its name, empty if it has none, and its value."""

    name: str
    value: Typed

    def with_value(self, value: Typed) -> Selected:
        """Return it with another value."""
        return replace(self, value=value)

    def render(self) -> str:
        """Return it as a part of SELECT."""
        if not self.name or (self.value.source is not None and self.value.source[1] == self.name):
            return self.value.sql
        return f"{self.value.sql} as {quoted(self.name)}"


class Relation(ABC):
    """A query. Its columns may be changed until it is rendered: a set operation casts those of its arms."""

    columns: list[Selected]

    @abstractmethod
    def render(self) -> str:
        """Return its Spark SQL."""


@dataclass(slots=True)
class Select(Relation):
    """One SELECT.

    Attributes:
        columns: what it selects.
        distinct: whether equal rows are one.
        clauses: FROM to HAVING.
        tail: ORDER BY, LIMIT and OFFSET.
        first_of: PARTITION BY and ORDER BY of a DISTINCT ON.
        with_: the WITH in front of it.
    """

    columns: list[Selected]
    clauses: str
    distinct: bool = False
    tail: str = ""
    first_of: tuple[str, str] | None = None
    with_: str = ""

    def render(self) -> str:
        """See `Relation`."""
        shown = ", ".join(one.render() for one in self.columns)
        if self.first_of is None:
            return f"{self.with_}select {'distinct ' if self.distinct else ''}{shown}{self.clauses}{self.tail}"
        names = ", ".join(quoted(one.name) for one in self.columns)
        partition, order = self.first_of
        place = f"row_number() over (partition by {partition} order by {order}) as `place__`"
        inner = f"select {shown}, {place}{self.clauses}"
        return f"{self.with_}select {names} from ({inner}) as `first__` where `place__` = 1{self.tail}"


@dataclass(slots=True)
class Combined(Relation):
    """A UNION, INTERSECT or EXCEPT."""

    left: Relation
    right: Relation
    operator: str
    columns: list[Selected] = field(default_factory=list)
    tail: str = ""
    with_: str = ""

    def render(self) -> str:
        """See `Relation`."""
        return f"{self.with_}{_arm(self.left)} {self.operator} {_arm(self.right)}{self.tail}"


def _arm(found: Relation) -> str:
    plain = isinstance(found, Select) and not found.tail and not found.with_ and found.first_of is None
    return found.render() if plain else f"({found.render()})"
