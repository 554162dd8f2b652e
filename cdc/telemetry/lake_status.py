"""State of a lake sink, readable from every thread: the source of its /status, /readyz and metrics.

State, reason and error come from the `Status` that the daemon writes, the cuts from the sink's driver.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from cdc.clock import Clock
from cdc.errors import TailraceError
from cdc.lsn import Lsn
from cdc.model.run_state import State
from cdc.telemetry import log
from cdc.telemetry.capture_status import Status
from cdc.telemetry.exposition import UNKNOWN, known
from cdc.telemetry.metrics import LakeMetrics
from cdc.telemetry.readiness import lake_is_ready

_SHARED = ("name", "state", "reason", "state_seconds", "error")
_REPAIR: Final = "repair"
_LOOKS_MAX: Final = 1000  # reads of the log's end that no cut covers yet; newer ones are then left out


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCut:
    """A sink's newest cut.

    Attributes:
        published_us: microseconds since 1970.
        views_behind: view -> why it is behind this cut.
        plans: view computed for this cut -> recompute or affected.
    """

    number: int
    end_lsn: Lsn
    published_us: int
    views_behind: Mapping[str, str] = field(default_factory=dict)
    plans: Mapping[str, str] = field(default_factory=dict)


class LakeStatus:
    """Thread-safe. Written by the driver's thread through `sinks.warehouse.lake_observer.LakeObserver`."""

    def __init__(self, daemon: Status, metrics: LakeMetrics, clock: Clock) -> None:
        self._daemon = daemon
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._cut: PublishedCut | None = None
        self._log_lsn = Lsn(0)
        self._looked_s: float | None = None
        self._level_s: float | None = None
        self._looks: deque[tuple[float, Lsn]] = deque()
        self._cuts = self._records = self._last_records = 0
        self._last_seconds: float | None = None
        self._waits = False  # only the driver's thread uses it
        self._iceberg: tuple[int, str] | None = None
        metrics.cut_age_seconds.set_function(self._age_s)
        metrics.look_age_seconds.set_function(self._look_age_s)

    def opened(self, cut: PublishedCut | None) -> None:
        """Set the cut that was found when the sink was opened; None: none yet."""
        if cut is not None:
            self._now_at(cut)

    def looked(self, log_lsn: Lsn, *, at_end: bool = True) -> None:
        """Record that the log reaches `log_lsn`; not `at_end`: it reaches further."""
        with self._lock:
            self._log_lsn, self._looked_s = log_lsn, self._clock.monotonic_s()
            if at_end and len(self._looks) < _LOOKS_MAX:
                self._looks.append((self._looked_s, log_lsn))
        self._compare()

    def waits(self, error: TailraceError) -> None:
        """Record that the lake waits for the snapshots of a repair; the next cut ends that. Logged once."""
        if not self._waits:
            log.get().warning("sink_waits", reason=_REPAIR, **log.error_fields(error))
        self._waits = True
        self._daemon.enter(State.WAITING, _REPAIR, error)

    def published(self, cut: PublishedCut, *, records: int, took_s: float) -> None:
        """Record that a cut of `records` is visible, `took_s` after its start."""
        self._now_at(cut)
        if self._waits:
            log.get().info("sink_goes_on", after=_REPAIR)
            self._waits = False
        self._works()
        self._metrics.cuts.inc()
        self._metrics.records.inc(records)
        self._metrics.cut_seconds.observe(took_s)
        for plan in cut.plans.values():
            self._metrics.view_plans.labels(plan=plan).inc()
        with self._lock:
            self._cuts, self._records = self._cuts + 1, self._records + records
            self._last_records, self._last_seconds = records, took_s

    def iceberg(self, cut: int, behind: str) -> None:
        """Record the cut that Iceberg readers see, and what they miss; "" if nothing."""
        with self._lock:
            self._iceberg = cut, behind
        self._metrics.iceberg_behind.set(1 if behind else 0)

    @property
    def state(self) -> State:
        """The daemon's state."""
        return self._daemon.state

    @property
    def ready(self) -> bool:
        """Whether readers find a cut and the sink follows the log."""
        return lake_is_ready(self.state, has_cut=self._cut is not None)

    def snapshot(self) -> dict[str, Any]:
        """Return the document of /status. Its keys are part of the interface."""
        daemon = self._daemon.snapshot()
        age_s, look_age_s = self._age_s(), self._look_age_s()
        with self._lock:
            cut = self._cut
            return {key: daemon[key] for key in _SHARED} | {
                "cut": cut.number if cut else None,
                "lsn": str(cut.end_lsn) if cut else None,
                "published_at": _time(cut.published_us) if cut else None,
                "cut_age_seconds": round(age_s, 1) if cut else None,
                "behind_bytes": self._behind_bytes() if self._log_lsn else None,
                "behind_seconds": None
                if self._level_s is None
                else round(self._clock.monotonic_s() - self._level_s, 1),
                "look_age_seconds": round(look_age_s, 1) if self._looked_s is not None else None,
                "cuts": self._cuts,
                "records": self._records,
                "last_cut_records": self._last_records if self._cuts else None,
                "last_cut_seconds": known(self._last_seconds, 3),
                "views_behind": dict(cut.views_behind) if cut else {},
                "iceberg_cut": self._iceberg[0] if self._iceberg else None,
                "iceberg_behind": self._iceberg[1] if self._iceberg else "",
            }

    def _now_at(self, cut: PublishedCut) -> None:
        with self._lock:
            self._cut = cut
        self._metrics.cut.set(cut.number)
        self._metrics.position.set(cut.end_lsn)
        self._metrics.views_behind.set(len(cut.views_behind))
        self._compare()

    def _compare(self) -> None:
        with self._lock:
            behind_bytes, is_known = self._behind_bytes(), self._log_lsn > 0
            while self._looks and self._cut is not None and self._looks[0][1] <= self._cut.end_lsn:
                self._level_s = self._looks.popleft()[0]
        self._metrics.behind_bytes.set(behind_bytes if is_known else UNKNOWN)
        if is_known and not behind_bytes and not self._waits:
            self._works()
            self._daemon.caught_up()

    def _works(self) -> None:
        """Record that a cut was published, or that there is nothing to publish."""
        if not self._daemon.ready:
            self._daemon.works()

    def _behind_bytes(self) -> int:
        return max(0, self._log_lsn - (self._cut.end_lsn if self._cut else 0))

    def _age_s(self) -> float:
        cut = self._cut
        return max(0.0, self._clock.wall_s() - cut.published_us / 1e6) if cut else float("nan")

    def _look_age_s(self) -> float:
        looked_s = self._looked_s
        return float("nan") if looked_s is None else self._clock.monotonic_s() - looked_s


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / 1_000_000, UTC).isoformat(timespec="seconds")
