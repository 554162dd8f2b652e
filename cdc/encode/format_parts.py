"""What one relation's rows look like in one format: what each format gives to `cdc.encode.row_records`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from cdc.model.change_records import Stamp


class Pieces(Protocol):
    """How one relation's rows look in one format."""

    @property
    def encoders(self) -> Sequence[Callable[[bytes], bytes] | None]:
        """Of each column: the server's text to its bytes; None where they are the same."""

    @property
    def null(self) -> bytes:
        """A column that is null."""

    def key(self, values: Sequence[bytes]) -> bytes:
        """The record's key, of a row's values. Only of a table with a key. Raises RowRefused."""

    def build(
        self,
        op: bytes,
        before: list[bytes] | None,
        after: list[bytes] | None,
        stamp: Stamp,
        lsn: int,
        ordinal: int,
        omitted: Collection[int] = (),
        reselected: Collection[int] = (),
    ) -> bytes:
        """The record's value. Columns may be NOT_SENT; `omitted` are left out, `reselected` were read later."""


class EventPieces(Pieces, Protocol):
    """Of a format whose values are Debezium's envelopes."""

    def around(self, key: bytes, stamp: Stamp, lsn: int, ordinal: int) -> bytes:
        """The value of a delete of which there is nothing but the key, as the topic has it."""
