"""Refuses topics whose values sinks do not read."""

from __future__ import annotations

from typing import Final

from cdc.errors import SinkUnfit
from cdc.model.progress_record import SchemaRecord

_FOREIGN: Final = "debezium_"  # begins the name of every encoding that only `encode.compatibility` writes


def check_encodings(record: SchemaRecord) -> None:
    """Raises SinkUnfit when a column has values in a form of `encode.compatibility`.

    The configuration refuses sinks next to that setting; capture may have had another configuration file.
    """
    for column in record.columns:
        if _FOREIGN in column.encoding:
            raise SinkUnfit(
                f'the topic of {record.table} was written with encode.compatibility = "debezium": sinks do not read '
                f"its form of column {column.name!r} ({column.encoding})",
                hint="capture the table under another `name` without encode.compatibility, and give the sink that name",
                table=record.table,
                column=column.name,
            )
