"""The parts of a DB-API driver (PEP 249) that the outbox needs; it works with any driver of the application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Connection(Protocol):
    """A connection that is not in autocommit mode."""

    def cursor(self) -> Any:
        """Return a cursor in the current transaction."""

    def commit(self) -> None:
        """Commit the transaction."""

    def rollback(self) -> None:
        """Roll the transaction back."""


class Cursor(Protocol):
    """A cursor, or a psycopg connection."""

    def execute(self, operation: Any, parameters: Any, /) -> Any:
        """Run a statement with positional parameters (paramstyle ``format``)."""


class CountingCursor(Cursor, Protocol):
    """A cursor that counts the rows of a statement."""

    @property
    def rowcount(self) -> int:
        """Return how many rows the last statement changed."""


class RowsCursor(CountingCursor, Protocol):
    """A cursor that also returns rows."""

    def fetchall(self) -> Sequence[Any]:
        """Return all rows of the last statement."""
