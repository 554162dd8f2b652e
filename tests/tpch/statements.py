"""Changes of TPC-H's tables as SQL for PostgreSQL. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tests.tpch.refresh import Change, Delete, Insert, Row, Transaction
from tests.tpch.tables import KEYS

Statement = tuple[bytes, Row]
"""SQL with `%s` marks, and its parameters."""


def statements(transaction: Transaction) -> Iterator[Statement]:
    """Yield the statements of a transaction, without `begin` and `commit`."""
    return map(_statement, transaction)


def _statement(change: Change) -> Statement:
    if isinstance(change, Insert):
        marks = ", ".join(["%s"] * len(change.row))
        return f"insert into {change.table} values ({marks})".encode(), change.row
    where = " and ".join(f"{name} = %s" for name in KEYS[change.table][: len(change.key)])
    if isinstance(change, Delete):
        return f"delete from {change.table} where {where}".encode(), change.key
    values = ", ".join(f"{name} = %s" for name in change.values)
    return f"update {change.table} set {values} where {where}".encode(), (*change.values.values(), *change.key)
