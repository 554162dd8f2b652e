"""Expands macros for joins in time in a view's SQL into plain SQL over what the lake stores. Pure.

    valid_at(r, o)                              r, a history, as of the commit of o, a row of an archive or a mirror,
                                                or a version of a history
    watermark(archive.clicks, at, <interval>)   the greatest event time in the log, minus the allowed lateness
    in_log_order(archive.clicks, at)            the rows with `_seen_until`, the greatest event time up to each of them
    corrected_time(at, sent, received)          the time of an event by a clock that is wrong by a constant

All of them depend on the log, never on the time of the computation: the same log gives the same rows, however many cuts
it was read in. A transaction is one moment: its own changes are valid at its commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot.tokenizer_core import Token, TokenType

from sinks.warehouse.views.determinism import Finding, line_of_token

if TYPE_CHECKING:
    from sqlglot import exp

VALID_AT: Final = "valid_at"
_WATERMARK: Final = "watermark"
_IN_LOG_ORDER: Final = "in_log_order"
_CORRECTED_TIME: Final = "corrected_time"
_ARGUMENTS: Final = {VALID_AT: 2, _WATERMARK: 3, _IN_LOG_ORDER: 2, _CORRECTED_TIME: 3}
_FORMS: Final = {
    VALID_AT: "valid_at(rate, orders), two aliases",
    _WATERMARK: "watermark(archive.clicks, at, interval '1' minute)",
    _IN_LOG_ORDER: "in_log_order(archive.clicks, at)",
    _CORRECTED_TIME: "corrected_time(r.at, r.sent_at, r.received_at)",
}
_OF_AN_ARCHIVE: Final = frozenset({_WATERMARK, _IN_LOG_ORDER})
_KINDS: Final = frozenset({"archive", "mirror", "history"})


@dataclass(frozen=True, slots=True)
class AsOf:
    """A `valid_at` in the text: two aliases, and the line."""

    versions: str
    event: str
    line: int


@dataclass(frozen=True, slots=True)
class Expanded:
    """A text with all macros expanded; its lines keep their numbers.

    Attributes:
        as_of: every `valid_at` that the text had; `check_as_of` checks their aliases.
    """

    sql: str
    as_of: tuple[AsOf, ...] = ()


def expand(sql: str, tokens: Sequence[Token], aliases: Sequence[tuple[str, str]] = ()) -> Expanded | Finding:
    """Expand the macros, or return what is wrong with one.

    Args:
        sql: the text.
        tokens: its tokens.
        aliases: alias -> kind (archive, mirror, history) from `kinds_of`; without it, `valid_at` assumes an archive.
    """
    kinds = dict(aliases)
    pieces: list[str] = []
    found: list[AsOf] = []
    at = index = 0
    while index < len(tokens):
        name = tokens[index].text.lower()
        if name not in _ARGUMENTS or not _is_call(tokens, index):
            index += 1
            continue
        token, (arguments, end) = tokens[index], _arguments(sql, tokens, index + 2)
        if end is None or len(arguments) != _ARGUMENTS[name] or not all(arguments):
            return Finding(f"{name} has wrong arguments", f"expected e.g. {_FORMS[name]}", line_of_token(token))
        if name in _OF_AN_ARCHIVE and not arguments[0].lower().startswith("archive."):
            what = f"{name} reads an archive, not {arguments[0]}"
            return Finding(what, f"expected e.g. {_FORMS[name]}", line_of_token(token))
        if name == VALID_AT:
            found.append(AsOf(arguments[0], arguments[1], line_of_token(token)))
        pieces += [sql[at : token.start], _written(name, arguments, kinds)]
        at, index = tokens[end].end + 1, end + 1
    return Expanded("".join([*pieces, sql[at:]]), tuple(found))


def kinds_of(tables: Sequence[exp.Table]) -> tuple[tuple[str, str], ...]:
    """Return alias -> kind of each table of a query."""
    found = []
    for table in tables:
        first = table.parts[0].name.lower()
        kind = first if len(table.parts) > 1 and first in _KINDS else "mirror"
        found.append((table.alias_or_name.lower(), kind))
    return tuple(found)


def check_as_of(as_of: Sequence[AsOf], kinds: Sequence[tuple[str, str]]) -> Finding | None:
    """Check that the first of the two is a history, and the second a table of the lake."""
    known = dict(kinds)
    for one in as_of:
        kind = known.get(_plain(one.versions))
        if kind != "history":
            what = "not a table of the query" if kind is None else f"of {kind}"
            return Finding(
                f"valid_at needs a history, and {one.versions} is {what}",
                f"expected e.g. join history.rates {one.versions} on ... and {VALID_AT}({one.versions}, {one.event})",
                one.line,
            )
        if _plain(one.event) not in known:
            return Finding(
                f"valid_at names {one.event}, which is not a table of the query", "give it an alias", one.line
            )
    return None


def _written(name: str, arguments: Sequence[str], kinds: dict[str, str]) -> str:
    if name == VALID_AT:
        versions, event = arguments
        column = "_valid_from_lsn" if kinds.get(_plain(event)) == "history" else "_commit_lsn"
        moment = f"{event}.{column}"
        return (
            f"({versions}._valid_from_lsn <= {moment} and "
            f"({versions}._valid_to_lsn is null or {versions}._valid_to_lsn > {moment}))"
        )
    if name == _CORRECTED_TIME:
        event, sent, received = arguments
        return f"(({event}) + (({received}) - ({sent})))"
    if name == _WATERMARK:
        table, column, lateness = arguments
        return f"(select max(w.{column}) - ({lateness}) from {table} w)"  # noqa: S608 - of the view's own text
    table, column = arguments
    # With peers, so that the order of rows with one position does not matter. A row cannot make itself late.
    seen = f"max(l.{column}) over (order by l._epoch, l._commit_lsn, l._ordinal)"
    return f"(select l.*, {seen} as _seen_until from {table} l)"  # noqa: S608 - of the view's own text


def _is_call(tokens: Sequence[Token], index: int) -> bool:
    behind = tokens[index + 1] if index + 1 < len(tokens) else None
    before = tokens[index - 1].token_type if index else None
    called = behind is not None and behind.token_type == TokenType.L_PAREN
    return (
        called and before != TokenType.DOT and tokens[index].token_type not in {TokenType.STRING, TokenType.IDENTIFIER}
    )


def _arguments(sql: str, tokens: Sequence[Token], first: int) -> tuple[list[str], int | None]:
    """Return the texts between commas from a token on, and the closing parenthesis; None if there is none."""
    found: list[str] = []
    depth, begin = 0, tokens[first].start if first < len(tokens) else 0
    for index in range(first, len(tokens)):
        kind = tokens[index].token_type
        if kind == TokenType.R_PAREN and depth == 0:
            found.append(sql[begin : tokens[index].start].strip())
            return found, index
        if kind == TokenType.COMMA and depth == 0:
            found.append(sql[begin : tokens[index].start].strip())
            begin = tokens[index].end + 1
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(kind, 0)
    return found, None


def _plain(name: str) -> str:
    return name.strip('`"').lower()
