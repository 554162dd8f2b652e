"""Translates expressions: finds the type that PostgreSQL gives them, and writes what is known to be equal. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from sqlglot import exp

from sinks.warehouse.views.meaning import (
    arithmetic,
    arrays,
    bits,
    casts,
    conditions,
    documents,
    functions,
    moments,
    patterns,
    regexes,
    rounding,
    subqueries,
    texts,
)
from sinks.warehouse.views.meaning.aggregates import (
    aggregate,
    check_filtered,
    is_aggregate,
    json_aggregate,
    ordered_aggregate,
)
from sinks.warehouse.views.meaning.coercion import common, unified
from sinks.warehouse.views.meaning.decimals import decimal_literal, whole_number
from sinks.warehouse.views.meaning.grouping import grouping
from sinks.warehouse.views.meaning.nullness import is_computed, is_constant, is_never_null, skips_the_rest
from sinks.warehouse.views.meaning.percentiles import within_group
from sinks.warehouse.views.meaning.pg_types import BOOL, FLOATS, INTEGERS, TEXT, UNKNOWN, PgType
from sinks.warehouse.views.meaning.placement import FILTER, SELECT, WINDOW, Place, aggregated, check_window
from sinks.warehouse.views.meaning.refusal import NotProven, as_written
from sinks.warehouse.views.meaning.typed import NULL, Typed, text_literal
from sinks.warehouse.views.meaning.windows import window

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.scope import Scope

_EQUALITIES: Final = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In)


class Expressions:
    """Translates the expressions of one SELECT.

    Attributes:
        scope: the inputs that its names mean.
        place: the clause that it translates.
    """

    def __init__(self, scope: Scope, place: Place = SELECT) -> None:
        self.scope = scope
        self.place = place

    def at(self, place: Place) -> Expressions:
        """Return one for another clause of the same SELECT."""
        return Expressions(self.scope, place)

    def of(self, node: exp.Expr) -> Typed:
        """Return the translation of an expression. Raises NotProven."""
        free, marks = len(self.scope.free), self.scope.marks()
        found = self._translated(node)
        if found.type.name in FLOATS and is_computed(node):
            # For Spark's optimizer, the constants 0 and -0 are one.
            raise NotProven(node, "computes a constant float, which may be -0", "write its value")
        if isinstance(node, _EQUALITIES) and len(marks) > 1:
            subqueries.note_equality(self, node, marks)
        if found.sql in self.scope.keys:
            del self.scope.free[free:]
            key = self.scope.keys[found.sql]
            return replace(key, c=True) if found.c else key  # COLLATE "C" does not show in the text
        return found

    def filtering(self, node: exp.Expr) -> str:
        """Return the condition of a filter: rows for which it is null are left out."""
        inner = subqueries.inside(node)
        if isinstance(inner, exp.And):
            return f"({' and '.join(self.filtering(part) for part in inner.flatten(unnest=False))})"
        return subqueries.filtered(self, inner) or self.condition(node)

    def _translated(self, node: exp.Expr) -> Typed:
        kind = type(node)
        if skips_the_rest(node):
            raise NotProven(
                node, "computes with a constant that may be null", "write its value; of null, the result is null"
            )
        if kind in _HANDLERS:
            found: Typed = _HANDLERS[kind](self, node)
            return Typed(f"(not {found.sql})", BOOL) if node.args.get("negate") else found
        if is_aggregate(node) or _is_json(node):
            return self._aggregate(node)
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
        whole = whole_number(node)
        if whole is not None:
            return whole
        number = decimal_literal(text)
        if number is None:
            raise NotProven(node, f"uses the number {text[:60]}", "write it with at most 38 digits")
        return number

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
        whole = whole_number(node)
        if whole is not None:
            return whole
        found = self.of(node.this)
        if found.type.name not in {*INTEGERS, *FLOATS, "numeric"}:
            raise NotProven(node, f"negates {found.type}", "cast it to numeric")
        return found.of(f"(-{found.sql})", found.type)

    def _case(self, node: exp.Case) -> Typed:
        subject = node.this
        tests = []
        for branch in node.args["ifs"]:
            test = exp.EQ(this=subject.copy(), expression=branch.this.copy()) if subject is not None else branch.this
            if subject is not None:
                test.parent = node
            tests.append(self.condition(test))
            if is_constant(test):
                # PostgreSQL chooses the branch while it plans, and may then not compute what it is used in.
                raise NotProven(test, "has a condition without columns in case", "write what it chooses")
        values = [self.of(branch.args["true"]) for branch in node.args["ifs"]]
        default = node.args.get("default")
        # PostgreSQL looks at the type of else first.
        values = [self.of(default) if default is not None else Typed(NULL, UNKNOWN), *values]
        values, kind = unified(node, values)
        values = [*values[1:], values[0]]
        branches = " ".join(f"when {test} then {value.sql}" for test, value in zip(tests, values[:-1], strict=True))
        return Typed(f"case {branches} else {values[-1].sql} end", kind, c=any(value.c for value in values))

    def _coalesce(self, node: exp.Coalesce) -> Typed:
        parts = [node.this, *node.expressions]
        if any(is_constant(part) and is_never_null(part) for part in parts[:-1]):
            # PostgreSQL knows the result while it plans, and may then not compute what it is used in.
            raise NotProven(node, "uses coalesce() with a constant before other values", "leave out what follows it")
        values, kind = unified(node, [self.of(one) for one in parts])
        return Typed(f"coalesce({', '.join(one.sql for one in values)})", kind, c=any(one.c for one in values))

    def _nullif(self, node: exp.Nullif) -> Typed:
        left, right = self.of(node.this), self.of(node.expression)
        a, b = conditions.sides(node, left, right, order=False)
        if left.type.name == "unknown":
            left = common(node, [left, right])[0][0]
            if left.type.name == "bpchar":
                left = left.of(left.sql, PgType("bpchar"))  # without a length: the literal has no blanks at its end
        names = {left.type.name, right.type.name}
        if "cidr" in names:
            raise NotProven(node, "uses nullif() of cidr, which becomes inet", "write case when x <> y then x end")
        if "bpchar" in names and names - {"bpchar", "unknown"}:
            raise NotProven(node, f"uses nullif() of {left.type} and {right.type}", "cast char(n) to text")
        if left.type.name in {*INTEGERS, "numeric"} and names & {*FLOATS, "numeric"}:
            left = common(node, [left, right])[0][0]  # PostgreSQL returns the operand of its operator
        if left.type.name == "varchar":
            left = left.of(left.sql, TEXT)  # PostgreSQL compares varchars as texts, and returns one
        kind = left.type.spark
        return left.of(f"case when {a.sql} = {b.sql} then cast(null as {kind}) else {left.sql} end", left.type)

    def _extreme(self, node: exp.Greatest | exp.Least) -> Typed:
        values, kind = unified(node, [self.of(one) for one in (node.this, *node.expressions)])
        conditions.check_order(node, kind, c=any(one.c for one in values))
        if kind.name == "bpchar":
            raise NotProven(node, "compares char(n)", "cast it to text")
        shown = ", ".join(one.sql for one in values)
        if kind.name in FLOATS:
            # Of 0 and -0 the first counts. For Spark, least(a, b) and least(b, a) are one expression.
            return Typed(f"array_{'max' if isinstance(node, exp.Greatest) else 'min'}(array({shown}))", kind)
        return Typed(f"{'greatest' if isinstance(node, exp.Greatest) else 'least'}({shown})", kind)

    def _filter(self, node: exp.Filter) -> Typed:
        return self._aggregate(node.this, node.expression.this)

    def _aggregate(self, node: exp.Expr, condition: exp.Expr | None = None) -> Typed:
        """Translate an aggregate with its FILTER."""
        if condition is not None:
            check_filtered(node)

        def make(inner: Expressions) -> Typed:
            tail = f" filter (where {inner.at(FILTER).condition(condition)})" if condition is not None else ""
            if isinstance(node, exp.WithinGroup):
                return within_group(inner, node, tail)
            if isinstance(node, exp.ArrayAgg | exp.GroupConcat):
                return ordered_aggregate(inner, node, tail)
            if _is_json(node):
                return json_aggregate(inner, node, tail)
            if not is_aggregate(node):
                raise NotProven(node, f"uses {as_written(node)} as an aggregate")
            return aggregate(inner, node, tail)

        return aggregated(self, node, make)

    def _window(self, node: exp.Window) -> Typed:
        check_window(self, node)
        return window(self.at(WINDOW), node)

    def _grouping(self, node: exp.Grouping) -> Typed:
        return grouping(self, node)

    def _scalar(self, node: exp.Subquery) -> Typed:
        return subqueries.scalar(self, node, node.this)

    def _exists(self, node: exp.Exists) -> Typed:
        return subqueries.exists(self, node)


def _is_json(node: exp.Expr) -> TypeGuard[exp.Anonymous]:
    return isinstance(node, exp.Anonymous) and node.name.lower() == "jsonb_agg"


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
    exp.ArrayAgg: Expressions._aggregate,  # noqa: SLF001
    exp.GroupConcat: Expressions._aggregate,  # noqa: SLF001
    exp.WithinGroup: Expressions._aggregate,  # noqa: SLF001
    exp.Grouping: Expressions._grouping,  # noqa: SLF001
    exp.Window: Expressions._window,  # noqa: SLF001
    exp.Subquery: Expressions._scalar,  # noqa: SLF001
    exp.Exists: Expressions._exists,  # noqa: SLF001
}
_HANDLERS: Final[dict[type[exp.Expr], Any]] = {
    **_OWN,
    **conditions.HANDLERS,
    **patterns.HANDLERS,
    **texts.HANDLERS,
    **regexes.HANDLERS,
    **documents.HANDLERS,
    **casts.HANDLERS,
    **moments.HANDLERS,
    **arithmetic.HANDLERS,
    **bits.HANDLERS,
    **arrays.HANDLERS,
    **rounding.HANDLERS,
}
"""sqlglot's class -> its handler, which takes this class only."""
