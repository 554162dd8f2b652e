"""Reads the clauses `MATCH_RECOGNIZE` of a view's file, and names the relations that replace them. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlglot.tokenizer_core import Token

from sinks.warehouse.patterns.clause import places_of, read_clause
from sinks.warehouse.patterns.expressions import Expression, Row, Rows
from sinks.warehouse.patterns.refusal import PatternRefused
from sinks.warehouse.patterns.statement import Statement, statement_of
from sinks.warehouse.planner.relations import Relation
from sinks.warehouse.views.determinism import check_tree
from sinks.warehouse.views.query_text import parsed, pattern_finding, refused
from sinks.warehouse.views.safety import check_reads


@dataclass(frozen=True, slots=True)
class BoundPattern:
    """What a temporary view has instead of a clause.

    Attributes:
        name: of the temporary view.
        source: the temporary view that the clause reads.
        statement: the clause, compiled.
    """

    name: str
    source: str
    statement: Statement


@dataclass(frozen=True, slots=True)
class RowPattern:
    """A clause in a view's text.

    Attributes:
        start: start of the name of the table that it reads, in characters.
        end: end of the clause.
        statement: the clause, compiled.
    """

    start: int
    end: int
    statement: Statement

    def bound(self, source: str) -> BoundPattern:
        """Return it for a temporary view that it reads."""
        text = f"{source} {self.statement.clause.text}"
        return BoundPattern(f"pattern_{hashlib.sha256(text.encode()).hexdigest()[:16]}", source, self.statement)


def read_patterns(file: Path, text: str, tokens: Sequence[Token], dialect: str) -> tuple[RowPattern, ...]:
    """Return the clauses of a view's text. Raises ViewRefused."""
    if dialect != "spark":
        return ()
    try:
        found = []
        for place in places_of(tokens):
            clause = read_clause(text[place.inside : place.close], place.inside)
            for expression in (*clause.measures.values(), *clause.define.values()):
                _check(file, text, expression)
            found.append(RowPattern(place.table, place.close + 1, statement_of(clause)))
    except PatternRefused as error:
        raise refused(file, pattern_finding(text, error)) from error
    return tuple(found)


def relation_of(pattern: BoundPattern, source: Relation) -> Relation:
    """Return what the planner needs to know of what replaces a clause, without Spark: types of measures are unknown."""
    clause = pattern.statement.clause
    by_name = {name.lower(): kind for name, kind in source.columns.items()}
    partition = tuple(name.lower() for name in clause.partition)
    columns = {name: by_name.get(name, "") for name in partition} | dict.fromkeys(map(str.lower, clause.measures), "")
    if clause.all_rows:
        columns |= by_name
    return Relation(pattern.name, columns, (), source.rows, partition)


def reading(sql: str, patterns: Sequence[BoundPattern]) -> str:
    """Return a text that names every column which a view can read: its SQL, with its clauses in comments."""
    clauses = (one.statement.clause.text.replace("*/", "").replace("/*", "") for one in patterns)
    return "\n".join([sql, *(f"/* {text} */" for text in clauses)])


def _check(file: Path, text: str, expression: Expression) -> None:
    """Refuse what would give another result from run to run, or reads more than its columns."""
    sql = expression.sql(lambda leaf: f"({leaf.sql})" if isinstance(leaf, Row | Rows) and leaf.sql else "x")
    _, query = parsed(file, f"select {sql.strip()} as x", "spark")
    finding = check_reads(query) or check_tree(query, "spark")
    if finding is not None:
        at = pattern_finding(text, PatternRefused(finding.message, finding.hint, expression.place))
        raise refused(file, at)
