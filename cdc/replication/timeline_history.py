"""Reads the history of a server's timeline, which only a replication connection provides."""

from __future__ import annotations

from typing import Final

from psycopg import pq

from cdc.config.secret import Secret
from cdc.errors import SourceRefused
from cdc.model.timeline import TimelineSwitch, parse_history
from cdc.replication.connect import connect_replication, deadline
from cdc.replication.error_mapping import translate_sqlstate

_ANSWER_S: Final = 10.0
_CONTENT: Final = 1  # the second column; the first is the name of the file


def timeline_history(dsn: Secret, timeline: int) -> list[TimelineSwitch]:
    """Return where the history of `timeline` left each earlier one. Raises a TailraceError if there is no answer."""
    if timeline <= 1:
        return []
    connection = connect_replication(dsn, application_name="cdc history")
    try:
        with deadline(connection, _ANSWER_S):
            result = connection.pgconn.exec_(f"TIMELINE_HISTORY {timeline}".encode())
        if result.status != pq.ExecStatus.TUPLES_OK or result.ntuples != 1:
            state, message = (
                (result.error_field(field) or b"").decode(errors="replace")
                for field in (pq.DiagnosticField.SQLSTATE, pq.DiagnosticField.MESSAGE_PRIMARY)
            )
            raise translate_sqlstate(state or "08006", message, "", f"read the history of timeline {timeline}")
        text = (result.get_value(0, _CONTENT) or b"").decode(errors="replace")
    finally:
        connection.close()
    try:
        return parse_history(text)
    except ValueError as error:
        raise SourceRefused(f"the history of timeline {timeline} cannot be read: {error}") from error
