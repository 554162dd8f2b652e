"""Expressions that cover regular expressions: patterns of the known subset over hostile texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.spark.meaning.case import Case, column

_MATCHED: Final = (
    *("", "^", "$", "^$", "a", "^a", "a$", "^a$", "a|b", "^(a|b)$", "ab|a", "^(a|ab)(c|bcd)?$", ".", "^.$", "^..$"),
    *("a.b", "[abc]", "[^a]", "^[^a]$", "^[^a]*$", "[a-c]+", "[A-Z]", "[]a]", "[^]a]", "[a-]", "[-a]", r"[\n\t]"),
    *(r"[\\\]]", r"a\\b", r"\.", r"a\|b", "ä", "[äé]", "[^ä]", "日.語", "\U0001f600", "[\U0001f600]x", "^.x$"),
    *("a{2}", "a{1,}", "^a{1,2}$", "(ab)*c", "^(a|b)+$", "(?:a|b)?c", "^(?:[a-z]+ )*[a-z]+$", "a+?b", "^a*?$"),
    *(r"\Aa", r"a\Z", r"\Aa\nb\Z", "a\nb", "a$|^b", "(^a|b$)", "a^b", "a$b", "x*", "(a*)*b", "[[:xdigit:]]"),
    *("%", "_", '"', "~", "#", "-", "&&", "[a&&b]", "0+", "^ +$", "'", "I", "[a-z]"),
)
_OF_C: Final = (
    *(r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"^\w+$", r"^\s", r"[\d_]", r"[^\s]", "[[:alpha:]]", "[[:digit:]]"),
    *("[[:alnum:]]", "[[:upper:]]", "[[:lower:]]", "[[:space:]]", "[[:blank:]]", "[[:punct:]]", "[[:cntrl:]]"),
    *("[[:print:]]", "[[:graph:]]", "[^[:alpha:]]", "[[:alpha:]_-]"),
)
_ANY_CASE: Final = ("A", "^[A-Z]+$", "[^a]", "é", "É", "AB", "[[:upper:]]", r"\d|\w", "[Z-a]", "ß", "i")
_TAKEN: Final = (
    *("a", "[a-z]+", "^a", "b$", "a+b?", "[0-9]+", "a|b", "[^a]+", ".", "a(b)", "(a)(b)?", "([a-z])[A-Z]?"),
    *("(?:ab)+", "a{1,2}b", "[a-z]+(?: [a-z]+)*", r"[a-z]*\\", "x|ä", "日(.)", "a\n?b", "(b)$", "[ab]{2,3}"),
)
_EMPTY: Final = ("^.*$", "a*", "^a*", "(?:ab)?", "^", "$")
_REPLACEMENTS: Final = ("x", "", "$1", r"\\", "a$b", "ä", "''")
_TEXTS: Final = ("text", "varchar(6)")


def cases() -> Iterator[Case]:
    """Yield every case."""
    for kind in _TEXTS:
        a = column(kind)
        for pattern in _MATCHED:
            yield Case(f"~ {kind}", f"{a} ~ {_quoted(pattern)}", kind)
        for pattern in _MATCHED[:20]:
            yield Case(f"!~ {kind}", f"{a} !~ {_quoted(pattern)}", kind)
            yield Case(f"regexp_like {kind}", f"regexp_like({a}, {_quoted(pattern)})", kind)
    yield from _of_c()
    yield from _taken()


def _of_c() -> Iterator[Case]:
    a = f'{column("text")} collate "C"'
    for pattern in _OF_C:
        yield Case("~ C", f"{a} ~ {_quoted(pattern)}", "text")
    for pattern in (*_ANY_CASE, *_MATCHED[:40]):
        yield Case("~* C", f"{a} ~* {_quoted(pattern)}", "text")
        yield Case("!~* C", f"{a} !~* {_quoted(pattern)}", "text")
    yield Case("regexp_like i", f"regexp_like({a}, 'A', 'i')", "text")


def _taken() -> Iterator[Case]:
    for kind in ("text", "char(5)", "varchar(6)"):
        a = column(kind)
        for pattern in _TAKEN:
            shown = _quoted(pattern)
            yield Case(f"substring from {kind}", f"substring({a} from {shown})", kind)
            yield Case(f"regexp_substr {kind}", f"regexp_substr({a}, {shown})", kind)
            yield Case(f"regexp_count {kind}", f"regexp_count({a}, {shown})", kind)
            for new in _REPLACEMENTS[: 7 if kind == "text" else 2]:
                yield Case(f"regexp_replace {kind}", f"regexp_replace({a}, {shown}, '{new}')", kind)
                yield Case(f"regexp_replace {kind}", f"regexp_replace({a}, {shown}, '{new}', 'g')", kind)
    a = column("text")
    for pattern in _EMPTY:
        yield Case("substring from", f"substring({a}, {_quoted(pattern)})", "text")
    yield Case("regexp_replace group", f"regexp_replace({a}, '([a-z])([a-z])', '\\2\\1')", "text")
    yield Case("regexp_replace group", f"regexp_replace({a}, '([a-z])', '<\\1>\\\\', 'g')", "text")
    yield Case("regexp_replace whole", f"regexp_replace({a}, '[a-z]+', '[\\&]', 'g')", "text")
    yield Case("regexp_replace i", f"regexp_replace({a} collate \"C\", 'A|B', 'x', 'gi')", "text")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
