"""Quotes strings for TOML (https://toml.io/en/v1.0.0#string)."""

from __future__ import annotations

import json

from cdc.patterns import pattern_for
from cdc.replication.table_shape import SourceTable


def toml_string(text: str) -> str:
    """Return a basic string: JSON's escapes are valid in TOML too, but DEL must also be escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def table_pattern(table: SourceTable, *, exclude: bool = False) -> str:
    """Return an entry of source.tables that selects, or excludes, exactly this table."""
    return toml_string(("!" if exclude else "") + pattern_for(table.table))
