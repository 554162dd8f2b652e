"""What is known to be equal for types that the lake keeps as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CASTS: Final[Mapping[tuple[str, str], str]] = {
    (name, "text"): "{0}" for name in ("time", "timetz", "macaddr", "macaddr8", "bit", "varbit", "cidr", "money")
}
"""The text of an inet has a /32 that its value lacks, and that of an interval depends on a setting."""
