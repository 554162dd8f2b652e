"""Cases of arrays: captured ones, and those that a query makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.spark.meaning.case import Case, column

_ELEMENTS: Final = {"int4[]": "int4", "int8[]": "int8", "bool[]": "bool", "uuid[]": "uuid", "text[]": "text"}


def array_cases() -> Iterator[Case]:
    """Yield every case."""
    for kind, element in _ELEMENTS.items():
        yield from _captured(kind, element)
    for operator in ("<", ">=", "<>"):
        for word in ("any", "all"):
            yield Case(
                f"{operator} {word}", f"{column('int4', 'r')} {operator} {word}({column('int4[]')})", "int4[]", "int4"
            )
    yield Case("any mixed", f"{column('int2', 'r')} = any({column('int8[]')})", "int8[]", "int2")
    yield Case("any char", f"{column('char(5)', 'r')} = any({column('text[]')})", "text[]", "char(5)")
    yield Case("any order", f'{column("text", "r")} collate "C" < any({column("text[]")})', "text[]", "text")
    yield Case("array_to_string", f"array_to_string({column('int4[]')}, ', ')", "int4[]")
    yield Case("array_to_string", f"array_to_string({column('text[]')}, '')", "text[]")
    yield Case("several dimensions", f"cardinality({column('int2[]')})", "int2[]")
    yield Case("several dimensions", f"1 = any({column('int2[]')})", "int2[]")
    yield from _made()


def _captured(kind: str, element: str) -> Iterator[Case]:
    value, other = column(kind), column(kind, "r")
    yield Case(f"cardinality {kind}", f"cardinality({value})", kind)
    yield Case(f"array_length {kind}", f"array_length({value}, 1)", kind)
    for word in ("any", "all"):
        yield Case(f"= {word} {kind}", f"{column(element, 'r')} = {word}({value})", kind, element)
    for operator in ("@>", "<@", "&&"):
        yield Case(f"{operator} {kind}", f"{value} {operator} {other}", kind, kind)
    yield Case(f"[:] {kind}", f"({value}[:])[1]", kind)
    yield Case(f"[:] {kind}", f"{value}[:]", kind)
    yield Case(f"[:] {kind}", f"{value}[:] = {other}[:]", kind, kind)


def _made() -> Iterator[Case]:
    number, text, places = column("int4"), column("text"), column("int2", "r")
    yield Case("array", f"array[{number}, 7, null]", "int4")
    yield Case("array", f"array[{text}, 'x']", "text")
    yield Case("array", f"array[{column('numeric(15,2)')}, 1]", "numeric(15,2)")
    yield Case("array", f"array[{column('date')}]", "date")
    for index in ("1", "2", "4"):
        yield Case("[]", f"(array[{number}, 7, null])[{index}]", "int4")
    yield Case("[i]", f"(array[{number}, 7, null])[{places}]", "int4", "int2")
    for part in ("1:2", "2:2", "2:", ":1", "3:1", "5:6", ":"):
        yield Case("slice", f"(array[{number}, 7, 8])[{part}]", "int4")
    yield Case("array =", f"array[{number}, 1] = array[{column('int4', 'r')}, 1]", "int4", "int4")
    yield Case("array <>", f"array[{text}] <> array[{column('text', 'r')}]", "text", "text")
    yield Case(
        "array is distinct from", f"array[{number}] is distinct from array[{column('int4', 'r')}]", "int4", "int4"
    )
    for word in ("any", "all"):
        yield Case(f"{word} of none", f"1 / {number} > {word}('{{}}'::int[])", "int4")
        yield Case(f"{word} of computed", f"{number} % 7 = {word}(array[0, 7, null])", "int4")
    yield Case("any of made", f"{number} > any(array[1, 7, null])", "int4")
    yield Case("all of made", f"{number} <> all(array[1, 7])", "int4")
    yield Case("literal", f"{number} = any('{{1,7,-1}}'::int[])", "int4")
    yield Case("literal", f"{text} = any('{{a,ab}}'::text[])", "text")
    yield Case("literal", f"{column('int4[]')} @> '{{1}}'", "int4[]")
    yield Case("literal", f"{column('int4[]')} && array[1, 3]", "int4[]")
    yield Case("literal", f"{column('text[]')} <@ array['a', 'b', 'c']", "text[]")
