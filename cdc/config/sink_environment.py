"""Selects the environment variables that `cdc run --with-sinks` passes to the process of a sink. Pure.

A sink reads topics and writes its store. It never connects to the source database or the schema registry. So it gets
no credentials for these, nor for another sink.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cdc.config.secret import Secret

_SINKS: Final = "TAILRACE_SINK_"
_DSN: Final = "TAILRACE_SOURCE_DSN"
_PASSWORDS: Final = frozenset({"password", "sslpassword"})
_NOT_FOR_SINKS: Final = frozenset(
    {
        "TAILRACE_SOURCE_PASSWORD",
        "PGPASSWORD",
        # Variables of single commands that an operator runs.
        "TAILRACE_INBOX_DSN",
        "TAILRACE_MIGRATE_DSN",
        "TAILRACE_CONTRACTS_REGISTRY",
    }
)
_NOTIFY: Final = "TAILRACE_NOTIFY_"
_REGISTRY: Final = "TAILRACE_REGISTRY_OPTION_"


def sink_environment(sink: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the process of `sink`: all except the secrets that it does not need.

    The source DSN has no default, so it is passed on, but without its passwords.
    """
    own = tuple(f"{_SINKS}{sink}_{word}_".upper() for word in ("OPTION", "STORAGE"))
    kept = {
        name: value
        for name, value in environ.items()
        if name not in _NOT_FOR_SINKS
        and not name.startswith((_REGISTRY, _NOTIFY))
        and (name.startswith(own) or not name.startswith(_SINKS))
    }
    if _DSN in kept:
        kept[_DSN] = _without_passwords(kept[_DSN])
    return kept


def _without_passwords(dsn: str) -> str:
    import psycopg.conninfo

    try:
        given = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return Secret(dsn).masked()
    return psycopg.conninfo.make_conninfo("", **{k: v for k, v in given.items() if k not in _PASSWORDS})
