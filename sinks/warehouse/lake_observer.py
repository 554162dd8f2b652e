"""The contract for observers of a lake's progress. `cdc.telemetry.lake_status.LakeStatus` implements it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cdc.errors import TailraceError, ViewRefused
from cdc.lsn import Lsn
from cdc.telemetry.lake_status import PublishedCut
from sinks.warehouse.lake.manifest import Manifest
from sinks.warehouse.views.generations import is_resting


class LakeObserver(Protocol):
    """Receives events from the driver's thread, for metrics and status. Must not block or raise."""

    def opened(self, cut: PublishedCut | None) -> None:
        """A driver owns the lake and found it at this cut; None before the first cut."""

    def looked(self, log_lsn: Lsn, *, at_end: bool = True) -> None:
        """The log was read up to `log_lsn`; not `at_end`: it reaches further."""

    def waits(self, error: TailraceError) -> None:
        """No cut can end yet, because the log is being repaired; called again as long as that is so."""

    def published(self, cut: PublishedCut, *, records: int, took_s: float) -> None:
        """A cut of `records` became visible to readers, `took_s` after it began."""

    def iceberg(self, cut: int, behind: str) -> None:
        """Iceberg readers see this cut (0: none); `behind` is what they miss, "" if nothing."""


class Unobserved:
    """An observer that does nothing."""

    def opened(self, cut: PublishedCut | None) -> None:
        """See `LakeObserver`."""

    def looked(self, log_lsn: Lsn, *, at_end: bool = True) -> None:
        """See `LakeObserver`."""

    def waits(self, error: TailraceError) -> None:
        """See `LakeObserver`."""

    def published(self, cut: PublishedCut, *, records: int, took_s: float) -> None:
        """See `LakeObserver`."""

    def iceberg(self, cut: int, behind: str) -> None:
        """See `LakeObserver`."""


def published_cut(manifest: Manifest, refused: Mapping[str, ViewRefused] | None = None) -> PublishedCut:
    """Return what is reported of a manifest. `refused` has files of views that no cut has reported yet."""
    missing = {name: error.reason for name, error in (refused or {}).items() if name not in manifest.views}
    missing |= {name: unbuilt.reason for name, unbuilt in manifest.unbuilt.items()}
    return PublishedCut(
        number=manifest.cut,
        end_lsn=Lsn(manifest.end_lsn),
        published_us=manifest.committed_at_us,
        plans={
            name: state.plan.plan
            for name, state in manifest.views.items()
            if state.plan is not None and state.cut == manifest.cut
        },
        views_behind=missing
        | {name: state.reason for name, state in manifest.views.items() if state.reason and not is_resting(state)},
    )
