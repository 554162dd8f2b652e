"""Builds the target of a sink of kind `cache`."""

from __future__ import annotations

from cdc.config.settings import Cache, Config
from sinks.cache.server_connection import Store
from sinks.cache.target import CacheTarget


def target(config: Config, name: str, settings: Cache) -> CacheTarget:
    """Return the target of the sink `name`; no connection is made yet. Raises ConfigError for unknown options."""
    return CacheTarget(Store(settings.url, settings.options), config.name, name, settings)
