"""The form of an entry of the table of known functions. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Function:
    """A function with one list of argument types.

    Attributes:
        arguments: names of their types.
        result: name of the result's type; ``numeric(p,s)`` with digits, or ``numeric`` for that of the first argument.
        spark: Spark SQL; ``{0}`` is the first argument. An argument that occurs twice is computed once.
        literal: positions of arguments that must be literals in `low` to `high`.
    """

    arguments: tuple[str, ...]
    result: str
    spark: str
    literal: tuple[int, ...] = ()
    low: int = 0
    high: int = 1_000_000


def each(names: tuple[str, ...], spark: str, result: str = "") -> tuple[Function, ...]:
    """Return an entry for each type of one argument; the result has its type unless `result` names another."""
    return tuple(Function((name,), result or name, spark) for name in names)
