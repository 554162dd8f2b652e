"""W3C trace context of the caller, as headers of an event; nothing where OpenTelemetry is not installed.

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
    """OpenTelemetry's own propagator; asked for once, since a failed import costs a search of the path."""
    try:
        return importlib.import_module("opentelemetry.propagate").inject  # type: ignore[no-any-return]
    except ImportError:
        return None


def current() -> dict[str, str]:
    """``traceparent`` and what goes with it, of the span that is active; empty: there is none."""
    inject = _inject()
    if inject is None:
        return {}
    carrier: dict[str, str] = {}
    inject(carrier)
    return {name: value for name, value in carrier.items() if name in _KEPT}
