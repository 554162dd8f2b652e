"""Finds and reads the clauses `MATCH_RECOGNIZE (...)` of a view's text. Pure.

    from ticks t match_recognize (
        partition by symbol order by at
        measures first(A.at) as began, last(B.price) as price
        one row per match
        after match skip past last row
        pattern (A B+) within interval '1' hour
        define B as B.price < prev(B.price)
    ) m

sqlglot would write the clause for Spark, which does not have it. So the clause is cut out of the text before anything
else reads it, and the engine replaces it with a relation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

from sinks.warehouse.patterns.expressions import Expression, read_expression, split, tokens_of
from sinks.warehouse.patterns.matcher import Skip
from sinks.warehouse.patterns.pattern_syntax import Pattern, parse_pattern, variable_name, variables_of
from sinks.warehouse.patterns.refusal import PatternRefused

_SECTIONS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("PARTITION BY", ()),
    ("ORDER BY", ()),
    ("MEASURES", ()),
    ("ONE", ("ROW", "PER", "MATCH")),
    ("ALL", ("ROWS", "PER", "MATCH")),
    ("AFTER", ("MATCH", "SKIP")),
    ("PATTERN", ("(",)),
    ("WITHIN", ("INTERVAL",)),
    ("SUBSET", ()),
    ("DEFINE", ()),
)
"""Sections in the order of the standard: first word, and the words that must follow."""
_NAMES: Final = frozenset({TokenType.VAR, TokenType.IDENTIFIER})
_BEFORE_TABLE: Final = frozenset({TokenType.FROM, TokenType.JOIN, TokenType.COMMA})
_VARIABLES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Place:
    """Where a clause is in a view's text, in characters.

    Attributes:
        table: start of the name of the table that it reads.
        cut: end of that name.
        inside: end of the parenthesis that opens the clause.
        close: start of the parenthesis that closes it.
    """

    table: int
    cut: int
    inside: int
    close: int


@dataclass(frozen=True, slots=True)
class OrderColumn:
    """A column that rows are ordered by; `nulls` is FIRST, LAST or ""."""

    name: str
    is_descending: bool = False
    nulls: str = ""


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause as written.

    Attributes:
        text: of the clause, without its parentheses.
        place: where it begins in the view's text.
        partition: columns.
        order: columns.
        measures: name -> expression.
        all_rows: ALL ROWS PER MATCH.
        skip: AFTER MATCH SKIP.
        pattern: its tree.
        variables: names of the pattern's variables, in upper case.
        within: the text of the interval; "" if there is none.
        define: variable -> condition; a variable without one matches any row.
    """

    text: str
    place: int
    partition: tuple[str, ...]
    order: tuple[OrderColumn, ...]
    measures: dict[str, Expression]
    all_rows: bool
    skip: Skip
    pattern: Pattern
    variables: tuple[str, ...]
    within: str
    define: dict[str, Expression]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that its rows have in any case, in lower case."""
        return (*(name.lower() for name in self.partition), *(name.lower() for name in self.measures))


def places_of(tokens: Sequence[Token]) -> list[Place]:
    """Return where a view's text has the clause. Raises PatternRefused."""
    found = []
    for index, token in enumerate(tokens[:-1]):
        is_word = token.token_type == TokenType.VAR and token.text.upper() == "MATCH_RECOGNIZE"
        if not is_word or tokens[index + 1].token_type != TokenType.L_PAREN:
            continue
        depth = 0
        for close in tokens[index + 1 :]:
            depth += (close.token_type == TokenType.L_PAREN) - (close.token_type == TokenType.R_PAREN)
            if depth == 0:
                table, cut = _table_before(tokens[:index], token.start)
                found.append(Place(table, cut, tokens[index + 1].end + 1, close.start))
                break
        else:
            raise PatternRefused("MATCH_RECOGNIZE ( is not closed", "add )", token.start)
    return found


def without_clauses(text: str, places: Sequence[Place]) -> str:
    """Return a view's text with blanks in place of its clauses, of the same length and lines."""
    pieces, at = [], 0
    for place in places:
        end = place.close + 1
        pieces += [text[at : place.cut], "".join(one if one == "\n" else " " for one in text[place.cut : end])]
        at = end
    return "".join([*pieces, text[at:]])


def _table_before(tokens: Sequence[Token], place: int) -> tuple[int, int]:
    """Return start and end of the table's name, before the clause and an alias."""
    hint = "write FROM orders MATCH_RECOGNIZE (...); put a query that it should read into a view of its own"
    end = len(tokens)
    for _ in range(2):  # the alias, then the table
        start = _name_before(tokens[:end])
        if start == end:
            break
        if start and tokens[start - 1].token_type in _BEFORE_TABLE:
            return tokens[start].start, tokens[end - 1].end + 1
        end = start - 1 if start and tokens[start - 1].token_type == TokenType.ALIAS else start
    raise PatternRefused("MATCH_RECOGNIZE does not follow the name of a table or view", hint, place)


