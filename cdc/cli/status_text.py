"""Formats `cdc status`: one document for programs, a few lines for people, from whatever answered. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

from cdc.cli import left_out_text, output, wal_report
from cdc.config.settings import Config
from cdc.errors import EXIT_FAILED, EXIT_OK, EXIT_OPERATOR
from cdc.lsn import Lsn
from cdc.model import units
from cdc.model.run_state import State
from cdc.model.weak_setting import unaccepted
from cdc.telemetry.capture_status import DDL_SHOWN, ddl_document

if TYPE_CHECKING:
    from cdc.inspect.pipeline_state import PipelineView

DOWN: Final = "DOWN"
UNKNOWN: Final = "UNKNOWN"
_COLOURS: Final = {
    State.RUNNING: "bold green",
    State.CATCHING_UP: "bold yellow",
    State.STARTING: "bold yellow",
    State.WAITING: "bold yellow",
    DOWN: "bold red",
}
_WAL_COLOURS: Final = {"reserved": "green", "extended": "yellow", "unreserved": "bold red", "lost": "bold red"}
_SIDES: Final = {"daemon": "daemon", "source": "PostgreSQL", "kafka": "Kafka"}
_SOON_S: Final = 3600
_DDL_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a read, and the rate at which WAL was written before it (None: unknown)."""

    wall_s: float
    wal_rate: float | None = None


def exit_code(document: dict[str, Any]) -> int:
    """Return 3 when an operator is needed, 1 when nothing answered, else 0."""
    if document["needs_operator"]:
        return EXIT_OPERATOR
    return EXIT_FAILED if document["state"] == UNKNOWN else EXIT_OK


def document(config: Config, view: PipelineView, moment: Moment) -> dict[str, Any]:
    """Return all facts, one key for each; null for what is unknown now."""
    daemon = view.daemon or {}
    state = daemon.get("state") or (DOWN if view.anything else UNKNOWN)
    slot = _slot(view, moment)
    return {
        "name": config.name,
        "state": state,
        "reason": daemon.get("reason") or None,
        "state_seconds": daemon.get("state_seconds"),
        "needs_operator": _needs_operator(state) or (view.verdict is not None and view.verdict.stops),
        "outlook": _next_start(view),
        "error": daemon.get("error"),
        "position": _position(view),
        "next_ordinal": daemon.get("next_ordinal"),
        "lag_bytes": slot["lag_bytes"] if slot else None,
        "lag_seconds": daemon.get("lag_seconds"),
        "rows_per_second": daemon.get("rows_per_second"),
        "bytes_per_second": daemon.get("bytes_per_second"),
        "rows": daemon.get("rows"),
        "batches": daemon.get("batches"),
        "last_batch_rows": daemon.get("last_batch_rows"),
        "last_commit_seconds": daemon.get("last_commit_seconds"),
        "snapshots": daemon.get("snapshots"),
        "load_guard": daemon.get("load_guard"),
        "signals": daemon.get("signals"),
        "slot": slot,
        "wal": _wal(config, view),
        "source": _source(view),
        "kafka": _kafka(config, view, moment),
        **_ddl_known(view),
        "columns_left_out": daemon.get("columns_left_out"),
        "weak_topics": _weak_topics(config, view),
        **left_out_text.known(view),
        "unreachable": dict(view.missing),
    }


