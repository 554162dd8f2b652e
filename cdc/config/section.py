"""What every table of cdc.toml is."""

from __future__ import annotations

import msgspec


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of cdc.toml. An unknown key is an error that names it."""
