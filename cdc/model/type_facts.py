"""The part of a pg_type row that encoding needs, for types that are not built in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_USER_OID: Final = 16384
"""FirstNormalObjectId in access/transam.h: types below it are built in and never change."""


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """A type in the catalog.

    Attributes:
        oid: pg_type.oid.
        name: as format_type prints it, with its schema where required.
        kind: typtype: ``b`` base, ``c`` composite, ``d`` domain, ``e`` enum, ``r`` range, ``m`` multirange.
        element_oid: element type of a true array, else 0.
        base_oid: base type of a domain, else 0.
        delimiter: between array elements of this type, nearly always ``,``.
        extension: the extension that created it, empty for none.
        base_modifier: type modifier that a domain applies to its base type, -1 for none.
    """

    oid: int
    name: str
    kind: str
    element_oid: int = 0
    base_oid: int = 0
    delimiter: str = ","
    extension: str = ""
    base_modifier: int = -1
