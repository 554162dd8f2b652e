"""Refuses queries whose result would differ if the same cut is computed again. Pure.

Functions and keywords are checked in the text (its tokens), so that messages have the line and the name as written.
What depends on the structure of the query is checked in its tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

_BEGINNINGS: Final = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.L_PAREN})
_CLOCK: Final = frozenset(
    {
        "now",
        "curdate",
        "localtimestamp",
        "localtime",
        "clock_timestamp",
        "statement_timestamp",
        "transaction_timestamp",
        "timeofday",
        "sysdate",
        "getdate",
    }
)
_RANDOM: Final = frozenset(
    {
        "rand",
        "random",
        "randn",
        "randstr",
        "uniform",
        "shuffle",
        "uuid",
        "gen_random_uuid",
        "uuid_generate_v4",
        "uuidv4",
        "uuidv7",
        "random_normal",
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "input_file_block_start",
        "input_file_block_length",
        "nextval",
        "setseed",
    }
)
_SESSION: Final = frozenset(
    {
        "user",
        "session_user",
        "version",
        "pg_backend_pid",
        "txid_current",
    }
)
_FOREIGN: Final = {
    **dict.fromkeys(("reflect", "java_method", "try_reflect"), "runs code that is not SQL"),
    **dict.fromkeys(("from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf"), "can read a file"),
    "identifier": "makes a name of a text, which can name a file",
}
"""Spark functions that do more than use their arguments -> what they do."""
_CLOCK_WITHOUT_ARGUMENTS: Final = frozenset({"unix_timestamp", "to_unix_timestamp"})
_CLOCK_WORDS: Final = frozenset({"now", "today", "tomorrow", "yesterday"})
_CLOCK_KEYWORDS: Final = frozenset({"current_date", "current_timestamp", "current_time", "localtimestamp", "localtime"})
_TIMES: Final = (
    exp.DataType.Type.DATE,
    exp.DataType.Type.TIMESTAMP,
    exp.DataType.Type.TIMESTAMPTZ,
    exp.DataType.Type.TIMESTAMPNTZ,
    exp.DataType.Type.TIMESTAMPLTZ,
)
_COLLECTING: Final = {
    exp.ArrayAgg: "collect_list",
    exp.ArrayUniqueAgg: "collect_set",
    exp.ArrayConcatAgg: "array_concat_agg",
    exp.GroupConcat: "listagg",
}
_PICKING: Final = (exp.First, exp.Last, exp.AnyValue, exp.FirstValue, exp.LastValue, exp.NthValue)
_NAMED_MAX: Final = 20  # windows that are defined by each other
_USE_DATA_TIME: Final = "use a time from the rows: a view must give the same result whenever it is computed"
_USE_KEY: Final = "build it from the key columns of the rows"


class Line(int):
    """The number of a line, with the column where something begins in it; both from 1, and 0 if unknown."""

    column: int

    def __new__(cls, line: int, column: int = 0) -> Self:
        """Return the number `line`, which knows its column."""
        found = super().__new__(cls, line)
        found.column = column
        return found


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a query is refused.

    Attributes:
        message: what is wrong, as the end of a sentence that begins with the file.
        hint: what to do about it.
        line: in the checked text; 0 if the whole text is concerned. A `Line` also has the column.
    """

    message: str
    hint: str
    line: int = 0


def check_beginning(tokens: Sequence[Token]) -> Finding | None:
    """Check that a text begins like a SELECT; the parser would take ``selct a`` for a name."""
    if not tokens:
        return Finding("contains no query", "write one SELECT into it")
    if tokens[0].token_type in _BEGINNINGS:
        return None
    what = f"begins with {tokens[0].text!r}, not like a SELECT"
    return Finding(what, "a view is one SELECT", line_of_token(tokens[0]))


def check_words(tokens: Sequence[Token]) -> Finding | None:
    """Check for functions and keywords that are not deterministic."""
    for index, token in enumerate(tokens):
        word = token.text.lower()
        after = [found.token_type for found in tokens[index + 1 : index + 3]]
        before = tokens[index - 1].token_type if index else None
        called = after[:1] == [TokenType.L_PAREN]
        if called and token.token_type != TokenType.STRING:
            found = _called(word, empty=after == [TokenType.L_PAREN, TokenType.R_PAREN])
        elif word in _CLOCK_KEYWORDS and token.token_type not in {TokenType.STRING, TokenType.IDENTIFIER}:
            named = before in {TokenType.DOT, TokenType.ALIAS}
            found = None if named else (f"{word} is the time of the computation", _USE_DATA_TIME)
        else:
            continue
        if found is not None:
            return Finding(*found, line_of_token(token))
    return None


def check_foreign(tokens: Sequence[Token]) -> Finding | None:
    """Check for functions that do more than compute."""
    for token, behind in pairwise(tokens):
        word = token.text.lower()
        if behind.token_type == TokenType.L_PAREN and token.token_type != TokenType.STRING and word in _FOREIGN:
            return Finding(f"{word}() {_FOREIGN[word]}", "remove it", line_of_token(token))
    return None


def check_tree(query: exp.Query, dialect: str) -> Finding | None:
    """Check the structure of the query."""
    misread = query.find(exp.Lambda) if dialect == "postgres" else None
    if misread is not None:
        # sqlglot 30 reads f(a -> 'b') as a lambda function, which PostgreSQL does not have.
        return Finding("-> as an argument is not supported", "put it into parentheses: f((a -> 'b'))", line_of(misread))
    return next(_findings(query, dialect), None)


