"""Parses the query of a view's file, and reports what is wrong with it by file, line and column. Pure."""

from __future__ import annotations

from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import Token

from cdc.errors import ViewRefused
from sinks.warehouse.patterns.clause import places_of, without_clauses
from sinks.warehouse.patterns.refusal import PatternRefused
from sinks.warehouse.planner.time_windows import masked
from sinks.warehouse.views.determinism import Finding, Line, check_beginning, line_of
from sinks.warehouse.views.macros import Expanded, check_as_of, expand, kinds_of


def refused(file: Path, finding: Finding, **facts: str) -> ViewRefused:
    """Return the error for a finding in a view's file."""
    line, column = finding.line, getattr(finding.line, "column", 0)
    where = f", line {line}" if line else ""
    where += f", column {column}" if line and column else ""
    return ViewRefused(
        f"{file}{where}: {finding.message}",
        hint=finding.hint,
        view=file.stem,
        file=str(file),
        line=int(line) or None,
        column=column or None,
        **facts,
    )


def expanded(file: Path, sql: str, dialect: str) -> str:
    """Replace the macros for joins in time by SQL. Raises ViewRefused."""
    try:
        tokens = list(sqlglot.tokenize(sql, read=dialect))
    except SqlglotError:
        return sql  # `parsed` reports the error
    found = expand(sql, tokens)
    if isinstance(found, Expanded) and found.as_of:
        kinds = kinds_of(table_names(parsed(file, found.sql, dialect)[1]))
        finding = check_as_of(found.as_of, kinds)
        found = finding or expand(sql, tokens, kinds)
    if isinstance(found, Finding):
        raise refused(file, found)
    return found.sql


class _PostgresAsWritten(Postgres):
    """PostgreSQL's dialect, whose parser makes one call of to_hex(x) and upper(to_hex(x))."""

    class Parser(PostgresParser):
        FUNCTIONS = {
            **PostgresParser.FUNCTIONS,
            "LOWER": exp.Lower.from_arg_list,
            "UPPER": exp.Upper.from_arg_list,
        }


def parsed(file: Path, sql: str, dialect: str) -> tuple[list[Token], exp.Query]:
    """Return the tokens and the tree of the single query in a text. Raises ViewRefused."""
    try:
        tokens = list(sqlglot.tokenize(sql, read=dialect))
        finding = check_beginning(tokens)
        if finding is not None:
            raise refused(file, finding)
        read = _PostgresAsWritten if dialect == "postgres" else dialect
        found = sqlglot.parse(_without_clauses(sql, tokens, dialect), read=read, error_level=ErrorLevel.IMMEDIATE)
    except PatternRefused as error:
        raise refused(file, pattern_finding(sql, error)) from error
    except ParseError as error:
        raise refused(file, _syntax_error(error, dialect)) from error
    except SqlglotError as error:
        raise refused(file, _open_end(sql, dialect)) from error
    statements = [one for one in found if one is not None and not isinstance(one, exp.Semicolon)]
    if len(statements) != 1:
        what = f"contains {len(statements)} statements" if statements else "contains no query"
        raise refused(file, Finding(what, "a view is one SELECT", line_of(statements[1]) if statements else Line(0)))
    if not isinstance(statements[0], exp.Query) or isinstance(statements[0], exp.Table):
        raise refused(file, Finding("is not a SELECT", "a view is one SELECT", line_of(statements[0])))
    return tokens, statements[0]


def _without_clauses(sql: str, tokens: list[Token], dialect: str) -> str:
    """Mask what sqlglot misreads, and clauses MATCH_RECOGNIZE. Raises PatternRefused."""
    places = places_of(tokens)
    if places and dialect == "postgres":
        raise PatternRefused("PostgreSQL has no MATCH_RECOGNIZE", "remove the line `-- dialect: postgres`")
    return without_clauses(masked(sql, tokens), places)


def pattern_finding(sql: str, error: PatternRefused) -> Finding:
    """Return the finding for a clause MATCH_RECOGNIZE of a text."""
    if error.place < 0:
        return Finding(error.message, error.hint)
    place = error.place
    while place < len(sql) and sql[place].isspace():
        place += 1
    line = Line(sql.count("\n", 0, place) + 1, place - sql.rfind("\n", 0, place))
    return Finding(error.message, error.hint, line)


def table_names(query: exp.Query) -> list[exp.Table]:
    """Return the tables a query reads: without names of its own WITH, functions in FROM, and names in hints."""
    return [
        table
        for table in query.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier | exp.Dot) and not table.find_ancestor(exp.Hint) and not _is_own(table)
    ]


def _syntax_error(error: ParseError, dialect: str) -> Finding:
    first = error.errors[0] if error.errors else {}
    shown = str(first.get("highlight") or "")
    what = str(first.get("description") or "").rstrip(".")
    if "<" in what or not what or what.startswith("Invalid expression"):  # the parser shows its own objects
        what = "syntax error"
    line = Line(int(first.get("line") or 0), max(0, int(first.get("col") or 0) - len(shown) + 1))
    near = f" near {shown!r}" if shown else ""
    return Finding(f"is not valid SQL: {what}{near}", _dialect_hint(dialect), line)


def _open_end(sql: str, dialect: str) -> Finding:
    """Return the finding for a text that ends within a string, a quoted name or a comment: where that begins."""
    lines = sql.splitlines()
    begin = next(n for n in range(len(lines), 0, -1) if n == 1 or _is_closed("\n".join(lines[: n - 1]), dialect))
    what = "is not valid SQL: a text in quotes, a quoted name or a comment that begins here does not end"
    return Finding(what, "close it", Line(begin))


def _is_closed(text: str, dialect: str) -> bool:
    try:
        sqlglot.tokenize(text, read=dialect)
    except SqlglotError:
        return False
    return True


def _dialect_hint(dialect: str) -> str:
    if dialect == "spark":
        return "it is read as Spark SQL; add the first line `-- dialect: postgres` for PostgreSQL's SQL"
    return "it is read as PostgreSQL's SQL, because a comment above the query says so"


def _is_own(table: exp.Table) -> bool:
    """Whether a WITH around it defines the name. A name is known after its definition; if recursive, also inside."""
    if table.args.get("db"):
        return False
    below: exp.Expr = table
    while (above := below.parent) is not None:
        scope = above if isinstance(above, exp.With) else above.args.get("with_")
        if isinstance(scope, exp.With):
            for definition in scope.expressions:
                if definition is below and not scope.args.get("recursive"):
                    break
                if definition.alias.lower() == table.name.lower():
                    return True
                if definition is below:
                    break
        if isinstance(above, exp.With):
            # The query that owns this WITH sees all of it; its definitions see only what precedes them.
            below = above.parent or above
            continue
        below = above
    return False
