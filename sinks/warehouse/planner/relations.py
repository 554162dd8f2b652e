"""What a planner must know of a table or view that is read, and what its sides of a cut are called. Pure.

Three relations stand for one input at a cut: ``t`` (as of this cut), ``t__old`` (as of the cut before) and ``t__d``
(the images of what changed: old ones with ``__w`` -1, new ones with 1). Images may be more than the difference, never
less: a row that is in both sides may have images, one that is in one side only has its image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

WEIGHT: Final = "__w"


class Unplannable(Exception):
    """A query, or a part of it, that no incremental plan covers. The message is the reason, for people."""


@dataclass(frozen=True, slots=True)
class Relation:
    """An input of a view.

    Attributes:
        name: in the SQL; a plain identifier in lower case.
        columns: name -> Spark's type as DDL, or "" where it is not known.
        key: columns that no two rows share, a null being like a null; empty when none are known.
    """

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...] = ()


def old(name: str) -> str:
    """The relation as of the cut before."""
    return f"{name}__old"


def images(name: str) -> str:
    """The images of its changed rows."""
    return f"{name}__d"
