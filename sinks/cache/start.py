"""Puts the target of a cache together, for `cdc.run.app`."""

from __future__ import annotations

from cdc.config.settings import Cache, Config
from sinks.cache.server_connection import Store
from sinks.cache.target import CacheTarget


def target(config: Config, name: str, settings: Cache) -> CacheTarget:
    """The target of the sink `name`; no connection is made yet. Raises ConfigError for options nobody takes."""
    return CacheTarget(Store(settings.url, settings.options), config.name, name, settings)
