"""Rules: the constructs that the fuzzer generates, each with fixed types.

A module ``*_rules.py`` in this folder has tables of constructs: `SCALARS`, `AGGREGATES` and `WINDOWS`, and `LITERALS`,
sets of texts by name; each may be missing. A construct is a line: a name, a result type, a template, and the types of
its arguments.

A type in lower case is an expression of that type. A name in capitals is one of `LITERALS`. Several types in one
string, separated by blanks, make one rule of each. ``=`` is the type that was chosen for the first argument, ``@int4``
the name of a type. ``{@}`` is a key that orders the rows totally. Sums and averages of floats are left out: PostgreSQL
adds in the order in which it happens to read the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, product
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """One construct with fixed types. `name` is that of the construct and its types; `family` without the types."""

    name: str
    family: str
    result: str
    template: str
    arguments: tuple[str, ...]


def _rules(table: tuple[tuple[str, ...], ...]) -> Iterator[Rule]:
    for family, result, template, *arguments in table:
        for types in product(*(one.split() for one in arguments)):
            first = types[0].removeprefix("@") if types else ""
            exact = tuple(first if one == "=" else one for one in types)
            kind = first if result == "=" else result
            if any(one.startswith("@") for one in exact):  # the name of a type, not an expression
                text = template.replace("{0}", first).replace("{1}", "{0}")
                yield Rule(_named(family, exact), family, kind, text, exact[1:])
            else:
                yield Rule(_named(family, exact), family, kind, template, exact)


def _named(family: str, types: tuple[str, ...]) -> str:
    shown = [one.removeprefix("@") for one in types if not one.isupper()]
    return f"{family}({','.join(shown)})"


_MODULES: Final = [
    import_module(f"tests.sqlfuzz.{path.stem}") for path in sorted(Path(__file__).parent.glob("*_rules.py"))
]


def _joined(name: str) -> tuple[Rule, ...]:
    return tuple(chain.from_iterable(_rules(getattr(module, name, ())) for module in _MODULES))


SCALARS: Final = _joined("SCALARS")
AGGREGATES: Final = _joined("AGGREGATES")
WINDOWS: Final = _joined("WINDOWS")
LITERALS: Final[Mapping[str, tuple[str, ...]]] = dict(
    chain.from_iterable(getattr(module, "LITERALS", {}).items() for module in _MODULES)
)
