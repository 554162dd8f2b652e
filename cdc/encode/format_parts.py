"""Defines what a format implements for `cdc.encode.row_records`: how rows of one relation are encoded. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from cdc.model.change_records import Stamp


class RowFormat(Protocol):
    """Encodes the rows of one relation in one format."""

    @property
    def encoders(self) -> Sequence[Callable[[bytes], bytes] | None]:
        """Per column: converts the server's text to the encoded value; None if they are equal."""

    @property
    def null(self) -> bytes:
        """The encoded value of null."""

    def key(self, values: Sequence[bytes]) -> bytes:
        """Encode the key of a row; only for tables with a key. Raises RowRefused."""

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
        """Encode the value of a record.

        Columns may be NOT_SENT; those in `omitted` are left out, those in `reselected` were read later.
        """


class EnvelopeFormat(RowFormat, Protocol):
    """A format whose values are Debezium's envelopes."""

    def delete_of_key(self, key: bytes, stamp: Stamp, lsn: int, ordinal: int) -> bytes:
        """Encode a delete when only the key in the topic is known."""
