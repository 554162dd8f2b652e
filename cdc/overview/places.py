"""The names and addresses of a configuration that the page shows, without passwords."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.config.settings import Cache, Config, Search, Sink, Warehouse
from cdc.config.sink_kinds import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """A sink: `kind` is search, cache, lake, or the kind of a plugin; `address` is where its store is."""

    kind: str
    address: str
    has_views: bool = False


@dataclass(frozen=True, slots=True)
class Places:
    """Addresses as a person would write them: `source` is ``host:port/database``, `kafka` the bootstrap servers.

    `unreplicated`: the configuration accepts topics with one replica.
    """

    name: str
    source: str
    slot: str
    kafka: str
    sinks: Mapping[str, SinkPlace]
    unreplicated: bool = False

    @classmethod
    def of(cls, config: Config) -> Places:
        """Return the places of a configuration."""
        sinks = {name: _sink(settings) for name, settings in sorted(config.sinks.items())}
        return cls(
            config.name,
            source_address(config),
            config.slot,
            config.kafka.bootstrap,
            sinks,
            config.kafka.allow_unreplicated,
        )


def source_address(config: Config) -> str:
    """Return ``host:port/database`` of the source."""
    from psycopg import ProgrammingError, conninfo

    try:
        given = conninfo.conninfo_to_dict(config.source.dsn.reveal())
    except ProgrammingError:
        return "an address that cannot be read"
    host = str(given.get("host") or "local socket")
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{given.get('port') or 5432}/{given.get('dbname') or ''}"


def _sink(settings: Sink) -> SinkPlace:
    if isinstance(settings, Warehouse):
        return SinkPlace("lake", settings.path, has_views=bool(settings.views))
    address = settings.url if isinstance(settings, Search | Cache) else ""
    return SinkPlace(kind_of(settings), address)
