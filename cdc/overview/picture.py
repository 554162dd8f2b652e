"""Builds the picture of the flow: source, slot, log, sinks, lakes and views, and what flows between them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cdc import __version__
from cdc.lsn import Lsn
from cdc.model import units
from cdc.model.wait_reason import reason_text
from cdc.model.weak_setting import unaccepted
from cdc.overview.attention import attention_of, together
from cdc.overview.levels import Level, level_of, worst
from cdc.overview.places import Places, SinkPlace
from cdc.overview.sink_facts import SinkFacts

SNAPSHOTS_SHOWN: Final = 20
_SOURCE_REASONS: Final = frozenset({"source"})
_BROKER_REASONS: Final = frozenset({"broker", "registry"})
_SOURCE_ERRORS: Final = ("SourceUnreachable", "SourceRefused", "SourceDiverged", "SlotBlocked")
_SLOT_ERRORS: Final = ("SourceGap", "SlotHeld")
_LOG_ERRORS: Final = ("Broker", "Topic", "Registry", "Progress", "Log", "Producer", "Outcome")
_BEHIND_S: Final = 30.0  # as in `cdc sink status`


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read for one picture.

    Attributes:
        status: the document of capture's /status.
        rates: records per second of each sink, computed from two of its reports.
        views: lake -> (number of its views, view -> why it is behind); a lake that cannot be read is missing.
    """

    at: str
    places: Places
    status: Mapping[str, Any]
    sinks: Sequence[SinkFacts] = ()
    rates: Mapping[str, float] = field(default_factory=dict)
    views: Mapping[str, tuple[int, Mapping[str, str]]] = field(default_factory=dict)


def picture(seen: Seen) -> dict[str, Any]:
    """Return the document that the page draws. Its keys are described in docs/reference/http.md."""
    weak = unaccepted(seen.status.get("weak_topics") or (), unreplicated=seen.places.unreplicated)
    found = attention_of({**seen.status, "weak_topics": weak}, seen.sinks, seen.views)
    nodes = [_source(seen), _slot(seen), _log(seen)]
    edges = [_source_edge(seen), _log_edge(seen)]
    for sink in seen.sinks:
        place = seen.places.sinks.get(sink.name, SinkPlace("sink", ""))
        nodes.append(_sink(sink, place))
        edges.append(_sink_edge(sink, place, seen.rates.get(sink.name)))
        if place.has_views:
            nodes.append(_views(sink.name, seen.views.get(sink.name)))
            edges.append(_edge(f"sink:{sink.name}", f"views:{sink.name}", nodes[-1]["level"]))
    open_snapshots = [one for one in seen.status.get("snapshots") or () if one["state"] != "complete"]
    return {
        "name": seen.places.name,
        "version": __version__,
        "at": seen.at,
        "state": seen.status["state"],
        "level": worst(
            level for level in (*(node["level"] for node in nodes), *(one.level for one in found)) if level != "off"
        ),
        "with_sinks": "sinks" in seen.status,
        "nodes": nodes,
        "edges": edges,
        "snapshots": _snapshots(seen.status),
        "snapshots_count": len(seen.status.get("snapshots") or ()),
        "snapshots_open": len(open_snapshots),
        "attention": [one.document for one in together(found)],
        "counts": {
            "ddl": seen.status.get("ddl_count"),
            "left_out": seen.status.get("left_out_count"),
            "blocked_keys": sum(sink.blocked_keys or 0 for sink in seen.sinks),
        },
    }


def _node(
    name: str, kind: str, title: str, detail: str, state: str, *facts: tuple[str, str], **more: Any
) -> dict[str, Any]:
    node = {"id": name, "kind": kind, "title": title, "detail": detail, "state": state, "level": level_of(state)}
    return node | {"facts": [[label, text] for label, text in facts if text], "says": "", "error": None} | more


def _edge(begin: str, end: str, level: Level, **measured: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("rate", "rate_unit", "lag", "lag_unit", "lag_seconds"))
    return {"from": begin, "to": end, "level": level, **empty, **measured}


def _source(seen: Seen) -> dict[str, Any]:
    status = seen.status
    error = _error_at(status, _SOURCE_REASONS, _SOURCE_ERRORS)
    checked_s, slot = status.get("source_check_age_seconds"), status.get("slot") or {}
    written = slot.get("wal_bytes_per_second")
    oldest = (status.get("wal") or {}).get("oldest_transaction")
    facts = (
        ("WAL written", "" if written is None else f"{units.size(written)}/s"),
        ("position", slot.get("current_lsn") or ""),
        ("oldest transaction", _transaction(oldest)),
        ("checked", "" if checked_s is None else f"{units.duration(checked_s)} ago"),
    )
    state = str(status["state"]) if error else "RUNNING" if checked_s is not None else "STARTING"
    return _node("source", "source", "PostgreSQL", seen.places.source, state, *facts, **_said(error))


def _slot(seen: Seen) -> dict[str, Any]:
    status = seen.status
    slot, wal = status.get("slot") or {}, status.get("wal") or {}
    error = _error_at(status, {"slot"}, _SLOT_ERRORS)
    safe, lost_in_s = slot.get("safe_wal_bytes"), slot.get("lost_in_seconds")
    facts = (
        ("keeps WAL", units.size(slot.get("retained_bytes"))),
        ("may keep", "" if safe is None else f"{units.size(max(0, safe))} more"),
        ("lost in", "" if not lost_in_s else f"{units.duration(lost_in_s)} if capture stopped"),
        ("confirmed", slot.get("confirmed_lsn") or ""),
    )
    state = str(status["state"]) if error else str(slot.get("wal_status") or "unknown")
    node = _node("slot", "slot", f"Slot {seen.places.slot}", "", state, *facts, **_said(error))
    if not error:
        levels: dict[str, Level] = {"reserved": "ok", "extended": "ok", "unknown": "busy"}
        node["level"] = worst([levels.get(state, "bad"), "warn" if wal.get("alarms") else "ok"])
        node["says"] = str(wal.get("lost") or "")
    return node