def lines(document: dict[str, Any]) -> Table:
    """Return the document as lines for people."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim")
    grid.add_column()
    grid.add_row(output.plain(document["name"]), _headline(document))
    for label, text in (
        ("next start", _outlook(document)),
        ("error", _error(document)),
        ("position", _where(document)),
        ("lag", _lag(document)),
        ("flow", _flow(document)),
        ("snapshots", _snapshots(document)),
        ("", _slowed(document["load_guard"])),
        ("signals", _signals(document["signals"])),
        ("slot", _slot_line(document["slot"])),
        ("", _danger(document["slot"])),
        *((label, Text(text, style="bold red")) for label, text in wal_report.lines(document["wal"])),
        ("ddl", _ddl(document)),
        ("left out", left_out_text.text(document)),
        ("columns", _columns_left_out(document["columns_left_out"])),
        ("topics", _weak(document)),
        ("source", _source_line(document["source"])),
        ("kafka", _kafka_line(document["kafka"])),
    ):
        if text:
            grid.add_row(label, text)
    for side, why in document["unreachable"].items():
        if side != "daemon" or document["state"] == UNKNOWN:
            grid.add_row(_SIDES[side], Text(f"unreachable: {output.plain(why)}", style="red"))
    return grid


def _next_start(view: PipelineView) -> dict[str, Any] | None:
    """Return how a start would end; None when it would run, or wait for a server that `unreachable` names."""
    verdict = view.verdict
    if verdict is None or verdict.error is None or verdict.state is None:
        return None
    if verdict.waits and (view.daemon or verdict.rule != "slot"):
        return None
    error = verdict.error
    return {"state": verdict.state.value, "why": error.message, "hint": error.hint, "command": error.command}


def _needs_operator(state: str) -> bool:
    return any(known.value == state and known.needs_operator for known in State)


def _position(view: PipelineView) -> str | None:
    if view.daemon and view.daemon.get("position"):
        return str(view.daemon["position"])
    progress = view.log.progress if view.log else None
    return str(Lsn(progress.end_lsn)) if progress else None


def _slot(view: PipelineView, moment: Moment) -> dict[str, Any] | None:
    """Return the slot as the source shows it, else as the daemon last saw it."""
    if view.source is None:
        seen = view.daemon.get("slot") if view.daemon else None
        return {**seen, "exists": True, "active_pid": None} if seen else None
    slot = view.source.slot
    daemon_slot = (view.daemon or {}).get("slot") or {}
    rate = daemon_slot.get("wal_bytes_per_second") if view.daemon else moment.wal_rate
    lost_in_s = None
    if slot.exists and not slot.usable:
        lost_in_s = 0
    elif slot.safe_wal_size is not None and rate:
        lost_in_s = round(max(0, slot.safe_wal_size) / rate)
    return {
        "name": slot.name,
        "exists": slot.exists,
        "active_pid": slot.active_pid,
        "current_lsn": str(view.source.current_lsn),
        "confirmed_lsn": None if slot.confirmed_flush_lsn is None else str(slot.confirmed_flush_lsn),
        "restart_lsn": None if slot.restart_lsn is None else str(slot.restart_lsn),
        "lag_bytes": slot.lag_bytes,
        "retained_bytes": slot.retained_bytes,
        "wal_status": slot.wal_status,
        "invalidation": slot.invalidation or None,
        "safe_wal_bytes": slot.safe_wal_size,
        "wal_bytes_per_second": None if rate is None else round(rate),
        "lost_in_seconds": lost_in_s,
        "inactive_since": slot.inactive_since.isoformat() if slot.inactive_since else None,
    }


def _wal(config: Config, view: PipelineView) -> dict[str, Any] | None:
    """Return what holds WAL, as the source shows it, else as the daemon last saw it."""
    if view.source is None:
        found: dict[str, Any] | None = (view.daemon or {}).get("wal")
        return found
    return wal_report.document(config.source, view.source.wal)


def _source(view: PipelineView) -> dict[str, Any] | None:
    if view.source is None:
        return None
    found = view.source.identity
    return {
        "server_version": view.source.server_version,
        "database": found.database,
        "system_identifier": found.system_identifier,
        "timeline": found.timeline,
        "publication": view.source.publication.name if view.source.publication else None,
    }


def _kafka(config: Config, view: PipelineView, moment: Moment) -> dict[str, Any] | None:
    if view.log is None:
        return None
    progress, last_ms = view.log.progress, view.log.last_ms
    return {
        "bootstrap": config.kafka.bootstrap,
        "captured": progress is not None,
        "epoch": progress.epoch if progress else None,
        "end_lsn": str(Lsn(progress.end_lsn)) if progress else None,
        "commit_lsn": str(Lsn(progress.commit_lsn)) if progress else None,
        "next_ordinal": progress.next_ordinal if progress else None,
        "last_transaction_seconds_ago": None if last_ms is None else round(max(0.0, moment.wall_s - last_ms / 1000), 1),
    }


def _headline(document: dict[str, Any]) -> Text:
    state = document["state"]
    style = "bold red" if _needs_operator(state) else _COLOURS.get(state, "bold")
    text = Text.assemble((state, style))
    if document["reason"]:
        text.append(f" ({output.plain(document['reason'])})")
    if document["state_seconds"] is not None:
        text.append(f" for {units.duration(document['state_seconds'])}")
    elif state == DOWN:
        text.append(f"  {output.plain(document['unreachable'].get('daemon', ''))}", style="dim")
        reader = (document["slot"] or {}).get("active_pid")
        if reader:
            text.append(f"; but pid {reader} reads the slot: the daemon may run elsewhere", style="yellow")
    return text


def _outlook(document: dict[str, Any]) -> Text | None:
    found = document["outlook"]
    if not found:
        return None
    waits = found["state"] == State.WAITING
    text = Text.assemble((found["state"], "bold yellow" if waits else "bold red"), f": {output.plain(found['why'])}")
    if not waits:
        _advise(text, found)
    return text


def _error(document: dict[str, Any]) -> Text | None:
    error = document["error"]
    if not error:
        return None
    text = Text(output.plain(str(error.get("message", ""))))
    _advise(text, error)
    return text


def _advise(text: Text, error: dict[str, Any]) -> None:
    """Append hint and command."""
    if error.get("hint"):
        text.append(f"\nhint: {output.plain(error['hint'])}")
    if error.get("command"):
        text.append("\ntry:  ")
        text.append(output.statement(error["command"]), style="bold")


def _where(document: dict[str, Any]) -> str:
    slot, kafka = document["slot"] or {}, document["kafka"]
    if document["position"] is None:
        return "nothing captured yet" if kafka is not None and not kafka["captured"] else ""
    parts = [f"log {document['position']}"]
    if slot.get("confirmed_lsn"):
        parts.append(f"confirmed {slot['confirmed_lsn']}")
    if slot.get("current_lsn"):
        parts.append(f"server {slot['current_lsn']}")
    if document["next_ordinal"]:
        parts.append(f"inside a transaction, at row {document['next_ordinal']}")
    return "   ".join(parts)


def _lag(document: dict[str, Any]) -> str:
    parts = []
    if document["lag_seconds"] is not None:
        parts.append(units.duration(document["lag_seconds"]))
    if document["lag_bytes"] is not None:
        parts.append(f"{units.size(document['lag_bytes'])} of WAL")
    return ", ".join(parts)


def _flow(document: dict[str, Any]) -> str:
    if document["rows_per_second"] is None:
        return ""
    rows, commit_s = document["last_batch_rows"] or 0, document["last_commit_seconds"] or 0.0
    batch = f"last batch {rows:,} rows in {1000 * commit_s:.0f} ms" if rows else f"last commit {1000 * commit_s:.0f} ms"
    speed = f"{document['rows_per_second']:,.0f} rows/s, {units.size(document['bytes_per_second'])}/s"
    return f"{speed};  {batch};  {document['rows'] or 0:,} rows since start"


def _signals(signals: dict[str, Any] | None) -> Text | None:
    """Return a line only when signals are not read although they should be."""
    if signals is None or signals["listening"]:
        return None
    return Text(f"not read: {output.plain(signals['error'])}", style="bold red")


def _snapshots(document: dict[str, Any]) -> str:
    """Count the incomplete snapshots by state; `cdc snapshot status` shows the rest."""
    counts = Counter(str(one["state"]) for one in document["snapshots"] or () if one["state"] != "complete")
    rows_s = sum(one["rows_per_second"] for one in document["snapshots"] or ())
    parts = [f"{count} {state}" for state, count in sorted(counts.items())]
    return ", ".join(parts) + (f", {rows_s:,.0f} rows/s" if parts and rows_s else "")


def _slowed(guard: dict[str, Any] | None) -> Text | None:
    """Return a line only while the load guard slows snapshots down."""
    if not guard or not guard["reason"]:
        return None
    return Text(f"slowed down to {100 * guard['speed']:.0f} %: {output.plain(guard['reason'])}", style="yellow")


def _slot_line(slot: dict[str, Any] | None) -> Text | str:
    if slot is None:
        return ""
    if not slot["exists"]:
        return f"{output.plain(slot['name'])} does not exist"
    status = slot.get("wal_status") or "unknown"
    text = Text.assemble((status, _WAL_COLOURS.get(status, "")))
    if slot.get("invalidation"):
        text.append(f" ({slot['invalidation']})")
    text.append(f", keeps {units.size(slot['retained_bytes']) or 'nothing'}")
    safe = slot.get("safe_wal_bytes")
    if status != "lost":
        text.append(", without limit" if safe is None else f", safe for {units.size(safe)} more")
    return text


def _danger(slot: dict[str, Any] | None) -> Text | None:
    """Return the time until the slot is lost, in the worst case that nothing is confirmed any more."""
    if slot is None or slot.get("lost_in_seconds") is None or not slot.get("exists"):
        return None
    lost_in_s = slot["lost_in_seconds"]
    if not lost_in_s:
        return None
    rate = units.size(slot.get("wal_bytes_per_second"))
    style = "bold red" if lost_in_s < _SOON_S else "dim"
    return Text(f"lost in {units.duration(lost_in_s)} if capture stopped confirming ({rate}/s of WAL)", style=style)


def _ddl_known(view: PipelineView) -> dict[str, Any]:
    """Return the open DDL findings, from the daemon, else as recorded."""
    if view.daemon is not None and "ddl" in view.daemon:
        return {"ddl_count": view.daemon["ddl_count"], "ddl": view.daemon["ddl"]}
    if view.log is None:
        return {"ddl_count": None, "ddl": None}
    return {"ddl_count": len(view.log.ddl), "ddl": [ddl_document(one) for one in view.log.ddl[:DDL_SHOWN]]}


def _ddl(document: dict[str, Any]) -> Text | None:
    """Return the first findings; `cdc ddl list` shows the rest."""
    if not document["ddl_count"]:
        return None
    lines = [output.plain(one["what"]) for one in document["ddl"][:_DDL_MAX]]
    more = document["ddl_count"] - _DDL_MAX
    lines += [f"and {more} more"] if more > 0 else []
    return Text.assemble(("\n".join(lines), "yellow"), "\nsee `cdc ddl list`, accept with `cdc ddl accept`")


def _columns_left_out(found: list[dict[str, Any]] | None) -> Text | None:
    """Return lines about generated columns that the stream lacks; virtual ones are stored in no table either."""
    lines = [f"{one['table']}: {', '.join(one['columns'])} ({one['why']})" for one in (found or [])[:_DDL_MAX]]
    more = len(found or []) - len(lines)
    lines += [f"and {more} more"] if more > 0 else []
    return Text("\n".join(map(output.plain, lines)), style="yellow") if lines else None


def _weak_topics(config: Config, view: PipelineView) -> list[dict[str, Any]]:
    """Return weak settings of topics; few replicas only where the configuration does not accept them."""
    found = [one.document for one in view.weak] or (view.daemon or {}).get("weak_topics") or []
    return [dict(one) for one in unaccepted(found, unreplicated=config.kafka.allow_unreplicated)]


def _weak(document: dict[str, Any]) -> Text | None:
    """Return one line for each weak setting of topics; `cdc doctor` shows the commands."""
    if not document["weak_topics"]:
        return None
    lines = [
        f"{one['setting']} is {one['found']}, must be {one['wanted']}: {one['topic']}"
        + (f" and {one['topics'] - 1} more" if one["topics"] > 1 else "")
        for one in document["weak_topics"]
    ]
    return Text.assemble(("\n".join(map(output.plain, lines)), "yellow"), "\nsee `cdc doctor`")


def _source_line(source: dict[str, Any] | None) -> str:
    if source is None:
        return ""
    return f"PostgreSQL {source['server_version'].split(' ')[0]}, database {output.plain(source['database'])}"


def _kafka_line(kafka: dict[str, Any] | None) -> str:
    if kafka is None:
        return ""
    ago = kafka["last_transaction_seconds_ago"]
    return output.plain(kafka["bootstrap"]) + ("" if ago is None else f", last transaction {units.duration(ago)} ago")
