"""Translates expressions: finds the type that PostgreSQL gives them, and writes what is known to be equal. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning import arithmetic, casts, conditions, functions, moments
from sinks.warehouse.views.meaning.aggregates import aggregate, is_aggregate, ordered_aggregate, percentile
from sinks.warehouse.views.meaning.coercion import common, unified
from sinks.warehouse.views.meaning.pg_types import BOOL, INT4, INT8, INTEGERS, TEXT, UNKNOWN, numeric
from sinks.warehouse.views.meaning.refusal import NotProven, as_written
from sinks.warehouse.views.meaning.typed import NULL, Typed, text_literal
from sinks.warehouse.views.meaning.windows import window

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.scope import Scope

_INT4_MAX: Final = 2**31 - 1
_INT8_MAX: Final = 2**63 - 1
_LITERAL_DIGITS: Final = 28


class Expressions:
    """Translates the expressions of one SELECT.

    Attributes:
        scope: the inputs that its names mean.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def of(self, node: exp.Expr) -> Typed:
        """Return the translation of an expression. Raises NotProven."""
        kind = type(node)
        if kind in _HANDLERS:
            found: Typed = _HANDLERS[kind](self, node)
            return Typed(f"(not {found.sql})", BOOL) if node.args.get("negate") else found
        if is_aggregate(node):
            return aggregate(self, node, "")
        if isinstance(node, exp.Func):
            return functions.call(self, node)
        raise NotProven(node, f"uses {as_written(node)}, which is not known to be equal in Spark")

    def condition(self, node: exp.Expr) -> str:
        """Return a boolean expression."""
        return conditions.truth(node, self.of(node)).sql

    def _column(self, node: exp.Column) -> Typed:
        return self.scope.resolve(node)

    def _literal(self, node: exp.Literal) -> Typed:
        text = str(node.this)
        if node.is_string:
            return Typed(text_literal(text), UNKNOWN, text)
        if text.isdigit():
            value = int(text)
            if value <= _INT8_MAX:
                return Typed(str(value), INT4 if value <= _INT4_MAX else INT8, str(value))
        whole, point, behind = text.partition(".")
        if not (whole + behind).isdigit() or len(whole + behind) > _LITERAL_DIGITS or not point:
            raise NotProven(node, f"uses the number {text[:60]}", "write it with digits and a point only")
        digits = max(len(whole.lstrip("0")) + len(behind), len(behind), 1)
        return Typed(f"cast({text} as decimal({digits},{len(behind)}))", numeric(digits, len(behind)))

    def _boolean(self, node: exp.Boolean) -> Typed:
        return Typed("true" if node.this else "false", BOOL)

    def _null(self, node: exp.Null) -> Typed:  # noqa: ARG002  handlers have one form
        return Typed(NULL, UNKNOWN)

    def _paren(self, node: exp.Paren) -> Typed:
        found = self.of(node.this)
        if found.source is not None or found.literal is not None or found.sql == NULL:
            return found
        return Typed(f"({found.sql})", found.type, c=found.c)

    def _collate(self, node: exp.Collate) -> Typed:
        found, name = self.of(node.this), node.expression
        if name.name not in {"C", "POSIX", "ucs_basic"} or not name.args.get("quoted"):
            raise NotProven(node, f"uses the collation {name.name}", 'Spark knows collate "C" only')
        if found.type.name == "unknown":
            found = Typed(found.sql, TEXT, found.literal)
        return Typed(found.sql, found.type, found.literal, found.source, c=True)

    def _negative(self, node: exp.Neg) -> Typed:
        found = self.of(node.this)
        if found.type.name not in {*INTEGERS, "numeric"}:
            raise NotProven(node, f"negates {found.type}", "cast it to numeric")
        if found.literal is not None and found.type.name in INTEGERS:
            return Typed(f"(-{found.sql})", found.type, f"-{found.literal}")
        return found.of(f"(-{found.sql})", found.type)

    def _case(self, node: exp.Case) -> Typed:
        subject = node.this
        tests = []
        for branch in node.args["ifs"]:
            test = exp.EQ(this=subject.copy(), expression=branch.this.copy()) if subject is not None else branch.this
            if subject is not None:
                test.parent = node
            tests.append(self.condition(test))
        values = [self.of(branch.args["true"]) for branch in node.args["ifs"]]
        default = node.args.get("default")
        values.append(self.of(default) if default is not None else Typed(NULL, UNKNOWN))
        values, kind = unified(node, values)
        branches = " ".join(f"when {test} then {value.sql}" for test, value in zip(tests, values[:-1], strict=True))
        return Typed(f"case {branches} else {values[-1].sql} end", kind, c=any(value.c for value in values))

    def _coalesce(self, node: exp.Coalesce) -> Typed:
        values, kind = unified(node, [self.of(one) for one in (node.this, *node.expressions)])
        return Typed(f"coalesce({', '.join(one.sql for one in values)})", kind, c=any(one.c for one in values))

    def _nullif(self, node: exp.Nullif) -> Typed:
        left, right = self.of(node.this), self.of(node.expression)
        a, b = conditions.sides(node, left, right, order=False)
        if left.type.name == "unknown":
            left = common(node, [left, right])[0][0]
        kind = left.type.spark
        return left.of(f"case when {a.sql} = {b.sql} then cast(null as {kind}) else {left.sql} end", left.type)

    def _extreme(self, node: exp.Greatest | exp.Least) -> Typed:
        values, kind = unified(node, [self.of(one) for one in (node.this, *node.expressions)])
        conditions.check_order(node, kind, c=any(one.c for one in values))
        if kind.name == "bpchar":
            raise NotProven(node, "compares char(n)", "cast it to text")
        name = "greatest" if isinstance(node, exp.Greatest) else "least"
        return Typed(f"{name}({', '.join(one.sql for one in values)})", kind)

    def _filter(self, node: exp.Filter) -> Typed:
        tail = f" filter (where {self.condition(node.expression.this)})"
        if isinstance(node.this, exp.WithinGroup):
            return percentile(self, node.this, tail)
        return self._aggregate(node.this, tail)

    def _aggregate(self, node: exp.Expr, tail: str) -> Typed:
        if isinstance(node, exp.ArrayAgg | exp.GroupConcat):
            return ordered_aggregate(self, node, tail)
        if not is_aggregate(node):
            raise NotProven(node, f"uses {as_written(node)} as an aggregate")
        return aggregate(self, node, tail)

    def _ordered(self, node: exp.Expr) -> Typed:
        return ordered_aggregate(self, node, "")

    def _within(self, node: exp.WithinGroup) -> Typed:
        return percentile(self, node, "")

    def _window(self, node: exp.Window) -> Typed:
        return window(self, node)

    def _scalar(self, node: exp.Subquery) -> Typed:
        found = self.scope.subquery(node, node.this)
        if len(found.columns) != 1:
            raise NotProven(node, f"uses a subquery with {len(found.columns)} columns as a value", "select one column")
        return Typed(f"({found.render()})", found.columns[0].value.type)

    def _exists(self, node: exp.Exists) -> Typed:
        return Typed(f"exists ({self.scope.subquery(node, node.this).render()})", BOOL)