def _log(seen: Seen) -> dict[str, Any]:
    status = seen.status
    error = _error_at(status, _BROKER_REASONS, _LOG_ERRORS)
    commit_s = status.get("last_commit_seconds")
    facts = (
        ("position", status.get("position") or ""),
        ("rows since start", f"{status.get('rows') or 0:,}"),
        ("last commit", "" if commit_s is None else f"{1000 * commit_s:.0f} ms"),
    )
    state = str(status["state"])
    elsewhere = bool(status.get("error")) and not error
    shown = "RUNNING" if elsewhere and state == "WAITING" else state
    return _node("log", "log", "Kafka", seen.places.kafka, shown, *facts, **_said(error))


def _source_edge(seen: Seen) -> dict[str, Any]:
    slot = seen.status.get("slot") or {}
    level: Level = "warn" if (seen.status.get("wal") or {}).get("alarms") else "ok"
    return _edge(
        "source",
        "slot",
        level,
        rate=slot.get("wal_bytes_per_second"),
        rate_unit="B/s",
        lag=slot.get("retained_bytes"),
        lag_unit="B",
    )


def _log_edge(seen: Seen) -> dict[str, Any]:
    status = seen.status
    slot, at = status.get("slot") or {}, status.get("position")
    behind = None
    if at and slot.get("current_lsn"):
        behind = max(0, Lsn.parse(slot["current_lsn"]) - Lsn.parse(at))
    return _edge(
        "slot",
        "log",
        level_of(str(status["state"])),
        rate=status.get("rows_per_second"),
        rate_unit="rows/s",
        lag=behind,
        lag_unit="B",
        lag_seconds=status.get("lag_seconds"),
    )


def _sink(sink: SinkFacts, place: SinkPlace) -> dict[str, Any]:
    facts = (
        ("behind", _behind(sink)),
        ("cut", "" if sink.cut is None else f"{sink.cut:,}"),
        ("blocked keys", f"{sink.blocked_keys:,}" if sink.blocked_keys else ""),
        ("workers", "" if sink.workers is None else str(sink.workers)),
        ("restarts", str(sink.restarts) if sink.restarts else ""),
        ("restarts in", "" if sink.next_start_s is None else units.duration(sink.next_start_s)),
    )
    node = _node(f"sink:{sink.name}", place.kind, sink.name, place.address, sink.state, *facts)
    if sink.error is not None and node["level"] in {"warn", "bad"}:
        node |= _said(sink.error)
    elif sink.state != "RUNNING":
        node["says"] = reason_text(sink.reason)
    if sink.workers == 0 and node["level"] == "ok":
        node["level"] = "warn"
        node["says"] = "no worker runs"
    elif sink.blocked_keys and node["level"] in {"ok", "busy"}:
        node["level"] = "warn"
        node["says"] = "records that the store refused block their keys"
    return node


def _behind(sink: SinkFacts) -> str:
    if sink.behind_bytes is not None:
        return f"{units.size(sink.behind_bytes)} of WAL"
    if sink.lag_records is None:
        return ""
    age = "" if not sink.lag_seconds else f", {units.duration(sink.lag_seconds)}"
    return f"{sink.lag_records:,} records{age}"


def _sink_edge(sink: SinkFacts, place: SinkPlace, rate: float | None) -> dict[str, Any]:
    level = level_of(sink.state)
    if level == "ok" and (sink.lag_seconds or 0.0) > _BEHIND_S:
        level = "busy"
    lake = place.kind == "lake"
    return _edge(
        "log",
        f"sink:{sink.name}",
        level,
        rate=rate,
        rate_unit="records/s",
        lag=sink.behind_bytes if lake else sink.lag_records,
        lag_unit="B" if lake else "records",
        lag_seconds=sink.lag_seconds,
    )


def _views(lake: str, found: tuple[int, Mapping[str, str]] | None) -> dict[str, Any]:
    if found is None:
        return _node(f"views:{lake}", "views", "Views", f"of {lake}", "UNKNOWN")
    count, behind = found
    title = f"{count} view" if count == 1 else f"{count} views"
    node = _node(f"views:{lake}", "views", title, f"of {lake}", "CATCHING_UP" if behind else "RUNNING")
    node["facts"] = [["behind", str(len(behind))]] if behind else []
    if behind:
        name, why = min(behind.items())
        node |= {"level": "warn", "says": f"{name} is behind: {why}"}
    return node


def _error_at(status: Mapping[str, Any], reasons: frozenset[str] | set[str], errors: Sequence[str]) -> Any:
    """Return the error of capture if it belongs to this part."""
    error = status.get("error")
    if not error:
        return None
    here = status.get("reason") in reasons if status.get("reason") else str(error["error"]).startswith(tuple(errors))
    return error if here else None


def _said(error: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if not error else {"says": str(error.get("message") or error.get("error")), "error": dict(error)}


def _transaction(oldest: Mapping[str, Any] | None) -> str:
    if not oldest or oldest.get("age_seconds") is None or oldest["age_seconds"] < 1:
        return ""
    who = f"prepared {oldest['gid']}" if oldest.get("pid") is None else f"pid {oldest['pid']}"
    return f"{units.duration(oldest['age_seconds'])}, {who}"


def _snapshots(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return those to show: first the ones that are not complete."""
    found = sorted(status.get("snapshots") or (), key=lambda one: (one["state"] == "complete", one["table"]))
    return found[:SNAPSHOTS_SHOWN]
