"""Compares the key of a record with a key that an operator typed. Pure."""

from __future__ import annotations

from typing import Any

import msgspec


def key_matches(wanted: object, key: bytes | None) -> bool:
    """Return whether a record's key matches: `wanted` is an object with some columns, or the value of the only column.

    Numbers are compared as text, because the configuration decides whether a key column is published as 7 or "7".
    """
    if key is None:
        return False
    try:
        raw = msgspec.json.decode(key, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return False
    found = {column: _comparable(bytes(value)) for column, value in raw.items()}
    if isinstance(wanted, dict):
        return all(column in found and _same(value, found[column]) for column, value in wanted.items())
    return len(found) == 1 and _same(wanted, next(iter(found.values())))


def _comparable(raw: bytes) -> object:
    """Return a key value; a number as its digits, which may be too large for Python's types."""
    return msgspec.json.decode(raw) if raw[:1] in b'"tfn' else raw.decode()


def _same(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, bool) or isinstance(found, bool) or wanted is None or found is None:
        return bool(wanted is found)
    return str(wanted) == str(found)
