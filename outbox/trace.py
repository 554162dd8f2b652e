"""Returns the caller's W3C trace context as headers of an event, if OpenTelemetry is installed.

https://www.w3.org/TR/trace-context/
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, MutableMapping
from functools import cache
from typing import Any, Final

_KEPT: Final = ("traceparent", "tracestate", "baggage")


@cache
def _inject() -> Callable[[MutableMapping[str, str]], Any] | None:
    """Return OpenTelemetry's propagator, or None. Cached, because a failed import searches the whole path."""
    try:
        return importlib.import_module("opentelemetry.propagate").inject  # type: ignore[no-any-return]
    except ImportError:
        return None


def current() -> dict[str, str]:
    """Return ``traceparent``, ``tracestate`` and ``baggage`` of the active span; empty if there is none."""
    inject = _inject()
    if inject is None:
        return {}
    carrier: dict[str, str] = {}
    inject(carrier)
    return {name: value for name, value in carrier.items() if name in _KEPT}
