"""DDL findings are reported until accepted, across restarts and kills; with `stop`, capture stops and loses nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.fixtures.servers import http_probe
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.http_probe import ask
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections

_QUICK: Final[Sections] = {"capture": {"catalog_check_s": 0.1}}
_STOP: Final[Sections] = {**_QUICK, "ddl": {"policy": "stop"}}


def table(capture: CaptureSite, name: str = "t") -> None:
    capture.sql(f"create table {name} (id int primary key)", f"insert into {name} values (1)")


def fill(capture: CaptureSite, column: str = "d", name: str = "t") -> None:
    """DDL that gives existing rows a value."""
    capture.sql(f"alter table {name} add {column} int default 7")


def told(daemon: Daemon) -> list[dict[str, str]]:
    findings: list[dict[str, str]] = daemon.status().get("ddl", [])
    return findings


def listed(capture: CaptureSite) -> list[dict[str, str]]:
    """What `cdc ddl list` says, of capture that runs or not."""
    answer: dict[str, Any] = json.loads(cdc("ddl", "list", "--json", "-c", capture.write_config()).out)
    return list(answer["findings"])


def accept(capture: CaptureSite, *tables: str) -> list[dict[str, str]]:
    done = cdc("ddl", "accept", *tables, "--yes", "--json", "-c", capture.write_config())
    assert done.code == 0, done.err
    return list(json.loads(done.out)["accepted"])


def metric(daemon: Daemon, name: str, **labels: str) -> float:
    page = ask("127.0.0.1", daemon.events("http_listening")[0]["port"], "/metrics")[2].decode()
    return http_probe.metric(page, name, **labels)


def test_finding_is_logged_counted_and_shown_until_it_is_accepted(capture: CaptureSite) -> None:
    table(capture)
    daemon = capture.running(_QUICK)

    fill(capture)
    until(lambda: listed(capture) and told(daemon), "recorded and shown")
    shown = json.loads(cdc("status", "--json", "-c", capture.write_config()).out)["ddl"]

    assert [(one["table"], one["kind"]) for one in told(daemon)] == [("public.t", "column_filled")]
    assert listed(capture) == told(daemon) == shown
    assert [event["lsn"] for event in daemon.events("ddl_found")] == [told(daemon)[0]["lsn"]]
    assert metric(daemon, "cdc_ddl_found_total", kind="column_filled") == 1
    assert metric(daemon, "cdc_ddl_open_findings") == 1
    assert daemon.state() in {"RUNNING", "CATCHING_UP"}

    accept(capture, "public.t")
    until(lambda: not told(daemon), "the daemon knows")

    assert metric(daemon, "cdc_ddl_open_findings") == 0
    assert listed(capture) == []


def test_finding_outlives_a_kill_and_is_not_found_again(capture: CaptureSite) -> None:
    table(capture)
    daemon = capture.running(_QUICK)
    fill(capture)
    before = until(lambda: listed(capture), "recorded")
    daemon.kill()

    again = capture.running(_QUICK)

    until(lambda: told(again) == before, "it is shown again")
    assert again.events("ddl_found") == []


def test_acceptance_is_of_what_was_seen_and_outlives_a_restart(capture: CaptureSite) -> None:
    table(capture)
    table(capture, "u")
    daemon = capture.running(_QUICK)
    fill(capture)
    fill(capture, name="u")
    until(lambda: len(listed(capture)) == 2, "both are recorded")
    daemon.stop()

    accept(capture, "public.t")
    fill(capture, "later")
    daemon = capture.running(_QUICK)

    until(lambda: len(told(daemon)) == 2, "both are shown")
    assert [(one["table"], "later" in one["what"]) for one in told(daemon)] == [("public.t", True), ("public.u", False)]
    accept(capture)
    until(lambda: not told(daemon), "the daemon knows")
    daemon.stop()
    assert told(capture.running(_QUICK)) == []


def test_statement_of_a_finding_brings_the_log_level_with_the_table(capture: CaptureSite) -> None:
    table(capture)
    daemon = capture.running(_QUICK)
    fill(capture)
    found = until(lambda: told(daemon), "found")

    capture.sql(found[0]["command"])
    log = capture.settled(daemon)

    assert list(log.fold(capture.topic("t")).values()) == [{"id": 1, "d": 7}]


def test_stop_ends_capture_by_name_and_again_until_it_is_accepted(capture: CaptureSite) -> None:
    table(capture)
    daemon = capture.running(_STOP)
    capture.sql("insert into t values (2)")
    fill(capture)
    stop = daemon.stopped_with()
    capture.sql("insert into t values (3)")

    assert (stop["state"], stop["exit_code"], stop["table"]) == ("MISCONFIGURED", 3, "public.t")
    assert "d of public.t" in stop["message"]
    assert stop["command"] == "cdc ddl accept public.t"
    assert [one["lsn"] for one in listed(capture)] == [stop["lsn"]]
    shown = json.loads(cdc("status", "--json", "-c", capture.write_config()).out)
    assert (shown["state"], shown["ddl"]) == ("DOWN", listed(capture))
    assert capture.daemon(_STOP).stopped_with()["lsn"] == stop["lsn"]

    accept(capture, "public.t")
    log = capture.settled(capture.running(_STOP))

    assert [event.after["id"] for event in log.events] == [2, 3]
    assert log.faults() == []


def test_stop_before_the_start_when_it_happened_while_capture_was_down(capture: CaptureSite) -> None:
    table(capture)
    capture.running(_STOP).stop()
    fill(capture)

    stop = capture.daemon(_STOP).stopped_with()

    assert (stop["state"], stop["table"]) == ("MISCONFIGURED", "public.t")
    assert len(listed(capture)) == 1


def test_table_has_the_policy_of_the_last_pattern_that_fits(capture: CaptureSite) -> None:
    for name in ("a", "ab", "b"):
        table(capture, name)
    overrides = {"public.a*": "stop", "public.ab": "warn"}
    daemon = capture.running({**_QUICK, "ddl": {"tables": overrides}})

    fill(capture, name="b")
    fill(capture, name="ab")
    until(lambda: len(told(daemon)) == 2, "both are told")
    capture.settled(daemon)
    assert daemon.alive
    fill(capture, name="a")
    stop = daemon.stopped_with()

    assert stop["table"] == "public.a"
    assert {one["table"] for one in listed(capture)} == {"public.a", "public.ab", "public.b"}


def test_table_that_joins_at_a_start_is_reported(capture: CaptureSite) -> None:
    table(capture)
    capture.running(_QUICK).stop()
    table(capture, "late")

    daemon = capture.running(_QUICK)

    until(lambda: told(daemon), "it is shown")
    assert [(one["table"], one["kind"]) for one in told(daemon)] == [("public.late", "joined")]


def test_table_that_joins_while_capture_runs_is_captured_and_reported(capture: CaptureSite) -> None:
    table(capture)
    daemon = capture.running(_QUICK)

    capture.transaction(  # otherwise capture may add the table first
        "create table late (id int primary key)",
        "insert into late values (1)",
        f"alter publication {capture.slot} add table late",
    )
    capture.sql("insert into late values (2)")
    until(lambda: told(daemon), "found")
    log = capture.settled(daemon)

    assert [(one["table"], one["kind"]) for one in told(daemon)] == [("public.late", "joined")]
    assert [event.after["id"] for event in log.events_of(capture.topic("late"))] == [2]


def test_first_start_finds_nothing(capture: CaptureSite) -> None:
    table(capture)
    fill(capture)

    daemon = capture.running(_STOP)

    assert told(daemon) == []
    assert listed(capture) == []


def test_nothing_to_accept_is_a_usage_error(capture: CaptureSite) -> None:
    table(capture)
    capture.running(_QUICK)

    done = cdc("ddl", "accept", "public.t", "--yes", "-c", capture.write_config())

    assert done.code == 2
    assert "no open DDL finding" in done.err