def _name_before(tokens: Sequence[Token]) -> int:
    """Return the index of the first token of ``a.b.c`` at the end of some tokens; their number if there is none."""
    start = len(tokens)
    while start and tokens[start - 1].token_type in _NAMES:
        start -= 1
        if not start or tokens[start - 1].token_type != TokenType.DOT:
            break
        start -= 1
    return start


def read_clause(text: str, place: int) -> Clause:
    """Return a clause. Raises PatternRefused.

    Args:
        text: between the parentheses.
        place: where that begins in the view's text.
    """
    sections = _sections(text, place)
    if "PATTERN" not in sections:
        raise PatternRefused("MATCH_RECOGNIZE has no PATTERN", "write PATTERN (A B+)", place)
    if "ORDER BY" not in sections:
        raise PatternRefused("MATCH_RECOGNIZE has no ORDER BY", "order the rows of a partition by a time", place)
    if "SUBSET" in sections:
        raise PatternRefused("SUBSET is not supported", "name each variable", sections["SUBSET"][0])
    if {"ONE", "ALL"} <= sections.keys():
        raise PatternRefused("has ONE ROW PER MATCH and ALL ROWS PER MATCH", "write one of them", sections["ALL"][0])
    pattern = _pattern(*sections["PATTERN"])
    variables = variables_of(pattern)
    if len(variables) > _VARIABLES_MAX:
        raise PatternRefused(f"PATTERN has more than {_VARIABLES_MAX} variables", "use fewer", place)
    all_rows = "ALL" in sections
    order = _order(*sections["ORDER BY"])
    partition = tuple(_column(part, at, "PARTITION BY") for at, part in _parts(sections, "PARTITION BY"))
    clause = Clause(
        text=text,
        place=place,
        partition=partition,
        order=order,
        measures=_measures(sections, variables),
        all_rows=all_rows,
        skip=_skip(*sections["AFTER"], variables) if "AFTER" in sections else Skip(),
        pattern=pattern,
        variables=variables,
        within=sections["WITHIN"][1].strip() if "WITHIN" in sections else "",
        define=_define(sections, variables),
    )
    _check(clause, sections)
    return clause


def _check(clause: Clause, sections: dict[str, tuple[int, str]]) -> None:
    rows = sections.get("ALL", sections.get("ONE", (0, "")))
    if rows[1].strip():
        modes = {"SHOW EMPTY MATCHES", "OMIT EMPTY MATCHES"}
        if not clause.all_rows or " ".join(rows[1].upper().split()) not in modes:
            raise PatternRefused(f"{rows[1].strip()} behind PER MATCH is not supported", "remove it", rows[0])
    names = clause.columns
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise PatternRefused(f"two columns of MATCH_RECOGNIZE are named {twice!r}", "rename a measure", clause.place)
    if not clause.all_rows and not names:
        raise PatternRefused("MATCH_RECOGNIZE has no column", "add MEASURES, or PARTITION BY", clause.place)
    if clause.within and clause.order[0].is_descending:
        raise PatternRefused("WITHIN needs rows in ascending order of time", "remove DESC", sections["WITHIN"][0])


