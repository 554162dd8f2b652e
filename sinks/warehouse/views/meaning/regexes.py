"""Translates regular expressions: ~, regexp_replace(), substring(x from 'pattern') and others. Pure."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from sinks.warehouse.views.meaning import functions
from sinks.warehouse.views.meaning.coercion import coerced, unpadded
from sinks.warehouse.views.meaning.pg_types import BOOL, INT4, TEXT, TEXTS
from sinks.warehouse.views.meaning.refusal import NotProven
from sinks.warehouse.views.meaning.regex_paths import ambiguity, groups, matches_empty, recurses
from sinks.warehouse.views.meaning.regex_syntax import Item, Unknown, parsed
from sinks.warehouse.views.meaning.typed import Typed, raising, text_literal

if TYPE_CHECKING:
    from sinks.warehouse.views.meaning.expressions import Expressions

_DEEP_MOST: Final = 1000  # characters of a text that Java matches by recursion; the stack of a thread is limited
_REPLACEMENT: Final = re.compile(r"[^\\]+|\\[0-9&\\]")
_CASE_HINT: Final = 'write x collate "C" ~* ... for ASCII letters, or declare the collation: -- collation: C'
_MATCH_HINT: Final = "write x ~ 'pattern', split_part(), or a pattern in which the next character decides what follows"


def _like(walk: Expressions, node: exp.RegexpLike | exp.RegexpILike) -> Typed:
    flags = _flags(node, node.args.get("flag"), "ic")
    found = walk.of(node.this)
    if found.type.name == "bpchar":
        raise NotProven(node, "matches char(n) with a regular expression", "cast it to text: x::text ~ '...'")
    subject, item = _both(walk, node, any_case=isinstance(node, exp.RegexpILike) or flags[-1:] == "i")
    return Typed(_guarded(subject, item, f"{subject.sql} rlike {_java(item)}", "boolean"), BOOL)


def _substring(walk: Expressions, node: exp.Substring) -> Typed:
    start = node.args.get("start")
    if start is None or walk.of(start).type.name not in {*TEXTS, "unknown"} or node.args.get("length") is not None:
        return functions.call(walk, node)
    pattern = exp.RegexpSubstr(this=node.this.copy(), expression=start.copy())
    pattern.parent = node.parent
    subject, item = _both(walk, pattern, any_case=False)
    captures = groups(item)
    if captures and not captures[0]:
        raise NotProven(node, "takes a group that is not part of every match", "write (?:...) for other groups")
    return _extracted(node, subject, item, 1 if captures else 0)


def _whole(walk: Expressions, node: exp.RegexpSubstr) -> Typed:
    subject, item = _both(walk, node, any_case=False)
    return _extracted(node, subject, item, 0)


def _extracted(node: exp.Expr, subject: Typed, item: Item, group: int) -> Typed:
    _check_match(node, item)
    java = _java(item)
    sql = f"case when {subject.sql} rlike {java} then regexp_extract({subject.sql}, {java}, {group}) end"
    return subject.of(_guarded(subject, item, sql, "string"), TEXT)


def _count(walk: Expressions, node: exp.RegexpCount) -> Typed:
    subject, item = _both(walk, node, any_case=False)
    _check_match(node, item, not_empty=True)
    return Typed(_guarded(subject, item, f"regexp_count({subject.sql}, {_java(item)})", "int"), INT4)


def _replaced(walk: Expressions, node: exp.RegexpReplace) -> Typed:
    flags = _flags(node, node.args.get("modifiers"), "gic")
    subject, item = _both(walk, node, any_case="i" in flags)
    _check_match(node, item, not_empty=True)
    part = node.args.get("replacement")
    given = walk.of(part) if part is not None else None
    if given is None or given.literal is None:
        raise NotProven(node, "replaces by what is not a literal", "write the replacement as a literal")
    every = "g" in flags
    java = _java(item) if every else text_literal(rf"(?s)\A(.*?)(?:{item.java()})")
    new = _replacement(node, given.literal, groups(item), 0 if every else 1)
    shown = text_literal(new if every else f"$1{new}")
    return subject.of(_guarded(subject, item, f"regexp_replace({subject.sql}, {java}, {shown})", "string"), TEXT)


def _replacement(node: exp.Expr, text: str, captures: list[bool], shift: int) -> str:
    r"""Return a replacement in Java's form: \1 is $1, and the whole match \& is $0."""
    pieces = _REPLACEMENT.findall(text)
    if "".join(pieces) != text:
        raise NotProven(node, "escapes another character in a replacement", r"write \1, \& or \\")
    found = []
    for piece in pieces:
        if not piece.startswith("\\"):
            found.append(piece.replace("$", r"\$"))
        elif piece == r"\\":
            found.append(r"\\")
        elif piece == r"\&":
            if shift:
                raise NotProven(node, r"uses \& without the flag g", r"put the pattern into parentheses, and write \1")
            found.append("$0")
        else:
            number = int(piece[1])
            if not 1 <= number <= len(captures) or not captures[number - 1]:
                raise NotProven(node, f"uses {piece}, a group that is not part of every match", "name another group")
            found.append(f"${number + shift}")
    return _separated(node, found)


