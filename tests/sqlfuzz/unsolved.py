"""Constructs that a view accepts although its answer can differ from PostgreSQL's, with the reason of each.

The generator leaves them out. A key is a rule's full name, or its family, or a construct of queries. An entry goes when
the translation is right, or refuses the construct.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_BLANKS: Final = "PostgreSQL ignores the blanks of the varchar too, the view only those of the char(n)"
_SAME: Final = (
    "Spark does not compute x for `x is distinct from x`, so no error of x, such as a division by zero, shows"
)

UNSOLVED: Final[Mapping[str, str]] = {
    "eq_texts(varchar,char)": _BLANKS,
    "eq_texts(char,varchar)": _BLANKS,
    "percentile_disc": "the view's column is a double where PostgreSQL's is an integer",
    "distinct_from": _SAME,
    "not_distinct_from": _SAME,
}
