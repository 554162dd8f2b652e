"""A row of pg_type, as far as encoding needs it; for types that are not built in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """What the catalog says of a type.

    Attributes:
        oid: pg_type.oid.
        name: as format_type prints it, with its schema where that is needed.
        kind: typtype: ``b`` base, ``c`` composite, ``d`` domain, ``e`` enum, ``r`` range, ``m`` multirange.
        element_oid: of a true array the type of its elements, else 0.
        base_oid: of a domain the type it stands on, else 0.
        delimiter: between array elements of this type, nearly always ``,``.
        extension: that brought it, empty for none.
        base_modifier: of a domain the type modifier that it gives its base type, -1 for none.
    """

    oid: int
    name: str
    kind: str
    element_oid: int = 0
    base_oid: int = 0
    delimiter: str = ","
    extension: str = ""
    base_modifier: int = -1
