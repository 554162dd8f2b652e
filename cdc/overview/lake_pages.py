"""Lists the lakes with their cuts, views and the costs of these, for the page. Needs neither Kafka nor Spark."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cdc.config.sink_kinds import lakes
from cdc.errors import TailraceError
from cdc.inspect.lake_state import time_text
from cdc.lsn import Lsn

if TYPE_CHECKING:
    from cdc.config.settings import Config, Warehouse
    from sinks.warehouse.lake.manifest import Manifest, ManifestStore

CUTS_SHOWN: Final = 60


class LakePages:
    """Reads manifests; those of older cuts never change and are read once. Thread-safe."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._seen: dict[str, dict[int, _Cut]] = {}

    def lakes(self) -> dict[str, Any]:
        """Return all lakes. One that cannot be read has `error`."""
        with self._lock:
            return {"lakes": [self._lake(name, settings) for name, settings in sorted(lakes(self._config).items())]}

    def _lake(self, name: str, settings: Warehouse) -> dict[str, Any]:
        found: dict[str, Any] = {"name": name, "where": settings.path, "cut": None, "lsn": None, "published_at": None}
        found |= {"error": None, "cuts": [], "views": []}
        try:
            from sinks.warehouse.lake.location import Location
            from sinks.warehouse.lake.manifest import ManifestStore

            store = ManifestStore(Location.configured(settings))
            current = store.current()
            if current is None:
                return found
            cuts = self._cuts(name, store, current)
        except ImportError as error:
            return found | {"error": f"the extra warehouse is not installed here: {error}"}
        except TailraceError as error:
            return found | {"error": error.message}
        return found | {
            "cut": current.cut,
            "lsn": str(Lsn(current.end_lsn)),
            "published_at": time_text(current.committed_at_us),
            "cuts": [one.document for one in reversed(cuts)],
            "views": _views(current, cuts),
        }

    def _cuts(self, name: str, store: ManifestStore, current: Manifest) -> list[_Cut]:
        seen = self._seen.setdefault(name, {})
        wanted = [cut for cut in store.cuts() if cut <= current.cut][-CUTS_SHOWN:]
        for cut in wanted:
            if cut not in seen:
                seen[cut] = _Cut(current if cut == current.cut else store.at(cut))
        for cut in set(seen) - set(wanted):
            del seen[cut]
        return [seen[cut] for cut in wanted]


class _Cut:
    """What the page shows of a cut; a manifest with thousands of tables is not kept."""

    def __init__(self, manifest: Manifest) -> None:
        self.number = manifest.cut
        self.at = time_text(manifest.committed_at_us)
        self.document: dict[str, Any] = {
            "cut": manifest.cut,
            "lsn": str(Lsn(manifest.end_lsn)),
            "at": self.at,
            "views": len(manifest.views),
        }
        self.costs: Mapping[str, dict[str, Any]] = {
            name: {"cut": self.number, "at": self.at, "plan": state.plan.plan, "seconds": round(state.plan.seconds, 3),
                   "rows": state.plan.rows}
            for name, state in manifest.views.items()
            if state.plan is not None and state.cut == manifest.cut
        }  # fmt: skip
        self.document["computed"] = len(self.costs)
        self.document["slowest_seconds"] = max((cost["seconds"] for cost in self.costs.values()), default=None)


def _views(current: Manifest, cuts: list[_Cut]) -> list[dict[str, Any]]:
    found = []
    lsns = {cut.number: cut.document["lsn"] for cut in cuts}
    for name, state in sorted(current.views.items()):
        plan, cut = state.plan, state.cut if state.reason else current.cut  # else no change has affected it since
        found.append(
            {
                "name": name,
                "cut": cut,
                "lsn": lsns.get(cut),
                "rows": plan.rows if plan else None,
                "reason": state.reason or None,
                "plan": plan.plan if plan else None,
                "plan_reason": plan.reason if plan else None,
                "seconds": round(plan.seconds, 3) if plan else None,
                "costs": [cut.costs[name] for cut in cuts if name in cut.costs],
            }
        )
    empty: dict[str, Any] = dict.fromkeys(("cut", "lsn", "rows", "plan", "plan_reason", "seconds"))
    unbuilt = [
        {"name": name, **empty, "reason": view.reason, "costs": []}
        for name, view in sorted(current.unbuilt.items())
        if name not in current.views
    ]
    return found + unbuilt