def _separated(node: exp.Expr, pieces: list[str]) -> str:
    """Join the pieces; Java would read a digit behind a group as a part of its number."""
    for piece, behind in pairwise(pieces):
        if piece.startswith("$") and piece[1:].isdigit() and behind[0].isdigit():
            raise NotProven(node, "has a digit behind a group in a replacement", "replace in two steps")
    return "".join(pieces)


def _flags(node: exp.Expr, part: exp.Expr | None, known: str) -> str:
    if part is None:
        return ""
    if not isinstance(part, exp.Literal) or set(part.name) - set(known):
        raise NotProven(node, "uses these flags of a regular expression", f"known are {', '.join(known)}")
    letters: str = part.name
    if {"i", "c"} <= set(letters):
        raise NotProven(node, "uses the flags i and c together", "write one of them")
    return letters


def _both(walk: Expressions, node: exp.Expr, *, any_case: bool) -> tuple[Typed, Item]:
    """Return the text and the pattern."""
    subject, pattern = walk.of(node.this), walk.of(node.args["expression"])
    if subject.type.name not in {*TEXTS, "unknown", "lake"}:
        raise NotProven(node, f"matches {subject.type} with a regular expression", "cast it to text")
    if pattern.literal is None or pattern.type.name not in {*TEXTS, "unknown"}:
        raise NotProven(node, "uses a regular expression that is not a literal", "write it as a literal, or use like")
    c = subject.c or pattern.c
    if any_case and not c:
        raise NotProven(node, "matches without case by the collation of the database", _CASE_HINT)
    try:
        item = parsed(pattern.literal, c=c, any_case=any_case)
    except Unknown as unknown:
        what = f"has {unknown.what} at character {unknown.at} of the regular expression {pattern.literal[:60]!r}"
        raise NotProven(node, what, unknown.hint or "use a simpler pattern, like, or strpos()") from unknown
    return unpadded(coerced(node, subject, TEXT)), item


def _check_match(node: exp.Expr, item: Item, *, not_empty: bool = False) -> None:
    """Refuse a pattern whose match, and not only whether there is one, may differ."""
    why = ambiguity(item)
    if not why and not_empty and matches_empty(item):
        why = "it matches the empty text"
    if why:
        raise NotProven(node, f"uses the text that a regular expression matches, but {why}", _MATCH_HINT)


def _java(item: Item) -> str:
    return text_literal(f"(?s){item.java()}")


def _guarded(subject: Typed, item: Item, sql: str, kind: str) -> str:
    """Return it for texts for which Java's matching has enough stack."""
    if not recurses(item):
        return f"({sql})"
    failed = raising(f"a regular expression repeats a group over a text of more than {_DEEP_MOST} characters", kind)
    return f"case when char_length({subject.sql}) > {_DEEP_MOST} then {failed} else {sql} end"


HANDLERS: Final[dict[type[exp.Expr], Any]] = {
    exp.RegexpLike: _like,
    exp.RegexpILike: _like,
    exp.Substring: _substring,
    exp.RegexpSubstr: _whole,
    exp.RegexpCount: _count,
    exp.RegexpReplace: _replaced,
}
