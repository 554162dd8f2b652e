"""What every table of cdc.toml is."""

from __future__ import annotations

from types import UnionType
from typing import get_args

import msgspec


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of cdc.toml. An unknown key is an error that names it."""


def section_of(hint: object) -> type[Section] | None:
    """The section that a field of the configuration holds, also one that may be left out; None for other fields."""
    for kind in get_args(hint) if isinstance(hint, UnionType) else (hint,):
        if isinstance(kind, type) and issubclass(kind, Section):
            return kind
    return None
