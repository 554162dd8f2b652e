"""Constructs that a view accepts although its answer can differ from PostgreSQL's, with the reason of each.

The generator leaves them out. A key is a rule's full name, or its family, or a construct of queries. An entry goes when
the translation is right, or refuses the construct.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_EMPTY: Final = "the set () has a row over an empty input in PostgreSQL, and none in Spark"
_BLANKS: Final = "PostgreSQL ignores the blanks of the varchar too, the view only those of the char(n)"
_RANGE: Final = "PostgreSQL raises for a date out of its range, Spark's days wrap around"
_ELSE: Final = "an untyped literal in a CASE within a CASE is text for the view, and the type of ELSE in PostgreSQL"

UNSOLVED: Final[Mapping[str, str]] = {
    "grouping sets": _EMPTY,
    "rollup": _EMPTY,
    "cube": _EMPTY,
    "eq_texts(varchar,char)": _BLANKS,
    "eq_texts(char,varchar)": _BLANKS,
    "date_part": "PostgreSQL's type is float8, the view's a decimal",
    "date_add": _RANGE,
    "date_sub": _RANGE,
    "case(char,bool,char)": _ELSE,
    "case_no_else(char,bool)": _ELSE,
}
