"""Compares ``-- collation: C`` in a view's text with the collations of the database and its columns. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from cdc.replication.collations import Collation, Collations

_SETTING: Final = re.compile(r"\s*--\s*(dialect|collation)\s*:\s*(\w+)\s*", re.IGNORECASE)
_BY_CASE: Final[dict[type[exp.Expr], str]] = {
    exp.Upper: "upper()",
    exp.Lower: "lower()",
    exp.Initcap: "initcap()",
    exp.ILike: "ilike",
    **dict.fromkeys(
        (exp.RegexpLike, exp.RegexpILike, exp.RegexpReplace, exp.RegexpCount, exp.RegexpSubstr), "a regular expression"
    ),
}


def declares_c(text: str) -> bool:
    """Whether a view in PostgreSQL's SQL declares that its text has the collation C."""
    settings = _settings(text)
    return settings.get("dialect") == "postgres" and settings.get("collation") == "c"


def wrong_collations(text: str, found: Collations) -> list[str]:
    """Return why text that a view compares differs from PostgreSQL's; empty if it does not.

    A declared collation must be that of the database and of the columns that the view reads. A nondeterministic one
    must not occur at all, because Spark compares bytes.
    """
    if _settings(text).get("dialect") != "postgres":
        return []
    try:
        tree = sqlglot.parse_one(text, read="postgres")
    except SqlglotError:
        return []  # the view is refused for that
    by_case = next((_BY_CASE[type(node)] for node in tree.walk() if type(node) in _BY_CASE), "")
    declared = declares_c(text)
    reasons = []
    if declared:
        reasons.append(_why(found.database, by_case, "the database has"))
    for name, collation in _columns(tree, found):
        if not collation.deterministic:
            reasons.append(f"{name} has the nondeterministic collation {collation.name}, which Spark does not have")
        elif declared:
            reasons.append(_why(collation, by_case, f"{name} has"))
    return [one for one in reasons if one]


def _settings(text: str) -> dict[str, str]:
    """Return the settings in the comments above the query, in lower case."""
    settings = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("--"):
            break
        match = _SETTING.fullmatch(line)
        if match:
            settings[match[1].lower()] = match[2].lower()
    return settings


def _why(collation: Collation, by_case: str, what: str) -> str:
    """Return why a collation is not C for a view; empty if it is."""
    if not collation.order:
        return f"it declares the collation C, but {what} {collation.name}, which orders text in another way"
    if not collation.case and by_case:
        return f"it declares the collation C, but {what} {collation.name}, for which {by_case} is not limited to ASCII"
    return ""


def _columns(tree: exp.Expr, found: Collations) -> Iterator[tuple[str, Collation]]:
    """Yield the columns with a collation of their own that a query may read."""
    tables = [tuple(part.name.lower() for part in one.parts)[-2:] for one in tree.find_all(exp.Table)]
    names = {node.name.lower() for node in tree.find_all(exp.Column)}
    every = any(tree.find_all(exp.Star))
    for (namespace, table), columns in sorted(found.columns.items()):
        full = (namespace.lower(), table.lower())
        if not any(full[-len(parts) :] == parts or parts == ("mirror", full[1]) for parts in tables):
            continue
        for column, collation in sorted(columns.items()):
            if every or column.lower() in names:
                yield f"{namespace}.{table}.{column}", collation
