"""Refuses topics with value encodings that sinks do not support."""

from __future__ import annotations

from typing import Final

from cdc.errors import SinkUnfit
from cdc.model.progress_record import SchemaRecord

_FOREIGN: Final = "debezium_"  # prefix of the encodings that only `encode.compatibility` writes


def check_encodings(record: SchemaRecord) -> None:
    """Raise SinkUnfit when a column has an encoding of `encode.compatibility`.

    The configuration refuses sinks next to that setting, but capture may have used another configuration file.
    """
    for column in record.columns:
        if _FOREIGN in column.encoding:
            raise SinkUnfit(
                f'the topic of {record.table} was written with encode.compatibility = "debezium": sinks do not support '
                f"its encoding of column {column.name!r} ({column.encoding})",
                hint="capture the table under another `name` without encode.compatibility, and give the sink that name",
                table=record.table,
                column=column.name,
            )
