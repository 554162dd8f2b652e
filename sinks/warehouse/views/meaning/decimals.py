"""Arithmetic of numeric in Spark's decimals: exact, or an error when it is computed, never rounded silently. Pure.

PostgreSQL's numerics have up to 131072 digits, Spark's decimals 38. Spark cuts the scale of a result that would need
more. So operands are narrowed first, which raises an error for values that do not fit.

A quotient has the scale that ``select_div_scale`` in PostgreSQL's ``numeric.c`` chooses from both values: at least 16
significant digits. Spark rounds a quotient once, to the scale of its type; so there is one division for each scale.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final

from sqlglot import exp

from sinks.warehouse.views.meaning.pg_types import DIGITS_MAX, INT4, INT8, INTEGERS, PgType, numeric
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.typed import Typed, raising

QUOTIENT_SCALE: Final = 24  # quotients from 1e-8 to 1e12; an error outside
_SCALE_MAX: Final = 30
_SIGNIFICANT: Final = 16  # NUMERIC_MIN_SIG_DIGITS
_GROUP: Final = 4  # DEC_DIGITS: digits in one of numeric's own
_SPARK_SCALE_MIN: Final = 6  # Spark cuts no scale below it
_INT4_LIMIT: Final = 2**31
_INT8_LIMIT: Final = 2**63
_ROUND: Final = "write round(..., n) around the division: it gives the value a fixed scale"


def decimal_literal(text: str) -> Typed | None:
    """Return a number as a numeric, also one with an exponent; None if Spark's decimals cannot hold it."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    shown = f"{value:f}" if abs(value.adjusted()) <= DIGITS_MAX else ""
    whole, _, behind = shown.partition(".")
    digits = max(len(whole.lstrip("0")) + len(behind), 1)
    if not (whole + behind).isdigit() or digits > DIGITS_MAX:
        return None
    return Typed(f"cast({shown} as decimal({digits},{len(behind)}))", numeric(digits, len(behind)))


def whole_number(node: exp.Expr) -> Typed | None:
    """Return a constant integer with its signs; None for other expressions, and for a number that needs a numeric.

    PostgreSQL reads the signs as part of the number: -2147483648 is an int4, although 2147483648 is not.
    """
    value = _signed(node)
    if value is None or not -_INT8_LIMIT <= value < _INT8_LIMIT:
        return None
    kind, mark = (INT4, "") if -_INT4_LIMIT <= value < _INT4_LIMIT else (INT8, "L")
    return Typed(f"{value}{mark}" if value >= 0 else f"({value}{mark})", kind, str(value))


def _signed(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Paren):
        return _signed(node.this)
    if isinstance(node, exp.Neg):
        below = _signed(node.this)
        return None if below is None else -below
    text = str(node.this) if isinstance(node, exp.Literal) and not node.is_string else ""
    return int(text) if text.isdigit() else None


def as_decimal(found: Typed) -> Typed:
    """Return an integer as a numeric; a numeric unchanged."""
    if found.type.name == "numeric":
        return found
    digits = INTEGERS[found.type.name] if found.literal is None else len(found.literal.lstrip("-0")) or 1
    kind = numeric(digits, 0)
    return found.of(f"cast({found.sql} as {kind.spark})", kind)