_OWN: Final[dict[type[exp.Expr], Any]] = {
    exp.Column: Expressions._column,  # noqa: SLF001  a table of its own methods
    exp.Literal: Expressions._literal,  # noqa: SLF001
    exp.Boolean: Expressions._boolean,  # noqa: SLF001
    exp.Null: Expressions._null,  # noqa: SLF001
    exp.Paren: Expressions._paren,  # noqa: SLF001
    exp.Collate: Expressions._collate,  # noqa: SLF001
    exp.Neg: Expressions._negative,  # noqa: SLF001
    exp.Case: Expressions._case,  # noqa: SLF001
    exp.Coalesce: Expressions._coalesce,  # noqa: SLF001
    exp.Nullif: Expressions._nullif,  # noqa: SLF001
    exp.Greatest: Expressions._extreme,  # noqa: SLF001
    exp.Least: Expressions._extreme,  # noqa: SLF001
    exp.Filter: Expressions._filter,  # noqa: SLF001
    exp.ArrayAgg: Expressions._ordered,  # noqa: SLF001
    exp.GroupConcat: Expressions._ordered,  # noqa: SLF001
    exp.WithinGroup: Expressions._within,  # noqa: SLF001
    exp.Window: Expressions._window,  # noqa: SLF001
    exp.Subquery: Expressions._scalar,  # noqa: SLF001
    exp.Exists: Expressions._exists,  # noqa: SLF001
}
_HANDLERS: Final[dict[type[exp.Expr], Any]] = {
    **_OWN,
    **conditions.HANDLERS,
    **functions.HANDLERS,
    **casts.HANDLERS,
    **moments.HANDLERS,
    **arithmetic.HANDLERS,
}
"""sqlglot's class -> its handler, which takes this class only."""
