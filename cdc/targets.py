"""Makes the store of a sink by its kind; nothing of a kind is imported before it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final, cast

from cdc.config.settings import Applied, Cache, Config, Search
from cdc.config.sinks import sink_of
from cdc.errors import UsageError

if TYPE_CHECKING:
    from sinks.contract import Target

_STARTS: Final = {Search: "sinks.search.start", Cache: "sinks.cache.start"}
"""Each has a function `target(config, sink, settings)`."""


def open_target(config: Config, sink: str) -> Target:
    """The store of a sink; close it. Raises UsageError for a lake, ConfigError, SinkUnreachable."""
    settings = sink_of(config, sink)
    if not isinstance(settings, Applied):
        raise UsageError(f"sink {sink!r} is a lake, not a store of one key at a time")
    start = importlib.import_module(_STARTS[type(settings)])
    # The module is of a kind that is in the table above; mypy does not follow names that are text.
    return cast("Target", start.target(config, sink, settings))