def aligned(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Return two numerics that Spark compares exactly."""
    a, b = left.type, right.type
    scale = max(a.scale, b.scale)
    if max(a.precision - a.scale, b.precision - b.scale) + scale <= DIGITS_MAX:
        return left, right
    return _cast(left, DIGITS_MAX, scale), _cast(right, DIGITS_MAX, scale)


def added(node: exp.Expr, left: Typed, right: Typed, operator: str) -> Typed:
    """Return a sum or a difference."""
    a, b = left.type, right.type
    scale = max(a.scale, b.scale)
    precision = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    if precision > DIGITS_MAX:
        _check_scale(node, scale)
        left, right, precision = _cast(left, DIGITS_MAX - 1, scale), _cast(right, DIGITS_MAX - 1, scale), DIGITS_MAX
    # PostgreSQL's scale of a sum is the larger one of both values.
    mixed = _is_mixed(a, b, scale)
    return Typed(f"({left.sql} {operator} {right.sql})", numeric(precision, scale, mixed=mixed, quotient=_either(a, b)))


def multiplied(node: exp.Expr, left: Typed, right: Typed) -> Typed:
    """Return a product."""
    a, b = left.type, right.type
    scale, precision = a.scale + b.scale, a.precision + b.precision + 1
    _check_scale(node, scale)
    if precision > DIGITS_MAX:
        room = DIGITS_MAX - 1
        # The wider one is narrowed, down to half of the digits; then the other one.
        if a.precision >= b.precision:
            second = min(b.precision, max(room // 2, b.scale))
            first = room - second
        else:
            first = min(a.precision, max(room // 2, a.scale))
            second = room - first
        left, right, precision = _cast(left, first, a.scale), _cast(right, second, b.scale), DIGITS_MAX
    mixed = a.mixed or b.mixed
    return Typed(f"({left.sql} * {right.sql})", numeric(precision, scale, mixed=mixed, quotient=_either(a, b)))


def remainder(left: Typed, right: Typed) -> Typed:
    """Return the remainder; its sign is that of the dividend in both."""
    a, b = left.type, right.type
    scale = max(a.scale, b.scale)
    left, right = aligned(left, right)
    precision = min(a.precision - a.scale, b.precision - b.scale) + scale
    return Typed(
        f"({left.sql} % {right.sql})",
        numeric(precision, scale, mixed=_is_mixed(a, b, scale), quotient=_either(a, b)),
    )


def divided(node: exp.Expr, left: Typed, right: Typed) -> Typed:
    """Return a quotient."""
    a, b = left.type, right.type
    if _either(a, b):
        raise NotProven(node, "divides a quotient, whose scale depends on its value", _ROUND)
    least = max(a.scale, b.scale)
    _check_scale(node, least)
    result = numeric(DIGITS_MAX, QUOTIENT_SCALE, mixed=True, quotient=True)
    if least > QUOTIENT_SCALE:
        raise NotProven(node, f"divides numbers with {least} digits after the point", _ROUND)
    row = (
        f"named_struct('a', {left.sql}, 'b', {right.sql},"
        f" 't', {_digits(left.sql, a.scale)}, 'u', {_digits(right.sql, b.scale)})"
    )
    weights = f"{_weight('x__.t', a.scale)} - {_weight('x__.u', b.scale)}"
    weight = f"({weights} - if({_first('x__.t')} <= {_first('x__.u')}, 1, 0))"
    chosen = f"({_SIGNIFICANT} - {_GROUP} * {weight})"
    if not (a.mixed or b.mixed):
        chosen = f"greatest({chosen}, {least})"
    scales = sorted({*range(8, QUOTIENT_SCALE + 1, _GROUP), least})
    branches = " ".join(
        f"when {scale} then {_quotient(a, b, scale)}"
        for scale in scales
        if scale >= max(least, _SPARK_SCALE_MIN) and _dividend(a, b, scale) > a.scale
    )
    failed = raising("a quotient is too large or too small to be computed as in PostgreSQL", result.spark)
    zero = raising("division by zero", result.spark)
    computed = (
        f"case when x__.a is null or x__.b is null then cast(null as {result.spark}) when x__.b = 0 then {zero}"
        f" when x__.a = 0 then cast(0 as {result.spark}) else case {chosen} {branches} else {failed} end end"
    )
    return Typed(f"element_at(transform(array({row}), x__ -> {computed}), 1)", result)


def rounded(node: exp.Expr, found: Typed, scale: int) -> Typed:
    """Return ``round(x, scale)``: half away from zero in both."""
    kind = found.type
    _check_scale(node, scale)
    result = numeric(kind.precision - kind.scale + scale + 1, scale)
    return Typed(f"cast(round({found.sql}, {min(scale, kind.scale)}) as {result.spark})", result)


def summed(found: PgType) -> PgType:
    """Return the type of a sum of these values. PostgreSQL's scale of a sum is the largest one of its values."""
    return numeric(found.precision + 10, found.scale, mixed=found.mixed, quotient=found.quotient)


def _dividend(a: PgType, b: PgType, scale: int) -> int:
    """Return the precision of the dividend for which Spark's quotient has this scale."""
    return DIGITS_MAX - scale + a.scale - b.scale


def _quotient(a: PgType, b: PgType, scale: int) -> str:
    dividend = f"cast(x__.a as decimal({min(_dividend(a, b, scale), DIGITS_MAX)},{a.scale}))"
    divisor = f"cast(x__.b as decimal({DIGITS_MAX},{b.scale}))"
    return f"cast({dividend} / {divisor} as decimal({DIGITS_MAX},{QUOTIENT_SCALE}))"


def _digits(sql: str, scale: int) -> str:
    """Return the text of all digits of a number without leading zeros, up to a whole group behind the point."""
    plain = f"replace(cast(abs({sql}) as string), '.', '')"
    zeros = -scale % _GROUP
    whole = f"concat({plain}, '{'0' * zeros}')" if zeros else plain
    return f"regexp_replace({whole}, '^0+', '')"


def _weight(digits: str, scale: int) -> str:
    """Return the power of 10000 of the first group of digits."""
    behind = (scale + _GROUP - 1) // _GROUP
    return f"(cast((length({digits}) + {_GROUP - 1}) div {_GROUP} as int) - {1 + behind})"


def _first(digits: str) -> str:
    """Return the first group of digits."""
    return f"cast(substring({digits}, 1, ((length({digits}) - 1) % {_GROUP}) + 1) as int)"


def _cast(found: Typed, precision: int, scale: int) -> Typed:
    kind = numeric(precision, scale, mixed=found.type.mixed, quotient=found.type.quotient)
    return found.of(f"cast({found.sql} as {kind.spark})", kind)


def _is_mixed(a: PgType, b: PgType, scale: int) -> bool:
    """Whether the larger scale of two values may be smaller than this scale."""
    return not any(kind.scale == scale and not kind.mixed for kind in (a, b))


def _either(a: PgType, b: PgType) -> bool:
    return a.quotient or b.quotient


def _check_scale(node: exp.Expr, scale: int) -> None:
    if scale > _SCALE_MAX:
        raise NotProven(node, f"needs {scale} digits after the point; Spark's decimals have 38 digits in all", _ROUND)
