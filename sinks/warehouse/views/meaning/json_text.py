r"""Spark SQL that takes the text of a jsonb apart and keeps each value's own text. Pure.

The lake has a jsonb as PostgreSQL prints it: keys in order and once, one blank behind ``:`` and ``,``, numbers as
written (1.10 stays 1.10). Spark's own functions read numbers as doubles. So all scalars are made strings first, with a
mark: ``{"a": 1.10, "b": "x"}`` becomes ``{"sa": "n1.10", "sb": "sx"}``. Escapes become characters that a jsonb's text
never has, U+0001 to U+0003, so that a string has neither a quote nor a backslash, and patterns can skip it.

A value that was taken out is marked as well: ``s`` and the text of a string, ``n`` and the text of another scalar, or
the text of an object or array in Spark's form, without blanks.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final

from sinks.warehouse.views.meaning.typed import named, raising, text_literal

_OPTIONS: Final = "map('mode', 'FAILFAST', 'allowUnquotedControlChars', 'true')"
_STRINGS: Final = r"""'"([^"]*+)"', '"s$1"'"""
_SCALARS: Final = r"""'\\G([^"0-9tfn-]*+(?:"[^"]*+"[^"0-9tfn-]*+)*+)(-?[0-9][0-9.]*+|true|false|null)', '$1"n$2"'"""
_BLANKS: Final = r"""'\\G([^",:]*+(?:"[^"]*+"[^",:]*+)*+)([,:]) ?', '$1$2 '"""
_DIGITS_MOST: Final = 1000
_PLACE: Final = re.compile(r"[ \t\n\v\f\r]*[+-]?[0-9]+")  # what strtol() reads to the end
PLACES: Final = 10**9
"""No array of PostgreSQL has so many elements."""
_UNLIKE: Final = r"[\\u000b\\u000e\\u000f\\u001a-\\u001f]"
"""Characters that Spark escapes in upper case and PostgreSQL in lower case."""

Value = str | bool | Decimal | list[Any] | dict[str, Any] | None


def marked(sql: str) -> str:
    """Return the text of a jsonb with marked scalars."""
    plain = rf"""replace(replace(replace({sql}, '\\\\', '\u0003'), '\\"', '\u0002'), '\\', '\u0001')"""
    found = f"regexp_replace(regexp_replace({plain}, {_STRINGS}), {_SCALARS})"
    # A scalar at the top is marked as it is within an object: without its quotes.
    return named(found, "m__", """if(startswith(m__, '"'), substring(m__, 2, char_length(m__) - 2), m__)""")


def member(value: str, key: str) -> str:
    """Return the marked value of a key; null without it, or for a value of another kind."""
    return named(value, "o__", f"case when startswith(o__, '{{') then {_map('o__')}[{mark(key)}] end")


def element(value: str, place: int, *, at_top: bool) -> str:
    """Return the marked element at a place, from 0, or from -1 at the end; null without it.

    At the top, PostgreSQL takes a scalar for an array of one element.
    """
    found = f"when startswith(a__, '[') then try_element_at({_list('a__')}, {place if place < 0 else place + 1})"
    single = " when not startswith(a__, '{') then a__" if at_top and place in {0, -1} else ""
    return named(value, "a__", f"case {found}{single} end")


def at_step(value: str, step: str) -> str:
    """Return the marked value at a step of a path: a key of an object, or a place of an array."""
    keyed = f"when startswith(p__, '{{') then {_map('p__')}[{mark(step)}]"
    listed = ""
    if _PLACE.fullmatch(step) and abs(int(step)) < PLACES:
        place = int(step)
        at = place if place < 0 else place + 1
        listed = f" when startswith(p__, '[') then try_element_at({_list('p__')}, {at})"
    return named(value, "p__", f"case {keyed}{listed} end")


def as_json(value: str) -> str:
    """Return the text of a jsonb for a marked value."""
    restored = r"replace(replace(replace({}, '\\u0001', '\u0001'), '\\u0002', '\u0002'), '\\u0003', '\u0003')"
    nested = f"regexp_replace({restored.format('j__')}, {_BLANKS})"
    nested = rf"""replace(regexp_replace({nested}, '"n([^"]*+)"', '$1'), '"s', '"')"""
    string = """concat('"', substring(j__, 2), '"')"""
    cases = f"when startswith(j__, 's') then {string} when startswith(j__, 'n') then substring(j__, 2) else {nested}"
    return named(value, "j__", f"case when j__ is not null then {_escaped(f'case {cases} end')} end")


def as_text(value: str) -> str:
    """Return what ``->>`` returns for a marked value: the content of a string, null for null, else the text."""
    inside = _escaped("substring(t__, 2)")
    array = f"""from_json(concat('["', {inside}, '"]'), 'array<string>', {_OPTIONS})"""
    string = rf"if(t__ rlike '[\\u0001-\\u0003]', element_at({array}, 1), substring(t__, 2))"
    cases = f"when t__ = 'nnull' then cast(null as string) when startswith(t__, 's') then {string}"
    return named(value, "t__", f"case {cases} else {as_json('t__')} end")


def kind(value: str) -> str:
    """Return what jsonb_typeof() returns for a marked value."""
    kinds = (("s", "string"), ("{", "object"), ("[", "array"), ("nn", "null"), ("nt", "boolean"), ("nf", "boolean"))
    cases = " ".join(f"when startswith(k__, '{start}') then '{name}'" for start, name in kinds)
    return named(value, "k__", f"case {cases} when k__ is not null then 'number' end")


def length(value: str) -> str:
    """Return what jsonb_array_length() returns for a marked value."""
    failed = raising("cannot get array length of what is not an array", "int")
    cases = f"when startswith(l__, '[') then size({_list('l__')}) when l__ is not null then {failed}"
    return named(value, "l__", f"case {cases} end")


def has(value: str, key: str) -> str:
    """Return what ``?`` returns for a marked value."""
    cases = (
        f"when startswith(h__, '{{') then map_contains_key({_map('h__')}, {mark(key)})"
        f" when startswith(h__, '[') then array_contains({_list('h__')}, {mark(key)})"
        f" when h__ is not null then h__ = {mark(key)}"
    )
    return named(value, "h__", f"case {cases} end")


def contains(value: str, document: Value) -> str:
    """Return what ``@>`` with a literal returns for a marked value."""
    name = "c0__"
    found = _contains(name, document, 1)
    if not isinstance(document, dict | list):
        # An array at the top may contain a scalar.
        item = f"exists({_list(name)}, x0__ -> {_contains('x0__', document, 1)})"
        found = f"case when startswith({name}, '[') then {item} else {found} end"
    return named(value, name, f"case when {name} is not null then {found} end")


def _contains(name: str, document: Value, depth: int) -> str:
    if isinstance(document, dict):
        below = f"c{depth}__"
        tests = [
            f"coalesce({named(member(name, key), below, _contains(below, inner, depth + 1))}, false)"
            for key, inner in document.items()
        ]
        return f"(startswith({name}, '{{'){''.join(f' and {test}' for test in tests)})"
    if isinstance(document, list):
        below = f"x{depth}__"
        tests = [f"exists({_list(name)}, {below} -> {_contains(below, one, depth + 1)})" for one in document]
        # AND does not order its sides, and only an array can be read as one.
        held = " and ".join(tests) or "true"
        return f"(case when startswith({name}, '[') then {held} else false end)"
    if isinstance(document, Decimal):
        return f"(startswith({name}, 'n') and {_number(f'substring({name}, 2)')} = {text_literal(_digits(document))})"
    return f"({name} = {_scalar_mark(document)})"


def _number(sql: str) -> str:
    """Return the text of a number without zeros at the end of its fraction."""
    return rf"case when contains({sql}, '.') then regexp_replace({sql}, '\\.?0+$', '') else {sql} end"


def _digits(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scalar_mark(value: str | bool | None) -> str:  # noqa: FBT001  a value of JSON
    if isinstance(value, str):
        return mark(value)
    return "'nnull'" if value is None else f"'n{'true' if value else 'false'}'"


def mark(text: str) -> str:
    """Return the marked form of a string as a literal of Spark SQL."""
    inside = string(text)[1:-1].replace("\\\\", "\3").replace('\\"', "\2").replace("\\", "\1")
    shown = text_literal(f"s{inside}")
    for character in "\1\2\3":
        shown = shown.replace(character, f"\\u000{ord(character)}")
    return shown


def string(text: str) -> str:
    """Return a JSON string as PostgreSQL writes it."""
    return json.dumps(text, ensure_ascii=False)


def quoted_text(sql: str) -> str:
    """Return text as a JSON string as PostgreSQL writes it; an error for characters that Spark escapes otherwise."""
    failed = raising("a control character in text that becomes JSON", "string")
    shown = "to_json(array(q__))"
    inner = f"case when q__ rlike '{_UNLIKE}' then {failed} else substring({shown}, 2, char_length({shown}) - 2) end"
    return named(sql, "q__", inner)


def document(text: str) -> Value:
    """Parse JSON with exact numbers. Raises ValueError, also for what PostgreSQL refuses or prints otherwise."""
    found: Value = json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=_refused)
    if (
        "\\u0000" in text
        or _digits_most(found) > _DIGITS_MOST
        or any(0xD800 <= ord(one) < 0xE000 for one in string_parts(found))
    ):
        raise ValueError("not a text of PostgreSQL")
    return found


def _digits_most(value: Value) -> int:
    """Return the digits before or behind the point of the longest number."""
    if isinstance(value, Decimal):
        return abs(value.adjusted()) + len(value.as_tuple().digits)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(_digits_most, parts), default=0)


def string_parts(value: Value) -> str:
    """Return all keys and strings of a document, joined."""
    if isinstance(value, dict):
        return "".join(key + string_parts(inner) for key, inner in value.items())
    if isinstance(value, list):
        return "".join(map(string_parts, value))
    return value if isinstance(value, str) else ""


def printed(value: Value) -> str:
    """Return a document as PostgreSQL prints a jsonb."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return "{" + ", ".join(f"{string(key)}: {printed(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(printed, value)) + "]"
    if isinstance(value, str):
        return string(value)
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text if value else text.lstrip("-")
    return "null" if value is None else ("true" if value else "false")


def _refused(text: str) -> Value:
    raise ValueError(text)


def _map(name: str) -> str:
    return f"from_json({name}, 'map<string,string>', {_OPTIONS})"


def _list(name: str) -> str:
    return f"from_json({name}, 'array<string>', {_OPTIONS})"


def _escaped(sql: str) -> str:
    """Return a text with PostgreSQL's escapes again."""
    return rf"""replace(replace(replace({sql}, '\u0003', '\\\\'), '\u0002', '\\"'), '\u0001', '\\')"""
