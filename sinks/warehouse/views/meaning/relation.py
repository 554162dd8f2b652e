"""A translated query: its columns with their types, and its Spark SQL. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.views.meaning.pg_types import PgType
from sinks.warehouse.views.meaning.typed import Typed, column

_WRAPPED = "s__"


@dataclass(frozen=True, slots=True)
class Selected:
    """A result column: its name, empty if it has none, and its value."""

    name: str
    value: Typed

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
        ties: number of rows and ORDER BY of FETCH FIRST ... WITH TIES.
        with_: the WITH in front of it.
        is_one_row: whether it has aggregates without GROUP BY.
        has_condition: whether it has HAVING.
    """

    columns: list[Selected]
    clauses: str
    distinct: bool = False
    tail: str = ""
    first_of: tuple[str, str] | None = None
    ties: tuple[str, str] | None = None
    with_: str = ""
    is_one_row: bool = False
    has_condition: bool = False

    def render(self) -> str:
        """See `Relation`."""
        shown = ", ".join(one.render() for one in self.columns)
        if self.first_of is None and self.ties is None:
            return f"{self.with_}select {'distinct ' if self.distinct else ''}{shown}{self.clauses}{self.tail}"
        names = ", ".join(quoted(one.name) for one in self.columns)
        if self.first_of is not None:
            partition, order = self.first_of
            place, last = f"row_number() over (partition by {partition} order by {order})", "1"
        else:
            last, order = self.ties or ("", "")
            place = f"rank() over (order by {order})"
        inner = f"select {shown}, {place} as `place__`{self.clauses}"
        return f"{self.with_}select {names} from ({inner}) as `first__` where `place__` <= {last}{self.tail}"


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

    def name(self) -> None:
        """Give the columns of the first arm its names; Spark takes them from there."""
        self.left = renamed(self.left, [one.name for one in self.columns])


@dataclass(slots=True)
class Rows(Relation):
    """VALUES."""

    columns: list[Selected]
    rows: Sequence[Sequence[str]]

    def render(self) -> str:
        """See `Relation`."""
        fields = [[f"'c{place}', {sql}" for place, sql in enumerate(row)] for row in self.rows]
        structs = ", ".join(f"named_struct({', '.join(row)})" for row in fields)
        listed = ", ".join(quoted(one.name) for one in self.columns)
        return f"select * from inline(array({structs})) as `rows__`({listed})"


def wrapped(found: Relation) -> Select:
    """Return a SELECT of all columns of a query. A column without a name gets one."""
    found.columns = [one if one.name else Selected(f"c{place}__", one.value) for place, one in enumerate(found.columns)]
    outer = [
        Selected(one.name, Typed(column(_WRAPPED, one.name), one.value.type, c=one.value.c)) for one in found.columns
    ]
    return Select(outer, f" from ({found.render()}) as `{_WRAPPED}`")


def renamed(found: Relation, names: Sequence[str]) -> Relation:
    """Return a query with other names of its columns."""
    if list(names) == [one.name for one in found.columns]:
        return found
    if not isinstance(found, Rows) and not _is_plain(found):
        found = wrapped(found)
    found.columns = [_plain(name, one.value) for name, one in zip(names, found.columns, strict=True)]
    return found


def recast(found: Relation, place: int, value: Typed) -> Relation:
    """Return a query with another value of a column that is computed after it: after DISTINCT, a union, or LIMIT."""
    have = found.columns[place]
    if have.value.type.spark == value.type.spark and have.value.type.name != "unknown":
        found.columns[place] = Selected(have.name, replace(have.value, type=value.type))
        return found
    if not _is_plain(found):
        found = wrapped(found)
        value = retyped(found.columns[place].value, value.type)
    found.columns[place] = _plain(found.columns[place].name, value)
    return found


def retyped(found: Typed, kind: PgType) -> Typed:
    """Return a value in another type that PostgreSQL casts it to implicitly."""
    if found.type.spark == kind.spark:
        return Typed(found.sql, kind, c=found.c)
    return Typed(f"cast({found.sql} as {kind.spark})", kind, c=found.c)


def _is_plain(found: Relation) -> bool:
    return isinstance(found, Select) and not found.distinct and found.first_of is None and found.ties is None


def _plain(name: str, value: Typed) -> Selected:
    return Selected(name, Typed(value.sql, value.type, value.literal, c=value.c))


def _arm(found: Relation) -> str:
    plain = isinstance(found, Select) and not found.tail and not found.with_ and _is_plain(found)
    plain = plain or (isinstance(found, Select) and found.distinct and not found.tail and not found.with_)
    return found.render() if plain else f"({found.render()})"
