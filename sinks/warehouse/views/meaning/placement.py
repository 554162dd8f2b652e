"""Where PostgreSQL allows aggregates and window functions. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from sinks.warehouse.views.meaning.refusal import NotProven, as_written
from sinks.warehouse.views.meaning.typed import Typed

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a query.

    Attributes:
        name: for messages.
        aggregates: whether it may have aggregates.
        windows: whether it may have window functions.
    """

    name: str
    aggregates: bool = False
    windows: bool = False


SELECT: Final = Place("select", aggregates=True, windows=True)
HAVING: Final = Place("having", aggregates=True)
WINDOW: Final = Place("a window function", aggregates=True)
WHERE: Final = Place("where")
ON: Final = Place("join conditions")
GROUP: Final = Place("group by")
AGGREGATE: Final = Place("an aggregate")
FILTER: Final = Place("filter")
ROWS: Final = Place("from")
_HINT: Final = "compute it in a subquery: select ... from (select ...) as name"


def check_window(walk: Expressions, node: exp.Expr) -> None:
    """Refuse a window function where PostgreSQL does."""
    if not walk.place.windows:
        raise NotProven(node, f"uses a window function in {walk.place.name}", _HINT)


def aggregated(walk: Expressions, node: exp.Expr, make: Callable[[Expressions], Typed]) -> Typed:
    """Translate an aggregate of this SELECT; `make` translates it in its own place. Raises NotProven."""
    from sinks.warehouse.views.meaning.expressions import Expressions

    scope = walk.scope
    if not walk.place.aggregates:
        hint = "write the condition in having" if walk.place == WHERE else _HINT
        raise NotProven(node, f"uses an aggregate in {walk.place.name}", hint)
    before, free, keys, scope.keys = scope.marks(), len(scope.free), scope.keys, {}
    correlated = scope.correlated
    found = make(Expressions(scope, AGGREGATE))
    scope.keys, scope.correlated = keys, correlated
    after = scope.marks()
    own, outer = after[0] > before[0], after[1:] != before[1:]
    if outer:
        what = "mixes columns of a subquery and of the query around it" if own else "belongs to the query around it"
        raise NotProven(
            node,
            f"uses an aggregate that {what}: {as_written(node)}",
            "move the outer column out of the aggregate, or join the tables",
        )
    del scope.free[free:]
    scope.aggregated = True
    return found if scope.grouped is None else scope.grouped.aggregate(found)
