"""Finds the tables in a view's text and puts the text together as one query for PostgreSQL. Pure.

The text itself stays as its author wrote it: only names of tables and views are replaced, by position. Names of other
views become CTEs with their own texts. Shares no code with the translation of views, which this query checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

_SETTING: Final = re.compile(r"\s*--\s*(dialect|key)\s*:\s*(.*?)\s*$", re.IGNORECASE)
_MACROS: Final = frozenset({"valid_at", "watermark", "in_log_order", "corrected_time"})
_LAKE_ONLY: Final = frozenset({"history", "archive"})
SPARK: Final = "it is written in Spark SQL; only views with `-- dialect: postgres` can run on PostgreSQL"


class NotCheckable(Exception):
    """PostgreSQL cannot run the view; the message says why."""


@dataclass(frozen=True, slots=True)
class NamedTable:
    """The name of a table or view in a text.

    Attributes:
        parts: as PostgreSQL reads them: in lower case unless quoted.
        start: where the name begins in the text, in characters.
        end: where it ends, exclusive.
        alias: the alias to add, because the text gives none; empty if it does.
    """

    parts: tuple[str, ...]
    start: int
    end: int
    alias: str

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class ViewText:
    """A view's text.

    Attributes:
        sql: the query, without a semicolon at its end.
        names: the tables and views that it reads, by position.
        key: columns of `-- key:`.
    """

    sql: str
    names: tuple[NamedTable, ...]
    key: tuple[str, ...]


def view_text(text: str) -> ViewText:
    """Parse a view's file. Raises NotCheckable if it is not a query for PostgreSQL."""
    settings = dict(_settings(text))
    if settings.get("dialect", "").lower() != "postgres":
        raise NotCheckable(SPARK)
    try:
        tokens = sqlglot.tokenize(text, read="postgres")
        trees = [tree for tree in sqlglot.parse(text, read="postgres") if tree is not None]
    except SqlglotError as error:
        raise NotCheckable(f"its text cannot be parsed: {str(error).splitlines()[0]}") from error
    trees = [tree for tree in trees if not isinstance(tree, exp.Semicolon)]
    if len(trees) != 1:
        raise NotCheckable("its text is not one query")
    for token, behind in pairwise(tokens):
        if token.text.lower() in _MACROS and behind.token_type == TokenType.L_PAREN:
            raise NotCheckable(f"{token.text.lower()} exists only in the lake")
    end = len(text)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        end = tokens.pop().start
    names = tuple(sorted((_named(table, text) for table in _tables(trees[0], frozenset())), key=lambda one: one.start))
    key = tuple(part.strip().strip('"`') for part in settings.get("key", "").split(",") if part.strip())
    return ViewText(text[:end], names, key)


def replaced(text: ViewText, replacement: Callable[[NamedTable], str]) -> str:
    """Return the query with every name replaced; an alias keeps the name that its columns are qualified with."""
    pieces, at = [], 0
    for name in text.names:
        alias = f" as {quoted(name.alias)}" if name.alias else ""
        pieces += [text.sql[at : name.start], replacement(name), alias]
        at = name.end
    return "".join([*pieces, text.sql[at:]])


def one_query(
    name: str, texts: Mapping[str, ViewText], table: Callable[[NamedTable], str]
) -> tuple[str, dict[str, str]]:
    """Return a view's query, and the views that it reads: name of a CTE -> query, each after those that it reads.

    Args:
        name: of the view.
        texts: name of a view in lower case -> its text. A qualified name never means a view.
        table: returns what stands for a table in a FROM clause. Raises NotCheckable.

    Raises NotCheckable, also if another view cannot run on PostgreSQL.
    """
    ctes: dict[str, str] = {}

    def query(of: str, above: Sequence[str]) -> str:
        def target(found: NamedTable) -> str:
            other = found.parts[0].lower()
            if len(found.parts) > 1 or other not in texts:
                return table(found)
            if other in above:
                raise NotCheckable(f"the views {' and '.join(sorted({*above}))} read each other")
            cte = quoted(f"tailrace_view_{list(texts).index(other)}")
            if cte not in ctes:
                definition = query(other, [*above, other])
                ctes[cte] = definition
            return cte

        return replaced(texts[of], target)

    return query(name.lower(), [name.lower()]), ctes


def views_read(name: str, texts: Mapping[str, ViewText]) -> frozenset[str]:
    """Return the views that a view reads, directly or not, in lower case; without itself."""
    found: set[str] = set()
    ahead = [name.lower()]
    while ahead:
        text = texts.get(ahead.pop())
        read = {one.parts[0].lower() for one in (text.names if text else ()) if len(one.parts) == 1}
        new = read & texts.keys() - found
        found |= new
        ahead += new
    return frozenset(found - {name.lower()})


def quoted(name: str) -> str:
    """Quote an identifier for PostgreSQL."""
    return '"' + name.replace('"', '""') + '"'


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield the settings in the comments above the query."""
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("--"):
            return
        match = _SETTING.fullmatch(line)
        if match:
            yield match[1].lower(), match[2]


def _tables(node: exp.Expr, known: frozenset[str]) -> Iterator[exp.Table]:
    """Yield the tables that a query reads. `known`: the CTEs that it sees, which are no tables."""
    above = node.args.get("with_")
    if isinstance(above, exp.With):
        names = [_folded(cte.args["alias"].this) for cte in above.expressions]
        if above.args.get("recursive"):
            known |= frozenset(names)
        for name, cte in zip(names, above.expressions, strict=True):
            yield from _tables(cte.this, known)
            known |= {name}
    is_name = isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier | exp.Dot)
    if isinstance(node, exp.Table) and is_name and (len(node.parts) > 1 or _folded(node.parts[0]) not in known):
        yield node
    for child in node.iter_expressions():
        if child is not above:
            yield from _tables(child, known)


def _named(table: exp.Table, text: str) -> NamedTable:
    if table.args.get("only"):
        raise NotCheckable("it reads a table with ONLY")
    parts = [part for part in table.parts if isinstance(part, exp.Identifier)]
    names = tuple(map(_folded, parts))
    if len(names) > 1 and names[0] in _LAKE_ONLY:
        raise NotCheckable(f"it reads {'.'.join(names)}, which exists only in the lake")
    try:
        start, end = int(parts[0].meta["start"]), int(parts[-1].meta["end"]) + 1
    except (IndexError, KeyError):
        raise NotCheckable(f"the name {'.'.join(names)} cannot be found in its text") from None
    if text[start:end].replace('"', "").replace(" ", "").lower() != "".join(".".join(names).split()).lower():
        raise NotCheckable(f"the name {'.'.join(names)} cannot be found in its text")
    return NamedTable(names, start, end, "" if table.alias else names[-1])


def _folded(name: exp.Expr) -> str:
    return name.name if name.args.get("quoted") else name.name.lower()
