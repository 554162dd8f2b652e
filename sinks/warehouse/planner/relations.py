"""Describes a table or view that a view reads, and names its versions and images in a cut. Pure.

Three relations represent one input at a cut: ``t`` (at this cut), ``t__old`` (at the previous cut) and ``t__d`` (images
of the changes: old ones with ``__w`` -1, new ones with 1). Images may contain more than the difference, never less: a
row that is in both sides may have images; a row that is in only one side has its image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

WEIGHT: Final = "__w"


class Unplannable(Exception):
    """A query, or a part of it, that no incremental plan supports. The message is the reason, for people."""


@dataclass(frozen=True, slots=True)
class Relation:
    """An input of a view.

    Attributes:
        name: in the SQL; a plain identifier in lower case.
        columns: name -> Spark's type as DDL, or "" if unknown.
        key: columns that no two rows share, a null being equal to a null; empty if none are known.
        rows: about how many it has; 0 if that is not known. It decides only what is cheap.
        partition: columns with the same values in all rows that a change replaces together; empty if there are none.
    """

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...] = ()
    rows: int = 0
    partition: tuple[str, ...] = ()


def old(name: str) -> str:
    """The relation at the previous cut."""
    return f"{name}__old"


def images(name: str) -> str:
    """The images of its changed rows."""
    return f"{name}__d"
