"""Constructors for findings about the source, one for each level."""

from __future__ import annotations

from cdc.doctor.finding import Finding, Group, Level


def ok(check: str, message: str) -> Finding:
    """Return an OK finding about the source."""
    return Finding(group=Group.SOURCE, level=Level.OK, check=check, message=message)


def warning(check: str, message: str, sql: str = "") -> Finding:
    """Return a warning about the source."""
    return Finding(group=Group.SOURCE, level=Level.WARNING, check=check, message=message, sql=sql)


def error(check: str, message: str, sql: str = "", *, command: str = "") -> Finding:
    """Return an error about the source."""
    return Finding(group=Group.SOURCE, level=Level.ERROR, check=check, message=message, sql=sql, command=command)
