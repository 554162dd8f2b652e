"""The picture of the flow: which part is drawn as broken, what is said about it, and what flows on its edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.model.run_state import State
from cdc.overview.attention import attention_of
from cdc.overview.levels import level_of, worst
from cdc.overview.picture import Seen, picture
from cdc.overview.places import Places, SinkPlace
from cdc.overview.sink_facts import SinkFacts, reported, supervised
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from tests.fixtures.servers.manual_clock import ManualClock

_PLACES = Places(
    "shop",
    "db:5432/shop",
    "cdc_shop",
    "kafka:9092",
    {
        "cache": SinkPlace("cache", "redis://cache"),
        "lake": SinkPlace("lake", "/lake", has_views=True),
    },
)
_SLOT = {
    "current_lsn": "0/2000",
    "confirmed_lsn": "0/1000",
    "restart_lsn": "0/1000",
    "retained_bytes": 8192,
    "wal_status": "reserved",
    "safe_wal_bytes": None,
    "wal_bytes_per_second": 512,
    "lost_in_seconds": None,
}


def _status(**changed: Any) -> dict[str, Any]:
    """Return /status of a capture that works, with changes."""
    document = Status("shop", ManualClock(), Metrics("shop")).snapshot()
    working = {"state": "RUNNING", "position": "0/1F00", "slot": _SLOT, "source_check_age_seconds": 0.5}
    return document | working | {"lag_seconds": 0.0, "rows_per_second": 300.0} | changed


def _error(kind: str, reason: str = "", state: str = "WAITING") -> dict[str, Any]:
    error = {"error": kind, "message": f"{kind} happened", "hint": "do this", "command": "cdc doctor"}
    return {"state": state, "reason": reason, "error": error}


def _drawn(status: dict[str, Any], *sinks: SinkFacts, **more: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    found = picture(Seen("2026-11-28T10:00:00Z", _PLACES, status, sinks, **more))
    return found, {node["id"]: node for node in found["nodes"]}


def test_flow_without_a_problem_is_ok_everywhere() -> None:
    found, nodes = _drawn(_status(), SinkFacts(name="cache", state="RUNNING", workers=1, lag_records=0))

    assert found["level"] == "ok"
    assert found["attention"] == []
    assert {name: node["level"] for name, node in nodes.items()} == {
        "source": "ok", "slot": "ok", "log": "ok", "sink:cache": "ok",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("happened", "part"),
    [
        (_error("SourceUnreachable", "source"), "source"),
        (_error("SourceRefused", state="MISCONFIGURED"), "source"),
        (_error("SlotHeld", "slot"), "slot"),
        (_error("SourceGap", state="GAP"), "slot"),
        (_error("BrokerUnreachable", "broker"), "log"),
        (_error("TopicMissing", state="MISCONFIGURED"), "log"),
        (_error("RegistryUnreachable", "registry"), "log"),
    ],
)
def test_an_error_of_capture_is_drawn_at_the_part_that_it_is_about_and_at_no_other(
    happened: dict[str, Any], part: str
) -> None:
    found, nodes = _drawn(_status(**happened))

    assert {name for name, node in nodes.items() if node["error"]} == {part}
    assert nodes[part]["says"] == happened["error"]["message"]
    assert nodes[part]["level"] == level_of(happened["state"]) == found["level"]
    assert found["attention"][0]["hint"] == "do this"


@pytest.mark.parametrize("state", [state for state in State if state.needs_operator])
def test_a_state_that_needs_an_operator_is_bad(state: State) -> None:
    assert level_of(state.value) == "bad"


def test_edges_have_rate_and_lag_of_what_flows_there() -> None:
    sink = SinkFacts(name="cache", state="RUNNING", workers=1, lag_records=7, lag_seconds=0.4)

    found, _ = _drawn(_status(), sink, rates={"cache": 120.0})

    assert [(e["from"], e["to"], e["rate"], e["rate_unit"], e["lag"], e["lag_unit"]) for e in found["edges"]] == [
        ("source", "slot", 512, "B/s", 8192, "B"),
        ("slot", "log", 300.0, "rows/s", 0x100, "B"),
        ("log", "sink:cache", 120.0, "records/s", 7, "records"),
    ]


def test_a_sink_behind_by_half_a_minute_is_drawn_as_catching_up() -> None:
    found, _ = _drawn(_status(), SinkFacts(name="cache", state="RUNNING", workers=1, lag_records=9, lag_seconds=31.0))

    assert found["edges"][-1]["level"] == "busy"


def test_a_lake_has_its_views_and_says_which_are_behind() -> None:
    lake = SinkFacts(name="lake", state="RUNNING", workers=1, behind_bytes=1024, cut=12)

    found, nodes = _drawn(_status(), lake, views={"lake": (3, {"revenue": "division by zero"})})

    assert (nodes["views:lake"]["title"], nodes["views:lake"]["level"]) == ("3 views", "warn")
    assert nodes["views:lake"]["says"] == "revenue is behind: division by zero"
    assert found["attention"][0]["says"] == "revenue is behind: division by zero"
    assert [edge["lag_unit"] for edge in found["edges"] if edge["to"] == "sink:lake"] == ["B"]


def test_blocked_keys_are_named_at_their_sink_and_counted() -> None:
    sinks = [
        SinkFacts(name="cache", state="RUNNING", workers=1, blocked_keys=3),
        SinkFacts(name="lake", state="RUNNING"),
    ]
    found, nodes = _drawn(_status(), *sinks)

    assert nodes["sink:cache"]["level"] == "warn"
    assert ["blocked keys", "3"] in nodes["sink:cache"]["facts"]
    assert found["counts"]["blocked_keys"] == 3
    assert [(one["command"], one["runbook"]) for one in found["attention"]] == [
        ("cdc dlq list cache", "docs/howto/dead-letters.md")
    ]


@pytest.mark.parametrize(("unreplicated", "shown"), [(True, ["min.insync.replicas"]), (False, None)])
def test_few_replicas_are_noted_unless_the_configuration_accepts_them(
    unreplicated: bool, shown: list[str] | None
) -> None:
    weak = {"found": "1", "wanted": "at least 3", "topics": 2, "topic": "shop.t", "command": ""}
    settings = ["replication factor", "internal replication factor", "min.insync.replicas"]
    status = _status(weak_topics=[{"setting": setting, **weak} for setting in settings])

    found = picture(Seen("2026-11-28T10:00:00Z", replace(_PLACES, unreplicated=unreplicated), status, []))

    said = [one["says"] for one in found["attention"]]
    assert said == [f"2 topics have {setting} 1 instead of at least 3" for setting in shown or settings]


def test_an_error_without_a_hint_has_one_all_the_same() -> None:
    error = {"error": "OutcomeUnknown", "message": "Kafka does not answer", "hint": "", "command": ""}

    (found,) = attention_of(_status(state="WAITING", reason="broker", error=error), [], {})

    assert (found.hint, found.command) == ("it continues by itself when this ends", "cdc why")


def test_a_log_that_is_a_minute_behind_is_named() -> None:
    assert _drawn(_status(state="CATCHING_UP", lag_seconds=59.0))[0]["attention"] == []

    found, _ = _drawn(_status(state="CATCHING_UP", lag_seconds=60.0))
    assert [(one["level"], one["says"], one["command"]) for one in found["attention"]] == [
        ("warn", "the log is 60 s behind PostgreSQL", "cdc why")
    ]


def test_a_sink_that_is_a_minute_behind_is_named() -> None:
    found, _ = _drawn(_status(), SinkFacts(name="cache", state="CATCHING_UP", workers=1, lag_seconds=59.0))
    assert found["attention"] == []

    found, _ = _drawn(
        _status(), SinkFacts(name="cache", state="CATCHING_UP", workers=1, lag_seconds=120.0, lag_records=1200)
    )
    assert [(one["level"], one["says"], one["command"]) for one in found["attention"]] == [
        ("warn", "cache is 2 min behind, 1,200 records wait", "cdc why cache")
    ]


def test_a_paused_sink_is_off_and_says_so_without_an_alarm() -> None:
    found, nodes = _drawn(_status(), supervised("cache", {"state": "WAITING", "reason": "paused", "pid": 7}))

    assert (nodes["sink:cache"]["state"], nodes["sink:cache"]["level"]) == ("PAUSED", "off")
    assert found["level"] == "ok"
    assert found["attention"][0]["command"] == "cdc sink resume cache"


def test_a_sink_without_a_worker_is_a_warning() -> None:
    found, nodes = _drawn(_status(), reported({"name": "cache", "state": "RUNNING", "workers": 0}))

    assert nodes["sink:cache"]["says"] == "no worker runs"
    assert found["level"] == "warn"


@pytest.mark.parametrize(("alarms", "level"), [([50], "warn"), ([50, 25], "warn"), ([50, 25, 10], "bad")])
def test_wal_that_fills_up_is_a_warning_and_then_an_alarm(alarms: list[int], level: str) -> None:
    wal = {"alarms": alarms, "left_bytes": 100, "limit_bytes": 1000, "lost": None}

    found, nodes = _drawn(_status(wal=wal))

    assert found["attention"][0]["level"] == level
    assert nodes["slot"]["level"] == "warn"


def test_a_long_transaction_is_named_with_its_session() -> None:
    oldest = {"pid": 4711, "gid": "", "application_name": "etl", "age_seconds": 900.0}

    found, nodes = _drawn(_status(wal={"alarms": [], "oldest_transaction": oldest, "lost": None}))

    assert ["oldest transaction", "15 min, pid 4711"] in nodes["source"]["facts"]
    assert found["attention"][0]["says"] == "a transaction is open for 15 min: pid 4711 (etl)"


def test_the_worst_comes_first() -> None:
    status = _status(
        **_error("BrokerUnreachable", "broker"),
        ddl=[{"table": "public.t", "kind": "rewrite", "what": "was rewritten", "hint": "h", "command": "c"}],
        ddl_count=3,
    )

    found = attention_of(status, [SinkFacts(name="search", state="STALE", workers=0)], {})

    assert [(one.level, one.what) for one in found] == [("bad", "sink search"), ("warn", "capture"), ("warn", "ddl")]
    assert found[2].says == "public.t: was rewritten (3 findings)"


def test_levels_are_ordered() -> None:
    assert worst([]) == "ok"
    assert worst(["ok", "busy", "warn"]) == "warn"
    assert worst(["bad", "warn"]) == "bad"


def test_one_cause_of_several_sinks_is_shown_once_and_sent_for_each() -> None:
    error = _error("BrokerUnreachable")["error"]
    sinks = [SinkFacts(name=f"s{n}", state="WAITING", reason="broker", error=error, workers=1) for n in range(7)]
    other = SinkFacts(name="lake", state="WAITING", reason="store", error={**error, "message": "no disk"}, workers=1)

    found = _drawn(_status(), *sinks, other)[0]["attention"]

    assert [(one["what"], one["says"]) for one in found] == [
        ("sinks s0, s1, s2, s3, s4 and 2 more", "BrokerUnreachable happened"),
        ("sink lake", "no disk"),
    ]
    assert found[0]["runbook"] == found[1]["runbook"] == "docs/howto/sinks.md"
    assert len(attention_of(_status(), [*sinks, other], {})) == 8
