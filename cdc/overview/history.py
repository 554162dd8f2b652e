"""Keeps the values of the last hour in memory, for charts. Pure."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping
from itertools import repeat
from math import isnan, nan
from typing import Any, Final

EVERY_S: Final = 5.0
KEPT: Final = 720
"""Values of a series: an hour. A series of 64-bit floats takes 6 KB."""

SERIES_MAX: Final = 400
"""Series that are kept, about 100 sinks; more are left out."""


class History:
    """Values of named series at equal distances. Thread-safe."""

    def __init__(self, *, every_s: float = EVERY_S, kept: int = KEPT) -> None:
        self._every_s = every_s
        self._kept = kept
        self._lock = threading.Lock()
        self._series: dict[str, array[float]] = {}
        self._count = 0
        self._end = ""

    def add(self, at: str, values: Mapping[str, float | None]) -> None:
        """Append one value to each series; a series that is not in `values` gets an unknown one.

        A series that is new begins with unknown values. One without a known value for an hour is forgotten.
        """
        with self._lock:
            for name in values:
                if name not in self._series and len(self._series) < SERIES_MAX:
                    self._series[name] = array("d", repeat(nan, self._count))
            self._count = min(self._kept, self._count + 1)
            for name, series in list(self._series.items()):
                value = values.get(name)
                series.append(nan if value is None else value)
                del series[: -self._kept]
                if all(map(isnan, series)):
                    del self._series[name]
            self._end = at

    def document(self) -> dict[str, Any]:
        """Return all series, the oldest value first; None is unknown."""
        with self._lock:
            series = {name: [None if isnan(one) else one for one in kept] for name, kept in self._series.items()}
            return {"every_s": self._every_s, "end": self._end or None, "series": series}


def sampled(status: Mapping[str, Any], sinks: Mapping[str, Mapping[str, float | None]]) -> dict[str, float | None]:
    """Return the values of one moment: from capture's /status, and of each sink."""
    slot = status.get("slot") or {}
    found: dict[str, float | None] = {
        "rows_per_second": status.get("rows_per_second"),
        "lag_seconds": status.get("lag_seconds"),
        "retained_bytes": slot.get("retained_bytes"),
        "wal_bytes_per_second": slot.get("wal_bytes_per_second"),
    }
    return found | {f"sink:{sink}:{name}": value for sink, values in sinks.items() for name, value in values.items()}
