"""Reads the evidence of sinks: their reports and offsets in Kafka, blocked keys, their stores and lakes. Never raises.

The state of one sink, its store and its lake are read on their own, so that one that hangs keeps no other back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cdc.clock import Clock
from cdc.config.settings import Applied, Config, Warehouse
from cdc.config.sink_kinds import kind_of
from cdc.errors import SinkUnreachable, TailraceError
from cdc.inspect.lake_state import behind_of, current_cut
from cdc.model.sink_report import PIPE_EVERY_S, TOPIC_EVERY_S
from cdc.why.evidence import Failure, LakeEvidence, SinkEvidence, StoreEvidence
from cdc.why.reach import reach_urls
from sinks.checkups import store_checkup
from sinks.operate.dead_letter_view import DeadLetterView
from sinks.operate.sink_view import SinkViewer, reported


def read_sink(config: Config, name: str, clock: Clock) -> SinkEvidence:
    """Return what Kafka has of a sink."""
    settings = config.sinks[name]
    empty = SinkEvidence(name=name, kind=kind_of(settings))
    viewer = SinkViewer(config, clock)
    try:
        if not isinstance(settings, Applied):
            seen = viewer.evidence(name)
            return with_reports(empty, {"state": seen.state, **reported(seen), "busy": viewer.busy(name)})
        document = viewer.applied(name, settings).document()
        return _with_blocked(with_reports(empty, document), config)
    except TailraceError as error:
        return replace(empty, failure=Failure.of(error))
    finally:
        viewer.close()


def with_reports(sink: SinkEvidence, document: Mapping[str, Any]) -> SinkEvidence:
    """Return the evidence with the document of a sink, as `sinks.operate.sink_view` makes it."""
    workers = document.get("workers")
    if not workers and document.get("heartbeat_age_seconds") is None and document.get("members"):
        workers = document["members"]  # workers of an older release, which report nothing
    return replace(
        sink,
        state=str(document["state"]),
        reason=str(document.get("reason") or ""),
        cause=Failure.parse(document.get("error")),
        workers=workers,
        ended=bool(document.get("ended")),
        report_age_s=document.get("heartbeat_age_seconds"),
        every_s=TOPIC_EVERY_S,
        lag_records=document.get("lag_records"),
        lag_s=document.get("lag_seconds"),
        busy=str(document.get("busy") or ""),
    )


def with_supervisor(sink: SinkEvidence, document: Mapping[str, Any]) -> SinkEvidence:
    """Return the evidence with what `cdc run --with-sinks` knows of its child process, which is newer than Kafka."""
    runs = document.get("pid") is not None
    paused = sink.state == "PAUSED" and runs
    return replace(
        sink,
        failure=None,
        state=sink.state if paused else str(document["state"]),
        reason=str(document.get("reason") or ""),
        cause=Failure.parse(document.get("error")),
        workers=int(runs),
        ended=not runs,
        report_age_s=document.get("report_age_seconds"),
        every_s=PIPE_EVERY_S,
        lag_records=document.get("lag_records") if document.get("lag_records") is not None else sink.lag_records,
        lag_s=document.get("lag_seconds") if document.get("lag_seconds") is not None else sink.lag_s,
    )


def _with_blocked(sink: SinkEvidence, config: Config) -> SinkEvidence:
    with DeadLetterView(config, sink.name) as view:
        rows = view.blocked()
    return replace(
        sink,
        blocked=len(rows),
        blocked_tables=tuple(sorted({row.table for row in rows})),
        blocked_errors=tuple(sorted({row.block.error for row in rows if row.block.error})),
    )


def read_store(config: Config, name: str, clock: Clock) -> StoreEvidence:
    """Return what the store of a sink shows, or why it does not answer."""
    settings = config.sinks[name]
    assert isinstance(settings, Applied), "only sinks that apply one key at a time have a store"
    problems: dict[str, str] = {}
    try:
        for found in store_checkup(config, name, settings):
            if found.level != "ok":
                problems.setdefault(found.check, found.message)
    except ModuleNotFoundError as error:
        failure = Failure("ConfigError", f"the package {error.name!r} of this kind of sink is not installed here")
        return StoreEvidence(failure=failure)
    except TailraceError as error:
        url = getattr(settings, "url", "") if isinstance(error, SinkUnreachable) else ""  # plugins have no setting url
        return StoreEvidence(failure=Failure.of(error), problems=problems, reach=reach_urls(str(url or ""), clock))
    return StoreEvidence(answers=True, problems=problems)


def read_lake(config: Config, name: str, clock: Clock) -> LakeEvidence:
    """Return what the manifest of a lake shows."""
    settings = config.sinks[name]
    assert isinstance(settings, Warehouse), "only a warehouse has a lake"
    try:
        current = current_cut(settings)
        if current is None:
            return LakeEvidence()
        return LakeEvidence(
            cut=current.cut,
            age_s=max(0.0, clock.wall_s() - current.committed_at_us / 1e6),
            behind=behind_of(current),
            view_s={
                view: state.plan.seconds
                for view, state in current.views.items()
                if state.plan is not None and state.cut == current.cut
            },
        )
    except ModuleNotFoundError as error:
        return LakeEvidence(failure=Failure("ConfigError", f"the package {error.name!r} is not installed here"))
    except TailraceError as error:
        return LakeEvidence(failure=Failure.of(error))