def line_of(node: exp.Expr) -> Line:
    """Return where a part of the tree begins; 0 if the parser did not keep it."""
    kept = [found.meta for found in node.walk() if "line" in found.meta]
    first = min(kept, key=lambda meta: int(meta["start"]), default=None)
    return Line(0) if first is None else _begin(first["line"], first["col"], first["end"] - first["start"])


def line_of_token(token: Token) -> Line:
    """Return where a token begins."""
    return _begin(token.line, token.col, token.end - token.start)


def _begin(line: int, end_column: int, length: int) -> Line:
    return Line(line, max(end_column - length, 0))


def _called(word: str, *, empty: bool) -> tuple[str, str] | None:
    if word in _CLOCK or word in _CLOCK_KEYWORDS or (empty and word in _CLOCK_WITHOUT_ARGUMENTS):
        return f"{word}() is the time of the computation", _USE_DATA_TIME
    if word in _RANDOM:
        return f"{word}() gives a different result each time", _USE_KEY
    if word in _SESSION or word.startswith("current_"):
        return f"{word}() depends on the session that computes the view", "remove it"
    if word in _FOREIGN:
        return f"{word}() {_FOREIGN[word]}", "remove it"
    return None


def _findings(query: exp.Query, dialect: str) -> Iterator[Finding]:
    for node in query.walk():
        if isinstance(node, exp.QueryTransform):
            yield Finding("TRANSFORM runs a program", "remove it", line_of(node))
        elif isinstance(node, exp.TableSample):
            yield Finding("TABLESAMPLE takes different rows each time", "select rows by a condition", line_of(node))
        elif isinstance(node, exp.Into):
            yield Finding("SELECT INTO creates a table", "remove INTO: the view is the table", line_of(node))
        elif isinstance(node, exp.Table) and (node.args.get("version") or node.args.get("when")):
            yield Finding("names a version of a table", "a view reads every table as of its cut", line_of(node))
        elif isinstance(node, exp.Query) and node.args.get("limit") and not node.args.get("order"):
            yield Finding("LIMIT without ORDER BY takes arbitrary rows", "add ORDER BY on a key", line_of(node))
        elif isinstance(node, exp.Mode) and node.this is not None and node.args.get("deterministic") != exp.true():
            fix = "write mode() within group (order by x), which takes the smallest of them"
            yield Finding("mode() takes an arbitrary one of equally frequent values", fix, line_of(node))
        elif isinstance(node, exp.Cast) and _is_clock_word(node):
            yield Finding(f"{node.this.this!r} as a time is the time of the computation", _USE_DATA_TIME, line_of(node))
        elif not (dialect == "postgres" and isinstance(node, exp.ArrayAgg) and isinstance(node.this, exp.Order)):
            yield from _unordered(node)
    yield from _columns(query)


def _is_clock_word(cast: exp.Cast) -> bool:
    literal = cast.this
    if not (isinstance(literal, exp.Literal) and literal.is_string and cast.to.is_type(*_TIMES)):
        return False
    return literal.this.strip().lower() in _CLOCK_WORDS


def _unordered(node: exp.Expr) -> Iterator[Finding]:
    window = node.find_ancestor(exp.Window, exp.Select)
    if isinstance(window, exp.Window) and _is_ordered(window):
        return
    if isinstance(node, _PICKING):
        name = node.sql_name().lower()
        yield Finding(
            f"{name}() takes the value of an arbitrary row",
            "use min_by(value, key), max_by(value, key), min or max",
            line_of(node),
        )
        return
    name = next((name for kind, name in _COLLECTING.items() if isinstance(node, kind)), "")
    if isinstance(node, exp.GroupConcat) and (node.find_ancestor(exp.WithinGroup) or node.find(exp.Order)):
        return
    if name and not _is_sorted(node):
        fix = "listagg(...) within group (order by ...)" if name == "listagg" else f"sort_array({name}(...))"
        yield Finding(f"{name}() without an order has no defined order of values", f"write {fix}", line_of(node))


def _is_ordered(window: exp.Window) -> bool:
    """Whether a window, or the named one that it uses, has an order."""
    select = window.find_ancestor(exp.Select)
    named = {one.name.lower(): one for one in (select.args.get("windows") or () if select is not None else ())}
    found: exp.Window | None = window
    for _ in range(_NAMED_MAX):
        if found is None or found.args.get("order"):
            return found is not None
        alias: exp.Expr | None = found.args.get("alias")
        found = named.get(alias.name.lower()) if alias is not None else None
    return False


def _is_sorted(node: exp.Expr) -> bool:
    """Whether the collected array is sorted directly."""
    above = node.parent
    while isinstance(above, exp.Paren | exp.Filter):
        above = above.parent
    if isinstance(above, exp.Anonymous):
        return above.name.lower() in {"sort_array", "array_sort"}
    return isinstance(above, exp.ArraySort)


def _columns(query: exp.Query) -> Iterator[Finding]:
    seen: set[str] = set()
    for number, column in enumerate(_selected(query), 1):
        names = [found.name for found in column.aliases] if isinstance(column, exp.Aliases) else [column.output_name]
        for name in names:
            if name == "*" or column.is_star:
                continue
            if not name:
                yield Finding(f"column {number} has no name", "name it: ... as name", line_of(column))
            elif name.lower() in seen:
                yield Finding(f"two columns are named {name!r}", "rename one: ... as name", line_of(column))
            seen.add(name.lower())


def _selected(query: exp.Query) -> list[exp.Expr]:
    """Return the result columns: those of the first SELECT of a UNION."""
    found: exp.Expr = query
    while not isinstance(found, exp.Select):
        if not isinstance(found, exp.Query):
            return []
        found = found.this
    return list(found.expressions)
