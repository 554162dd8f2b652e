"""The three kinds of findings about the source, in one line each."""

from __future__ import annotations

from cdc.doctor.finding import Finding, Group, Level


def ok(check: str, message: str) -> Finding:
    """A finding about the source."""
    return Finding(group=Group.SOURCE, level=Level.OK, check=check, message=message)


def warning(check: str, message: str, sql: str = "") -> Finding:
    """See `ok`."""
    return Finding(group=Group.SOURCE, level=Level.WARNING, check=check, message=message, sql=sql)


def error(check: str, message: str, sql: str = "", *, command: str = "") -> Finding:
    """See `ok`."""
    return Finding(group=Group.SOURCE, level=Level.ERROR, check=check, message=message, sql=sql, command=command)
