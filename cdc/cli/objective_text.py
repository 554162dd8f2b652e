"""The freshness objectives of sinks in `cdc sink status` and `cdc status`, with the error budget that is left.

Only the process of capture counts how often an objective is missed, so the numbers come from its /status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdc.config.settings import Config
from cdc.errors import SourceUnreachable
from cdc.model import units

Document = dict[str, Any]


def with_objectives(config: Config, sinks: Sequence[Document], daemon: Mapping[str, Any] | None) -> list[Document]:
    """Return the documents of sinks, with ``objective`` added to those that have one in the configuration.

    `daemon`: the document of /status, None if capture does not answer. ``objective`` then has only the settings, with
    null for what capture counts.
    """
    counted = {one["sink"]: one for one in (daemon or {}).get("objectives") or ()}
    found = []
    for sink in sinks:
        settings = config.sinks.get(sink["name"])
        objective = None if settings is None else settings.objective
        if objective is None:
            found.append(sink)
            continue
        unknown = {
            "sink": sink["name"],
            "objective_seconds": objective.freshness_s,
            "target": objective.target,
            **dict.fromkeys(
                ("freshness_seconds", "fresh", "checked_seconds", "missed_seconds", "budget_left", "burns")
            ),
        }
        found.append({**sink, "objective": counted.get(sink["name"], unknown)})
    return found


def daemon_of(config: Config) -> Document | None:
    """Return /status of capture if a sink has an objective and capture answers, else None."""
    if all(sink.objective is None for sink in config.sinks.values()):
        return None
    from cdc.inspect.pipeline_state import ask_daemon

    try:
        return ask_daemon(config.http, config.name)
    except SourceUnreachable:
        return None  # the note about the objective says that it is unknown


def objective_note(one: Mapping[str, Any]) -> str:
    """Return how a sink meets its objective and what is left of its error budget, in one line."""
    allowed, target = units.duration(one["objective_seconds"]), f"{100 * one['target']:g} %"
    if one["budget_left"] is None:
        return f"objective {allowed} in {target} of the time: error budget unknown, capture does not answer"
    behind_s = one["freshness_seconds"]
    behind = "an unknown time" if behind_s is None else units.duration(behind_s)
    left = f"{100 * max(0.0, one['budget_left']):.0f} % of the error budget is left"
    misses = "" if one["fresh"] else ", and misses it now"
    burns = "; at the rate of the last hour it is used up within two days" if one["burns"] else ""
    return f"objective {allowed} in {target} of the time: {behind} behind PostgreSQL{misses}; {left}{burns}"
