"""The base class of all sections of cdc.toml."""

from __future__ import annotations

from types import UnionType
from typing import get_args

import msgspec


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of cdc.toml. An unknown key is an error that names the key."""


def section_of(hint: object) -> type[Section] | None:
    """Return the section type of a field of Config, also of an optional section; None for other fields."""
    for kind in get_args(hint) if isinstance(hint, UnionType) else (hint,):
        if isinstance(kind, type) and issubclass(kind, Section):
            return kind
    return None
