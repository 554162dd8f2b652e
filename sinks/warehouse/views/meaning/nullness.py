"""Finds expressions that are never null. Spark does not compute one to know that, so an error of it is lost. Pure."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

_NEVER: Final = (
    *(exp.Literal, exp.Boolean, exp.Count, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Exists),
    *(exp.Array, exp.Concat, exp.Format),  # whatever the operands are
)
_NEVER_BY_NAME: Final = frozenset({"jsonb_build_array", "jsonb_build_object"})
_MAYBE: Final = (exp.Column, exp.Null, exp.Nullif, exp.Query, exp.Subquery, exp.AggFunc, exp.Window)
_NOT_STRICT: Final = (
    *(exp.Case, exp.If, exp.Cast, exp.Nullif, exp.Coalesce, exp.Greatest, exp.Least),
    *(exp.Array, exp.Concat, exp.ConcatWs, exp.Format, exp.AggFunc, exp.Connector, exp.Predicate),
)


def is_constant(node: exp.Expr) -> bool:
    """Whether an expression has no column, aggregate or query."""
    return node.find(exp.Column, exp.AggFunc, exp.Query) is None


def is_computed(node: exp.Expr) -> bool:
    """Whether a constant is the result of a computation, and not a number with or without signs and casts."""
    if isinstance(node, exp.Neg):
        number = node.this.unnest()
        while isinstance(number, exp.Cast):
            number = number.this.unnest()
        mantissa = str(number.this).lower().partition("e")[0] if isinstance(number, exp.Literal) else ""
        return is_constant(node) and not mantissa.strip("0.")
    return isinstance(node, exp.Binary | exp.Func) and not isinstance(node, exp.Cast) and is_constant(node)


def skips_the_rest(node: exp.Expr) -> bool:
    """Whether a function or operator has a constant that may be null beside other operands.

    PostgreSQL knows that the result is null while it plans, and does not compute the others.
    """
    if not isinstance(node, exp.Func | exp.Binary) or isinstance(node, _NOT_STRICT):
        return False
    if isinstance(node, exp.Anonymous) and node.name.lower() in _NEVER_BY_NAME:
        return False
    operands = [one for one in _parts(node) if not isinstance(one, exp.JSONPath)]
    constant = [one for one in operands if is_constant(one)]
    return len(constant) < len(operands) and not all(map(is_never_null, constant))


def is_never_null(node: exp.Expr) -> bool:
    """Whether Spark knows, without computing it, that an expression has a value in every row."""
    if isinstance(node, _NEVER):
        return True
    if isinstance(node, _MAYBE):
        return False
    if isinstance(node, exp.Anonymous) and node.name.lower() in _NEVER_BY_NAME:
        return True
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        values = [branch.args["true"] for branch in node.args["ifs"]]
        # Spark may know which branch a condition without columns takes.
        known = any(branch.this.find(exp.Column) is None for branch in node.args["ifs"])
        return default is not None and (any if known else all)(map(is_never_null, [*values, default]))
    if isinstance(node, exp.Coalesce | exp.Greatest | exp.Least):
        return any(map(is_never_null, [node.this, *node.expressions]))
    if isinstance(node, exp.ConcatWs):
        return is_never_null(node.expressions[0])
    if isinstance(node, exp.Bracket) and isinstance(made := node.this.unnest(), exp.Array):
        # A slice, or an element: which one may be known.
        return isinstance(node.expressions[0], exp.Slice) or any(map(is_never_null, made.expressions))
    parts = _parts(node)
    return bool(parts) and all(map(is_never_null, parts))


def _parts(node: exp.Expr) -> list[exp.Expr]:
    names = exp.DataType | exp.Identifier | exp.Var
    return [part for part in node.iter_expressions() if not isinstance(part, names)]