def _sections(text: str, place: int) -> dict[str, tuple[int, str]]:
    """Return the first word of each section -> where the rest begins in the view's text, and the rest."""
    tokens = tokens_of(text, place)
    found: dict[str, tuple[int, str]] = {}
    name, begin, depth, past = "", 0, 0, 0
    for index, token in enumerate(tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth > (token.token_type == TokenType.L_PAREN):
            continue
        section = _section_at(tokens, index, past)
        if section is None:
            if not name:
                what = f"MATCH_RECOGNIZE begins with {token.text!r}"
                raise PatternRefused(what, "begin with PARTITION BY or ORDER BY", place + token.start)
            continue
        if name:
            found[name] = (place + begin, text[begin : token.start])
        past, more = section
        name, begin = _SECTIONS[past][0], tokens[index + more].end + 1
        if name in found:
            raise PatternRefused(f"has {name} twice", "remove one", place + token.start)
        past += 1
    if name:
        found[name] = (place + begin, text[begin:])
    return found


def _section_at(tokens: Sequence[Token], index: int, past: int) -> tuple[int, int] | None:
    """Return the section that begins at a token, and how many more tokens its words are."""
    token = tokens[index]
    before = tokens[index - 1].token_type if index else None
    if token.token_type in {TokenType.STRING, TokenType.IDENTIFIER} or before in {TokenType.DOT, TokenType.ALIAS}:
        return None
    word = " ".join(token.text.upper().split())
    for place, (first, rest) in enumerate(_SECTIONS):
        ahead = tuple(one.text.upper() for one in tokens[index + 1 : index + 1 + len(rest)])
        if word != first or ahead != rest:
            continue
        if place < past:
            order = "PARTITION BY, ORDER BY, MEASURES, ROWS PER MATCH, AFTER MATCH, PATTERN, WITHIN, DEFINE"
            raise PatternRefused(f"{first} is not in its place", f"the order is {order}", -1)
        # The parenthesis of PATTERN and the interval of WITHIN belong to the rest.
        return place, 0 if first in {"PATTERN", "WITHIN"} else len(rest)
    return None


def _parts(sections: dict[str, tuple[int, str]], name: str) -> list[tuple[int, str]]:
    """Return the parts of a section between commas, with their places."""
    if name not in sections:
        return []
    place, text = sections[name]
    return [(place + at, part) for at, part in split(text, tokens_of(text, place), TokenType.COMMA)]


def _pattern(place: int, text: str) -> Pattern:
    tokens = tokens_of(text, place)
    depth = 0
    for token in tokens:
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0:
            rest = text[token.end + 1 :].strip()
            if rest:
                raise PatternRefused(
                    f"has {rest.split()[0]!r} after PATTERN", "write DEFINE next", place + token.end + 1
                )
            inside = tokens[0].end + 1
            return parse_pattern(text[inside : token.start], place + inside)
    raise PatternRefused("PATTERN ( is not closed", "add )", place)


def _column(text: str, place: int, section: str) -> str:
    tokens = tokens_of(text, place)
    if len(tokens) != 1 or tokens[0].token_type in {TokenType.STRING, TokenType.NUMBER}:
        hint = "name a column; compute it in a view that this view reads"
        raise PatternRefused(f"{section} has something else than a column: {text.strip()}", hint, place)
    return tokens[0].text


def _order(place: int, text: str) -> tuple[OrderColumn, ...]:
    found = []
    for at, part in split(text, tokens_of(text, place), TokenType.COMMA):
        words = [(token.text.upper(), token) for token in tokens_of(part, place + at)]
        nulls = ""
        if len(words) > 2 and words[-2][0] == "NULLS" and words[-1][0] in {"FIRST", "LAST"}:
            nulls = words[-1][0]
            words = words[:-2]
        is_descending = len(words) > 1 and words[-1][0] == "DESC"
        if len(words) > 1 and words[-1][0] in {"ASC", "DESC"}:
            words = words[:-1]
        column = part[: words[-1][1].end + 1] if words else part
        found.append(OrderColumn(_column(column, place + at, "ORDER BY"), is_descending, nulls))
    return tuple(found)


def _measures(sections: dict[str, tuple[int, str]], variables: Sequence[str]) -> dict[str, Expression]:
    found: dict[str, Expression] = {}
    for place, part in _parts(sections, "MEASURES"):
        tokens = tokens_of(part, place)
        if len(tokens) < 3 or tokens[-2].token_type != TokenType.ALIAS or tokens[-1].token_type == TokenType.STRING:
            raise PatternRefused("a measure has no name", "write LAST(A.x) AS name", place)
        name = tokens[-1].text
        if name.lower() in {one.lower() for one in found}:
            raise PatternRefused(f"two measures are named {name!r}", "rename one", place)
        found[name] = read_expression(part[: tokens[-2].start], place, variables)
    return found


def _define(sections: dict[str, tuple[int, str]], variables: Sequence[str]) -> dict[str, Expression]:
    found: dict[str, Expression] = {}
    for place, part in _parts(sections, "DEFINE"):
        tokens = tokens_of(part, place)
        if len(tokens) < 3 or tokens[1].token_type != TokenType.ALIAS:
            raise PatternRefused("DEFINE expects a variable and a condition", "write DEFINE A AS A.x > 1", place)
        name = variable_name(tokens[0].text)
        if name not in variables or name in found:
            what = "is defined twice" if name in found else "is not in PATTERN"
            raise PatternRefused(f"{name} {what}", "remove the definition", place + tokens[0].start)
        begin = tokens[1].end + 1
        found[name] = read_expression(part[begin:], place + begin, variables)
    return found


def _skip(place: int, text: str, variables: Sequence[str]) -> Skip:
    words = [token.text.upper() for token in tokens_of(text, place)]
    if words == ["PAST", "LAST", "ROW"]:
        return Skip()
    if words == ["TO", "NEXT", "ROW"]:
        return Skip("next")
    mode = "first" if words[1:2] == ["FIRST"] and len(words) == 3 else "last"
    is_named = words[:1] == ["TO"] and (len(words) == 2 or (len(words) == 3 and words[1] in {"FIRST", "LAST"}))
    if not is_named or words[-1] not in variables:
        hint = "write PAST LAST ROW, TO NEXT ROW, TO FIRST A or TO LAST A"
        raise PatternRefused(f"has an unknown AFTER MATCH SKIP {text.strip()}", hint, place)
    return Skip(mode, list(variables).index(words[-1]), words[-1])
